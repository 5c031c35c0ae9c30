//! What is told to `tracing`, with the feature of that name. Without it nothing is, and nothing is computed
//! for it.

/// An event. Its fields are never evaluated without the feature, so they must do nothing but show.
#[cfg(feature = "tracing")]
macro_rules! event {
    ($level:ident, $($what:tt)+) => {
        ::tracing::event!(target: "latchwork", ::tracing::Level::$level, $($what)+)
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! event {
    ($level:ident, $($what:tt)+) => {};
}

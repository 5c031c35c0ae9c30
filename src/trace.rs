//! What is told to `tracing`, with the feature of that name. Without it nothing is, and nothing is computed
//! for it.

/// An event. Its fields are never evaluated without the feature, so they must do nothing but show.
///
/// The subscriber is foreign code, and so are the errors that it shows.
#[cfg(feature = "tracing")]
macro_rules! event {
    ($level:ident, $($what:tt)+) => {
        if ::tracing::Level::$level <= ::tracing::level_filters::LevelFilter::current() {
            $crate::foreign::tell(|| {
                ::tracing::event!(target: "latchwork", ::tracing::Level::$level, $($what)+)
            });
        }
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! event {
    ($level:ident, $($what:tt)+) => {};
}

/// `acquire`, inside of a span that says which lock it is about. It begins when that is polled for the first
/// time.
#[cfg(feature = "tracing")]
pub(crate) async fn acquiring<F: Future>(name: &str, acquire: F) -> F::Output {
    let span = tracing::debug_span!(target: "latchwork", "acquire", lock = name);
    tracing::Instrument::instrument(acquire, span).await
}

/// `work`, inside of the span that it is begun in, wherever it runs.
#[cfg(feature = "tracing")]
pub(crate) fn here<F: Future>(work: F) -> impl Future<Output = F::Output> {
    tracing::Instrument::in_current_span(work)
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn here<F: Future>(work: F) -> F {
    work
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn acquiring<F: Future>(_name: &str, acquire: F) -> F {
    acquire
}

//! Events and spans for `tracing`. Without the feature of that name, nothing is computed for them.

#[cfg(feature = "tracing")]
use std::pin::Pin;
#[cfg(feature = "tracing")]
use std::task::{Context, Poll};

#[cfg(feature = "tracing")]
pub(crate) fn told<T>(tell: impl FnOnce() -> T) -> Option<T> {
    crate::support::foreign::call("a subscriber of tracing", tell)
}

/// Emits an event. Without the feature its fields are not evaluated, so they must have no effects. The
/// subscriber, and the formatting of errors in the fields, are foreign code.
#[cfg(feature = "tracing")]
macro_rules! event {
    ($level:ident, $($what:tt)+) => {
        if ::tracing::Level::$level <= ::tracing::level_filters::LevelFilter::current() {
            $crate::support::trace::told(|| {
                ::tracing::event!(target: "latchwork", ::tracing::Level::$level, $($what)+)
            });
        }
    };
}

#[cfg(not(feature = "tracing"))]
macro_rules! event {
    ($level:ident, $($what:tt)+) => {};
}

/// Runs `acquire` inside of a span with the lock's name. The span begins with the first poll.
#[cfg(feature = "tracing")]
pub(crate) fn in_span<F: Future>(name: &str, acquire: F) -> impl Future<Output = F::Output> {
    // No `async fn`, which would keep `acquire` twice.
    InSpan { begins: Some(name), span: None, future: Some(acquire) }
}

/// Runs `work` inside of the current span, wherever it is polled.
#[cfg(feature = "tracing")]
pub(crate) fn here<F: Future>(work: F) -> impl Future<Output = F::Output> {
    InSpan { begins: None, span: told(tracing::Span::current), future: Some(work) }
}

#[cfg(feature = "tracing")]
pin_project_lite::pin_project! {
    /// A future polled and dropped inside of a span, even if the subscriber panics: the future may hold a
    /// lock.
    struct InSpan<'a, F> {
        // Name of the lock whose span begins with the first poll.
        begins: Option<&'a str>,
        span: Option<tracing::Span>,
        #[pin]
        future: Option<F>,
    }

    impl<F> PinnedDrop for InSpan<'_, F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            inside(this.span.as_ref(), || this.future.set(None));
            told(|| drop(this.span.take()));
        }
    }
}

#[cfg(feature = "tracing")]
impl<F: Future> Future for InSpan<'_, F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        if let Some(name) = this.begins.take() {
            *this.span = told(|| tracing::debug_span!(target: "latchwork", "acquire", lock = name));
        }
        let future = this.future.as_pin_mut().expect("not polled once it is dropped");
        inside(this.span.as_ref(), || future.poll(task))
    }
}

#[cfg(feature = "tracing")]
fn inside<T>(span: Option<&tracing::Span>, run: impl FnOnce() -> T) -> T {
    let entered = span.and_then(|span| told(|| span.enter()));
    let ran = run();
    told(|| drop(entered));
    ran
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn here<F: Future>(work: F) -> F {
    work
}

#[cfg(not(feature = "tracing"))]
pub(crate) fn in_span<F: Future>(_name: &str, acquire: F) -> F {
    acquire
}

//! The span around an acquisition, with the feature `tracing`.

use super::name::LockName;

/// `acquire`, inside of a span that says which lock it is about. It begins when that is polled for the first
/// time.
#[cfg(feature = "tracing")]
pub(super) async fn acquiring<F: Future>(name: &LockName, acquire: F) -> F::Output {
    let span = tracing::debug_span!(target: "latchwork", "acquire", lock = name.as_str());
    tracing::Instrument::instrument(acquire, span).await
}

/// `work`, inside of the span that it is begun in, wherever it runs.
#[cfg(feature = "tracing")]
pub(super) fn here<F: Future>(work: F) -> impl Future<Output = F::Output> {
    tracing::Instrument::in_current_span(work)
}

#[cfg(not(feature = "tracing"))]
pub(super) fn here<F: Future>(work: F) -> F {
    work
}

#[cfg(not(feature = "tracing"))]
pub(super) fn acquiring<F: Future>(_name: &LockName, acquire: F) -> F {
    acquire
}

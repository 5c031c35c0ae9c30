//! Awaits a future until another is ready: a time limit by any clock, or any other reason. The caller pins
//! both (`Unpin`): moved in, each would take its room twice.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, ready};

/// Awaits `future`; `None` if `other` is ready first. Polls `other` first: an output of `future` that comes
/// at the same time is returned, not lost.
pub(crate) async fn unless<F>(mut future: F, mut other: impl Future<Output = ()> + Unpin) -> Option<F::Output>
where
    F: Future + Unpin,
{
    poll_fn(|context| {
        if let Poll::Ready(output) = Pin::new(&mut future).poll(context) {
            return Poll::Ready(Some(output));
        }
        ready!(Pin::new(&mut other).poll(context));
        match Pin::new(&mut future).poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Poll::Ready(None),
        }
    })
    .await
}

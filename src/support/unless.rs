//! Awaits a future until another is ready. The caller pins both (`Unpin`): moved in, each would take room
//! twice.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, ready};

/// Awaits `future`; `None` if `other` is ready first. If both are ready, returns the output.
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

//! A future that another one may end: a time limit by any clock, or any other reason.
//!
//! Both are pinned by the caller, as `Unpin` says: moved into the future that is returned, each would have
//! room in it twice, and in one around that four times.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Poll, ready};

/// Awaits `future`, unless `other` is ready first: then `None`.
///
/// The last look is at `future`: what came together with the other is taken, and not thrown away.
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

//! A future under a time limit, by any clock.

use std::future::poll_fn;
use std::pin::pin;
use std::task::{Poll, ready};

/// Awaits `future`, unless `timer` is ready first: then `None`.
///
/// The last look is at `future`: what came together with the timer is taken, and not thrown away.
pub(crate) async fn unless<F: Future>(future: F, timer: impl Future<Output = ()>) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut timer = pin!(timer);
    poll_fn(|context| {
        if let Poll::Ready(output) = future.as_mut().poll(context) {
            return Poll::Ready(Some(output));
        }
        ready!(timer.as_mut().poll(context));
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending => Poll::Ready(None),
        }
    })
    .await
}

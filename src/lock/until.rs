//! A future under a time limit.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Instant;

use crate::runtime::Runtime;

/// Awaits `future` until `deadline`, for ever if there is none. `None` if the time ran out first; the future is polled
/// before the clock is looked at, so what is ready is taken even when it is late.
pub(super) async fn until<R: Runtime, F: Future>(
    runtime: &R,
    deadline: Option<Instant>,
    future: F,
) -> Option<F::Output> {
    let Some(deadline) = deadline else { return Some(future.await) };
    let mut future = pin!(future);
    let mut sleep = pin!(runtime.sleep_until(deadline));
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => sleep.as_mut().poll(context).map(|()| None),
    })
    .await
}

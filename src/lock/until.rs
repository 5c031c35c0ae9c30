//! A future under a time limit.

use std::time::Instant;

use crate::runtime::Runtime;
use crate::unless::unless;

/// Awaits `future` until `deadline`, for ever if there is none. `None` if the time ran out first; what is ready is taken even
/// when it is late.
pub(super) async fn until<R: Runtime, F: Future>(
    runtime: &R,
    deadline: Option<Instant>,
    future: F,
) -> Option<F::Output> {
    match deadline {
        Some(deadline) => unless(future, runtime.sleep_until(deadline)).await,
        None => Some(future.await),
    }
}

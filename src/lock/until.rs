//! A future under a time limit.

use crate::lock_entry::Moment;
use crate::runtime::Runtime;
use crate::unless::unless;

/// Awaits `future` until `deadline`, for ever if that is never. `None` if the time ran out first; what is ready is taken even
/// when it is late.
pub(super) async fn until<R: Runtime, F: Future>(
    runtime: &R,
    deadline: Moment,
    future: F,
) -> Option<F::Output> {
    match deadline.instant() {
        Some(deadline) => unless(future, runtime.sleep_until(deadline)).await,
        None => Some(future.await),
    }
}

//! A future under a time limit.

use crate::lock_entry::Moment;
use crate::unless::unless;

use super::context::Context;

/// Awaits `future` until `deadline`, for ever if that is never. `None` if the time ran out first; what is
/// ready is taken even when it is late.
pub(super) async fn until<F: Future>(context: &Context, deadline: Moment, future: F) -> Option<F::Output> {
    match deadline.instant() {
        Some(deadline) => unless(future, context.store.sleep_until(deadline)).await,
        None => Some(future.await),
    }
}

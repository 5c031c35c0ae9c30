//! Cooperation with tokio's scheduler.
//!
//! tokio polls a task until the task waits. An operation that never waits, such as the acquisition of a free
//! permit in a loop, would keep the thread from all other tasks and from the timers. So tokio gives each poll
//! of a task a budget of operations, and its own types return `Pending` once the budget is spent. With the
//! feature `tokio` the futures of this crate do so as well that may be ready at once each time: acquisitions,
//! and questions to a store in memory.
//!
//! An acquisition of permits keeps what it has got, and so its position among others, and is ready in its
//! next poll. The acquisition of a lock gives way before it begins. Each gives way once at most: an executor
//! inside of a tokio task, such as `block_on` of another crate, gets no new budget until that task returns,
//! and would wait for ever.

/// Takes the part of one operation from the budget of the tokio task that polls. False if the budget is
/// spent: then the operation wakes the task, and is pending once. Outside of a tokio task there always is a
/// part.
#[cfg(feature = "tokio")]
#[inline]
pub(crate) fn take_part() -> bool {
    use std::task::{Context, Poll, Waker};

    use tokio::task::coop::poll_proceed;

    // tokio would call the task's waker when the task has returned, so never in an executor inside of that
    // task.
    match poll_proceed(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(part) => {
            part.made_progress();
            true
        }
        Poll::Pending => false,
    }
}

/// Without tokio there is no budget.
#[cfg(all(feature = "lock", not(feature = "tokio")))]
#[inline]
pub(crate) fn take_part() -> bool {
    true
}

//! Cooperation with tokio's scheduler.
//!
//! tokio polls a task until the task waits. An operation that never waits, such as the acquisition of a free
//! permit in a loop, would starve the thread's other tasks and timers. So tokio gives each poll of a task a
//! budget of operations, and its types return `Pending` once the budget is spent. With the feature `tokio`,
//! futures of this crate that may always be ready do the same: acquisitions, and commands in memory.
//!
//! A yielding acquisition of permits keeps its permits and its position; the acquisition of a lock yields
//! before it begins. Each yields at most once: an executor inside of a tokio task, such as `block_on` of
//! another crate, gets no new budget until the task returns, and would wait for ever.

/// Charges one operation to the budget of the polling tokio task. False if the budget is spent: the operation
/// then wakes the task, and is pending once. Always true outside of a tokio task.
#[cfg(feature = "tokio")]
#[inline]
pub(crate) fn take_part() -> bool {
    use std::task::{Context, Poll, Waker};

    use tokio::task::coop::poll_proceed;

    // tokio calls the waker after the task's return: never, for an executor inside of the task.
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

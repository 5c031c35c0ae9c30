//! Cooperation with tokio's scheduler, which polls a task until the task waits.
//!
//! An operation that never waits, such as acquiring a free permit in a loop, would starve the thread's other
//! tasks. So tokio gives each poll of a task a budget of operations, and its types return `Pending` once the
//! budget is spent. With the feature `tokio`, futures of this crate that may always be ready do the same:
//! acquisitions, and commands in memory. An acquisition of permits that yields keeps its position.
//! Each future yields at most once: an executor inside of a tokio task, such as `block_on` of another crate,
//! gets no new budget until the task returns, and would wait for ever.

/// Charges one operation to the budget of the polling tokio task. False if the budget is spent: then the
/// operation wakes the task, and is pending once. Always true outside of a tokio task.
#[cfg(feature = "tokio")]
#[inline]
pub(crate) fn take_part() -> bool {
    use std::task::{Context, Poll, Waker};

    use tokio::task::coop::poll_proceed;

    // tokio calls this waker only after the task's return, which an executor inside of the task prevents.
    match poll_proceed(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(part) => {
            part.made_progress();
            true
        }
        Poll::Pending => false,
    }
}

#[cfg(all(feature = "lock", not(feature = "tokio")))]
#[inline]
pub(crate) fn take_part() -> bool {
    true
}

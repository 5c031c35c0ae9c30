//! [`Budget`]: cooperation with tokio's scheduler.
//!
//! tokio polls a task until the task waits. An operation that never waits, such as the acquisition of a free
//! permit in a loop, would keep the thread from all other tasks and from the timers. So tokio gives each poll
//! of a task a budget of operations, and its own types return `Pending` once the budget is spent. With the
//! feature `tokio` the futures of this crate do so as well that may be ready at once each time: acquisitions,
//! and questions to a store in memory.

use std::task::{Context, Poll};

/// The part of one operation in the budget of the task that polls it.
///
/// An operation gives way once at most: an executor inside of a tokio task, such as `block_on` of another
/// crate, gets no new budget until that task returns, and would wait for ever.
#[derive(Default)]
pub(crate) struct Budget {
    /// This operation has taken its part, or has given way.
    #[cfg(feature = "tokio")]
    is_taken: bool,
}

impl Budget {
    /// Takes the operation's part from the budget. Pending, with the task woken, if the budget is spent.
    /// Outside of a tokio task there is no budget, and this is always ready.
    #[inline]
    pub(crate) fn poll_take(&mut self, context: &Context<'_>) -> Poll<()> {
        #[cfg(feature = "tokio")]
        if !std::mem::replace(&mut self.is_taken, true) {
            return on_tokio::take(context);
        }
        let _ = context;
        Poll::Ready(())
    }

    /// Takes the part of an operation that is an `async fn`.
    #[cfg(feature = "lock")]
    pub(crate) async fn take() {
        let mut budget = Self::default();
        std::future::poll_fn(|context| budget.poll_take(context)).await;
    }
}

#[cfg(feature = "tokio")]
mod on_tokio {
    use std::task::{Context, Poll, Waker};

    use tokio::task::coop::poll_proceed;

    #[inline]
    pub(super) fn take(context: &Context<'_>) -> Poll<()> {
        // tokio calls the waker that it is given once the task has returned, so never in an executor inside
        // of that task.
        let proceeds = poll_proceed(&mut Context::from_waker(Waker::noop()));
        if proceeds.is_pending() {
            context.waker().wake_by_ref();
        }
        proceeds.map(|part| part.made_progress())
    }
}

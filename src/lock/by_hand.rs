//! [`ByHand`]: a runtime for tests of what is left to it.

use std::future::{Pending, pending};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::runtime::Runtime;
use crate::sync::Mutex;

pub(super) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Keeps its tasks until they are polled, or dropped, by hand.
#[derive(Default)]
pub(super) struct ByHand(Mutex<Vec<Task>>);

impl ByHand {
    /// The task that was spawned last.
    pub(super) fn take(&self) -> Option<Task> {
        self.0.lock().pop()
    }
}

impl Runtime for ByHand {
    type Sleep = Pending<()>;

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn sleep_until(&self, _: Instant) -> Pending<()> {
        pending()
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.0.lock().push(Box::pin(task));
    }
}

pub(super) fn poll<F: Future + Unpin>(mut future: F) -> Poll<F::Output> {
    Pin::new(&mut future).poll(&mut Context::from_waker(Waker::noop()))
}

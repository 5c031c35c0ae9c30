//! [`TokioRuntime`]: tokio's clock, timers and tasks.

use std::time::Instant;

use tokio::runtime::Handle;

use crate::runtime::Runtime;

/// A [`Runtime`] on tokio.
#[derive(Clone, Debug)]
pub struct TokioRuntime {
    pub(super) handle: Handle,
}

impl TokioRuntime {
    /// The runtime that the caller is in.
    ///
    /// # Panics
    ///
    /// When called outside of a tokio runtime.
    pub fn current() -> Self {
        Self { handle: Handle::current() }
    }
}

impl Runtime for TokioRuntime {
    type Sleep = tokio::time::Sleep;

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn sleep_until(&self, deadline: Instant) -> tokio::time::Sleep {
        // A timer belongs to the runtime that is entered when it is made.
        let _inside = self.handle.enter();
        tokio::time::sleep_until(deadline.into())
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }
}

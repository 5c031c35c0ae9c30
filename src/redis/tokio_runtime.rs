//! [`TokioRuntime`]: tokio's clock, timers and tasks.

use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::runtime::Runtime;

/// A [`Runtime`] on tokio.
#[derive(Clone, Debug)]
pub struct TokioRuntime {
    pub(super) handle: Handle,
    /// The thread's life, if the thread is ours; ends it when the last clone is dropped.
    _thread: Option<Arc<oneshot::Sender<()>>>,
}

impl TokioRuntime {
    /// The runtime that the caller is in.
    ///
    /// # Panics
    ///
    /// When called outside of a tokio runtime.
    pub fn current() -> Self {
        Self { handle: Handle::current(), _thread: None }
    }

    /// A new runtime, on one background thread of its own, which ends with the last clone.
    ///
    /// The last clone may be dropped anywhere, in async code and on that very thread too: the thread takes the runtime down, and
    /// nobody waits for it.
    ///
    /// # Errors
    ///
    /// When the system refuses the thread, or what the runtime polls.
    pub fn background() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (life, end) = oneshot::channel::<()>();
        thread::Builder::new().name("latchwork-redis".into()).spawn(move || {
            // Nothing is ever sent: an error is the sender's being dropped.
            let _ = runtime.block_on(end);
        })?;
        Ok(Self { handle, _thread: Some(Arc::new(life)) })
    }

    /// `future`, inside of this runtime wherever it is polled: the redis crate takes its timers from the runtime that it is
    /// polled in, and outside of any would panic.
    pub(super) async fn inside<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            let _inside = self.handle.enter();
            future.as_mut().poll(context)
        })
        .await
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

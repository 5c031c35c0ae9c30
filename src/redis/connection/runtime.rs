//! [`TokioRuntime`]: tokio's clock, timers and tasks.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Instant;

use tokio::runtime::{Builder, Handle};
use tokio::sync::{Notify, oneshot};

use crate::runtime::Runtime;
use crate::sync::atomic::{AtomicBool, Ordering};

/// A [`Runtime`] on tokio.
#[derive(Clone, Debug)]
pub struct TokioRuntime {
    pub(crate) handle: Handle,
    /// The life of the thread if that is ours, and of the task that notices the runtime's end. Both end with the last clone.
    life: Arc<Life>,
}

#[derive(Debug)]
struct Life {
    ended: Arc<Ended>,
    _thread: Option<oneshot::Sender<()>>,
    _notices_end: oneshot::Sender<()>,
}

/// Whether the runtime has ended. A timer that is polled after that would panic.
#[derive(Debug)]
struct Ended {
    is_over: AtomicBool,
    tells: Notify,
}

/// A task of the runtime has it, and is dropped with the runtime.
struct TellsEnd(Arc<Ended>);

impl Drop for TellsEnd {
    fn drop(&mut self) {
        // Ordering: Release, paired with the Acquire in `has_ended`: who sees it sees the runtime's end.
        self.0.is_over.store(true, Ordering::Release);
        self.0.tells.notify_waiters();
    }
}

impl TokioRuntime {
    fn new(handle: Handle, thread: Option<oneshot::Sender<()>>) -> Self {
        let ended = Arc::new(Ended { is_over: AtomicBool::new(false), tells: Notify::new() });
        let (notices_end, last_clone) = oneshot::channel();
        let tells_end = TellsEnd(Arc::clone(&ended));
        handle.spawn(async move {
            // Nothing is ever sent: an error is the last clone's being dropped.
            let _ = last_clone.await;
            drop(tells_end);
        });
        Self { handle, life: Arc::new(Life { ended, _thread: thread, _notices_end: notices_end }) }
    }

    /// The runtime that the caller is in.
    ///
    /// # Panics
    ///
    /// When called outside of a tokio runtime.
    pub fn current() -> Self {
        Self::new(Handle::current(), None)
    }

    /// The runtime that the caller is in, if it is in one.
    pub(crate) fn try_current() -> Option<Self> {
        Handle::try_current().ok().map(|handle| Self::new(handle, None))
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
        Ok(Self::new(handle, Some(life)))
    }

    /// `future`, inside of this runtime wherever it is polled: the redis crate takes its timers from the runtime that it is
    /// polled in, and outside of any would panic.
    pub(crate) async fn inside<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|context| {
            let _inside = self.handle.enter();
            future.as_mut().poll(context)
        })
        .await
    }
}

impl Runtime for TokioRuntime {
    type Sleep = TokioSleep;

    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn sleep_until(&self, deadline: Instant) -> TokioSleep {
        let ended = Arc::clone(&self.life.ended);
        // Before the look, so that an end that comes now is either seen there or told.
        let told = Box::pin({
            let ended = Arc::clone(&ended);
            async move {
                let told = ended.tells.notified();
                if !ended.has_come() {
                    told.await;
                }
            }
        });
        // A timer belongs to the runtime that is entered when it is made.
        let _inside = self.handle.enter();
        TokioSleep { sleep: Box::pin(tokio::time::sleep_until(deadline.into())), told, ended }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }

    fn has_ended(&self) -> bool {
        self.life.ended.has_come()
    }
}

impl Ended {
    fn has_come(&self) -> bool {
        // Ordering: Acquire, paired with the Release in `TellsEnd`.
        self.is_over.load(Ordering::Acquire)
    }
}

/// A timer of a [`TokioRuntime`]. Ready as well when the runtime ends.
#[must_use = "futures do nothing unless polled"]
pub struct TokioSleep {
    sleep: Pin<Box<tokio::time::Sleep>>,
    told: Pin<Box<dyn Future<Output = ()> + Send + Sync>>,
    ended: Arc<Ended>,
}

impl Future for TokioSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.told.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        // Should the runtime end between that look and this poll, tokio panics. That is the end, too.
        let sleep = &mut self.sleep;
        match catch_unwind(AssertUnwindSafe(|| sleep.as_mut().poll(context))) {
            Ok(polled) => polled,
            Err(_) if self.ended.has_come() => Poll::Ready(()),
            Err(panic) => resume_unwind(panic),
        }
    }
}

impl fmt::Debug for TokioSleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokioSleep").field("deadline", &self.sleep.deadline()).finish_non_exhaustive()
    }
}

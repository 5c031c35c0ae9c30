//! [`ThreadRuntime`]: timers and detached tasks on one thread of their own, so that the local backend needs no runtime.

use std::collections::BTreeMap;
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::{Arc, OnceLock, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use async_executor::Executor;

use crate::runtime::Runtime;
use crate::sync::Mutex;

/// A [`Runtime`] on a single background thread, which is started by the first timer or by the first task that does not
/// finish at once, and ends with the last handle.
///
/// # Examples
///
/// In a test, time stands still until it is told to pass:
///
/// ```
/// use std::time::Duration;
/// use latchwork::{LockClient, local::{Local, ThreadRuntime}};
///
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// let clock = ThreadRuntime::paused();
/// let client = LockClient::new(Local::with_runtime(clock.clone()));
/// let lock = client.get_lock("orders")?;
/// let guard = block_on(lock.lock_with_lease(Duration::from_secs(5)))?;
/// clock.advance(Duration::from_secs(5));
/// assert!(!guard.is_held(), "the lease is over");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ThreadRuntime {
    handle: Arc<Handle>,
}

/// What the user's handles hold. The thread holds only `Shared`, so that it ends when the last of these is dropped.
struct Handle {
    shared: Arc<Shared>,
    /// `None` while paused: then `advance` drives.
    thread: Option<OnceLock<Thread>>,
}

struct Shared {
    executor: Executor<'static>,
    timers: Mutex<Timers>,
}

#[derive(Default)]
struct Timers {
    /// By deadline; the number tells timers of the same instant apart.
    pending: BTreeMap<(Instant, u64), Waker>,
    next_number: u64,
    /// The stopped clock; `None` if time passes by itself.
    paused_at: Option<Instant>,
}

impl ThreadRuntime {
    /// Makes a runtime that goes by the system's monotonic clock.
    pub fn new() -> Self {
        Self::with(None, Some(OnceLock::new()))
    }

    /// Makes a runtime whose clock stands still, and whose tasks rest, but for [`advance`](Self::advance).
    pub fn paused() -> Self {
        Self::with(Some(Instant::now()), None)
    }

    fn with(paused_at: Option<Instant>, thread: Option<OnceLock<Thread>>) -> Self {
        let timers = Timers { paused_at, ..Timers::default() };
        let shared = Arc::new(Shared { executor: Executor::new(), timers: Mutex::new(timers) });
        Self { handle: Arc::new(Handle { shared, thread }) }
    }

    /// Lets `time` pass on a [`paused`](Self::paused) clock: timers fire in the order of their deadlines, and after each the
    /// tasks run until none of them can go on.
    ///
    /// # Panics
    ///
    /// If the clock is not paused.
    pub fn advance(&self, time: Duration) {
        let shared = &self.handle.shared;
        let end = shared.timers.lock().paused_at.expect("only a paused clock can be advanced") + time;
        loop {
            while shared.executor.try_tick() {}
            let Some(next) = shared.next_deadline().filter(|next| *next <= end) else { break };
            shared.set_paused(next);
            shared.fire_due();
        }
        shared.set_paused(end);
    }

    /// Wakes the thread, or starts it if this is the first need of it.
    fn kick(&self) {
        let Some(thread) = &self.handle.thread else { return };
        let thread = thread.get_or_init(|| {
            let shared = Arc::clone(&self.handle.shared);
            let owners = Arc::downgrade(&self.handle);
            let started =
                thread::Builder::new().name("latchwork-local".into()).spawn(move || drive(&shared, &owners));
            started.expect("the system refused to start a thread").thread().clone()
        });
        thread.unpark();
    }
}

/// The thread's life: fire what is due, run what can run, sleep until the next deadline.
fn drive(shared: &Shared, owners: &Weak<Handle>) {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut tasks = pin!(shared.executor.run(std::future::pending::<()>()));
    // A handle that goes away unparks us (`Handle::drop`), so this is looked at in time.
    while owners.strong_count() > 0 {
        shared.fire_due();
        let _ = tasks.as_mut().poll(&mut context);
        // A timer or task that came since then has unparked us, and `park` returns at once.
        match shared.next_deadline() {
            Some(next) => thread::park_timeout(next.saturating_duration_since(Instant::now())),
            None => thread::park(),
        }
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.as_ref().and_then(OnceLock::get) {
            thread.unpark();
        }
    }
}

impl Shared {
    fn now(&self) -> Instant {
        self.timers.lock().paused_at.unwrap_or_else(Instant::now)
    }

    fn set_paused(&self, now: Instant) {
        self.timers.lock().paused_at = Some(now);
    }

    fn next_deadline(&self) -> Option<Instant> {
        self.timers.lock().pending.keys().next().map(|(deadline, _)| *deadline)
    }

    fn fire_due(&self) {
        let now = self.now();
        loop {
            // One at a time, and woken after the mutex is free: a waker is foreign code and may set timers of its own.
            let fired = {
                let mut timers = self.timers.lock();
                match timers.pending.first_entry() {
                    Some(first) if first.key().0 <= now => first.remove(),
                    _ => return,
                }
            };
            fired.wake();
        }
    }
}

impl Runtime for ThreadRuntime {
    type Sleep = Sleep;

    #[inline]
    fn now(&self) -> Instant {
        // Only a paused clock has to be looked up.
        if self.handle.thread.is_some() { Instant::now() } else { self.handle.shared.now() }
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        let mut timers = self.handle.shared.timers.lock();
        let key = (deadline, timers.next_number);
        timers.next_number += 1;
        Sleep { runtime: self.clone(), key }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut task = Box::pin(task);
        // A panic ends its own task, and neither who spawned it nor the thread of all: the hook has told it.
        let mut task = poll_fn(move |context| {
            catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(context))).unwrap_or(Poll::Ready(()))
        });
        // Most detached work of the local backend is done by its first poll; that spares a trip to the other thread, and a
        // dropped guard has let go of its lock when `drop` returns. What is not done is polled again on the thread.
        if Pin::new(&mut task).poll(&mut Context::from_waker(Waker::noop())).is_ready() {
            return;
        }
        self.handle.shared.executor.spawn(task).detach();
        self.kick();
    }
}

/// A timer of a [`ThreadRuntime`].
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    runtime: ThreadRuntime,
    key: (Instant, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let shared = &self.runtime.handle.shared;
        let waker = context.waker().clone();
        let _old = {
            let mut timers = shared.timers.lock();
            if timers.paused_at.unwrap_or_else(Instant::now) >= self.key.0 {
                return Poll::Ready(());
            }
            timers.pending.insert(self.key, waker)
        };
        // If this is the earliest deadline now, the thread sleeps too long unless it is told.
        if shared.next_deadline() == Some(self.key.0) {
            self.runtime.kick();
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        // Bound to a name, so that the waker is dropped after the mutex is free.
        let _waker = self.runtime.handle.shared.timers.lock().pending.remove(&self.key);
    }
}

impl Default for ThreadRuntime {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ThreadRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let timers = self.handle.shared.timers.lock();
        f.debug_struct("ThreadRuntime")
            .field("timers", &timers.pending.len())
            .field("paused", &timers.paused_at.is_some())
            .finish()
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.key.0).finish_non_exhaustive()
    }
}

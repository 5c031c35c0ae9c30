//! [`ThreadRuntime`]: timers and detached tasks on threads of the local backend.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::support::foreign;
use crate::support::runtime::Runtime;
use crate::support::sync::atomic::Ordering;

use super::threads::{Job, Shared};

/// A [`Runtime`] on two threads of its own: one fires timers, the other polls tasks. Each thread starts with
/// its first work (for tasks, the first that does not finish at once), and ends with the last handle. In a
/// forked child the runtime [has ended](Runtime::has_ended): make another.
///
/// # Wakers and tasks that block or panic
///
/// A waker or task must not block: until it returns, no other timer or task of its thread runs, so no wait
/// times out, no lease is renewed and none ends. Block on another thread, or in tokio's `spawn_blocking`. A
/// panic ends only the call or the task, and is [reported](crate::on_foreign_panic). (On a
/// [`paused`](Self::paused) clock, wakers and tasks run inside of [`advance`](Self::advance).)
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use latchwork::{LockClient, local::{Local, ThreadRuntime}};
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

/// Handles of users. The threads hold only `Shared`, so they end after the last handle.
struct Handle {
    shared: Arc<Shared>,
}

impl ThreadRuntime {
    /// Makes a runtime on the system's monotonic clock.
    pub fn new() -> Self {
        Self::with(None)
    }

    /// Makes a runtime whose clock stands still and whose tasks rest, except in [`advance`](Self::advance).
    pub fn paused() -> Self {
        Self::with(Some(Instant::now()))
    }

    fn with(paused_at: Option<Instant>) -> Self {
        let shared = Shared::new(paused_at);
        Self { handle: Arc::new(Handle { shared: Arc::new(shared) }) }
    }

    /// Advances a [`paused`](Self::paused) clock: fires timers by deadline, and runs tasks after each.
    ///
    /// # Panics
    ///
    /// If the clock is not paused.
    pub fn advance(&self, time: Duration) {
        let shared = &self.handle.shared;
        let end = shared.state.lock().paused_at.expect("only a paused clock can be advanced") + time;
        loop {
            while shared.poll_task() {}
            let next = shared.next_deadline().filter(|next| *next <= end);
            {
                // Never back: a waker or another thread may have advanced the clock further.
                let paused_at = &mut shared.state.lock().paused_at;
                *paused_at = (*paused_at).max(next.or(Some(end)));
            }
            let Some(next) = next else { return };
            while shared.fire_timer(next) {}
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // In a forked child the mutex may stay locked for ever.
        if self.shared.origin.is_same_process() {
            self.shared.end();
        }
    }
}

impl Runtime for ThreadRuntime {
    type Sleep = Sleep;

    #[inline]
    fn now(&self) -> Instant {
        let paused_at =
            if self.handle.shared.by_hand { self.handle.shared.state.lock().paused_at } else { None };
        paused_at.unwrap_or_else(Instant::now)
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        // Ordering: Relaxed, the number must only be unique.
        let number = self.handle.shared.next_timer.fetch_add(1, Ordering::Relaxed);
        Sleep { runtime: self.clone(), key: (deadline, number) }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        if self.has_ended() {
            return;
        }
        let mut task = Box::pin(task);
        // Most detached work ends in this poll: a dropped guard has freed its lock when `drop` returns.
        let polled =
            foreign::call("a detached task", || task.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        match polled {
            Some(Poll::Pending) => self.handle.shared.add(task),
            _ => _ = foreign::call("a detached task", || drop(task)),
        }
    }

    fn has_ended(&self) -> bool {
        !self.handle.shared.origin.is_same_process()
    }
}

/// A timer of a [`ThreadRuntime`].
///
/// # Examples
///
/// ```
/// use std::pin::Pin;
/// use std::task::{Context, Waker};
/// use std::time::Duration;
/// use latchwork::backend::Runtime;
/// use latchwork::local::ThreadRuntime;
/// let clock = ThreadRuntime::paused();
/// let mut sleep = clock.sleep_until(clock.now() + Duration::from_secs(60));
/// let mut context = Context::from_waker(Waker::noop());
/// assert!(Pin::new(&mut sleep).poll(&mut context).is_pending());
/// clock.advance(Duration::from_secs(60));
/// assert!(Pin::new(&mut sleep).poll(&mut context).is_ready());
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    runtime: ThreadRuntime,
    key: (Instant, u64),
}

impl Future for Sleep {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.runtime.has_ended() {
            return Poll::Ready(());
        }
        let waker = context.waker().clone();
        let shared = &self.runtime.handle.shared;
        let (_old, is_first) = {
            let mut state = shared.state.lock();
            if state.paused_at.unwrap_or_else(Instant::now) >= self.key.0 {
                return Poll::Ready(());
            }
            let old = state.timers.insert(self.key, waker);
            (old, state.timers.keys().next() == Some(&self.key))
        };
        if is_first {
            shared.kick(Job::FireTimers);
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        // In a forked child the mutex may stay locked for ever.
        if !self.runtime.has_ended() {
            // Bound to a name: the waker is dropped after the mutex is unlocked.
            let _waker = self.runtime.handle.shared.state.lock().timers.remove(&self.key);
        }
    }
}

impl Default for ThreadRuntime {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ThreadRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Locks no mutex: in a forked child one may stay locked for ever.
        f.debug_struct("ThreadRuntime").field("paused", &self.handle.shared.by_hand).finish_non_exhaustive()
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.key.0).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{self, poll_fn};
    use std::task::Wake;
    use std::thread::{self, Thread};

    use super::*;

    const SOON: Duration = Duration::from_secs(30);

    struct Unparks(Thread);

    impl Wake for Unparks {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    fn wait(runtime: &ThreadRuntime, waker: &Waker) {
        let mut sleep = runtime.sleep_until(Instant::now() + Duration::from_millis(1));
        while Pin::new(&mut sleep).poll(&mut Context::from_waker(waker)).is_pending() {
            thread::park_timeout(SOON);
        }
    }

    #[test]
    fn threads_end_with_the_last_handle() {
        let waker = Waker::from(Arc::new(Unparks(thread::current())));
        for has_task in [false, true] {
            let runtime = ThreadRuntime::new();
            wait(&runtime, &waker);
            if has_task {
                runtime.spawn(future::pending());
            }
            let shared = Arc::downgrade(&runtime.handle.shared);
            drop(runtime);
            let begun = Instant::now();
            while shared.strong_count() > 0 {
                assert!(
                    begun.elapsed() < SOON,
                    "expected the end of all threads, and {} are left",
                    shared.strong_count()
                );
                thread::yield_now();
            }
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn threads_that_wait_take_no_processor() {
        use std::collections::BTreeMap;
        use std::fs;
        use std::path::{Path, PathBuf};

        use crate::support::sync::Mutex;

        /// Collects the `schedstat` of each thread that calls the waker: its running time in nanoseconds.
        struct Tells(Arc<Mutex<BTreeMap<PathBuf, u64>>>, Thread);

        fn ran(task: &Path) -> u64 {
            let said = fs::read_to_string(task).expect("the thread is there");
            said.split(' ').next().unwrap().parse().expect("nanoseconds")
        }

        impl Wake for Tells {
            fn wake(self: Arc<Self>) {
                let task = fs::read_link("/proc/thread-self").expect("a link");
                self.0.lock().insert(PathBuf::from("/proc").join(task).join("schedstat"), 0);
                self.1.unpark();
            }
        }

        let (runtime, tasks) = (ThreadRuntime::new(), Arc::new(Mutex::default()));
        let waker = Waker::from(Arc::new(Tells(Arc::clone(&tasks), thread::current())));
        let begun = Instant::now();
        wait(&runtime, &waker);
        let (mut polls, wakes) = (0, waker.clone());
        runtime.spawn(poll_fn(move |_| {
            polls += 1;
            // `spawn` makes the first poll.
            if polls == 1 {
                return Poll::Pending;
            }
            wakes.wake_by_ref();
            Poll::Ready(())
        }));
        while tasks.lock().len() < 2 {
            assert!(begun.elapsed() < SOON, "expected a second thread beside the blocked one");
            thread::park_timeout(SOON);
        }
        let mut later = None;
        for _ in 0..2 {
            // Threads may still settle after a wake: the least of three measurements counts.
            let mut least = u64::MAX;
            for _ in 0..3 {
                tasks.lock().iter_mut().for_each(|(task, before)| *before = ran(task));
                let begun = Instant::now();
                while begun.elapsed() < Duration::from_millis(50) {
                    thread::park_timeout(Duration::from_millis(50));
                }
                let took: u64 = tasks.lock().iter().map(|(task, before)| ran(task) - before).sum();
                least = least.min(took);
            }
            assert!(
                least < 100_000,
                "expected a sleep below 100 us, and the shortest took {least} ns (with a timer: {})",
                later.is_some()
            );
            let sleep = later.insert(runtime.sleep_until(Instant::now() + SOON));
            assert!(Pin::new(sleep).poll(&mut Context::from_waker(&waker)).is_pending());
        }
    }
}

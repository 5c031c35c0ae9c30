use std::fmt;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread;
use std::time::Instant;

use tokio::runtime::{Builder, Handle, RuntimeFlavor};
use tokio::sync::{oneshot, watch};

use crate::support::foreign;
use crate::support::runtime::Runtime;
use crate::support::unless::unless;

use super::shield::shielded;
#[cfg(latchwork_simulation)]
use super::surroundings::Surroundings;

/// A [`Runtime`] on tokio.
///
/// # Examples
///
/// ```
/// use std::sync::mpsc;
/// use latchwork::backend::{Runtime, TokioRuntime};
/// let runtime = TokioRuntime::background()?; // or `current()`, inside of one
/// let (done, outcome) = mpsc::channel();
/// runtime.spawn(async move { done.send(42).unwrap() });
/// assert_eq!(outcome.recv()?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct TokioRuntime(Place);

#[derive(Clone, Debug)]
enum Place {
    Tokio(Tokio),
    #[cfg(latchwork_simulation)]
    Simulated(Arc<dyn Surroundings>),
}

#[derive(Clone, Debug)]
struct Tokio {
    handle: Handle,
    /// True if a task of the runtime can pause its clock.
    has_own_clock: bool,
    /// Ends a background runtime's thread, or the task that notices the end, with the last clone.
    life: Arc<Life>,
}

#[derive(Debug)]
struct Life {
    /// Closed by the end of the runtime, which drops the task with the sender.
    ended: Ended,
    thread: Option<oneshot::Sender<()>>,
    _notices_end: oneshot::Sender<()>,
}

type Ended = watch::Receiver<()>;

impl TokioRuntime {
    fn new(handle: Handle, thread: Option<oneshot::Sender<()>>) -> Self {
        let (tells_end, ended) = watch::channel(());
        let (notices_end, last_clone) = oneshot::channel();
        handle.spawn(async move {
            let _until_then = tells_end;
            // Nothing is sent: an error comes with the drop of the last clone.
            let _ = last_clone.await;
        });
        let life = Arc::new(Life { ended, thread, _notices_end: notices_end });
        let has_own_clock = life.thread.is_none() && handle.runtime_flavor() == RuntimeFlavor::CurrentThread;
        Self(Place::Tokio(Tokio { handle, has_own_clock, life }))
    }

    #[cfg(latchwork_simulation)]
    pub(crate) fn simulated(surroundings: Arc<dyn Surroundings>) -> Self {
        Self(Place::Simulated(surroundings))
    }

    #[cfg(latchwork_simulation)]
    pub(crate) fn surroundings(&self) -> Option<&Arc<dyn Surroundings>> {
        match &self.0 {
            Place::Tokio(_) => None,
            Place::Simulated(surroundings) => Some(surroundings),
        }
    }

    /// Returns the caller's runtime.
    ///
    /// # Panics
    ///
    /// When called outside of a tokio runtime.
    pub fn current() -> Self {
        Self::new(Handle::current(), None)
    }

    #[cfg(feature = "redis")]
    pub(crate) fn try_current() -> Option<Self> {
        Handle::try_current().ok().map(|handle| Self::new(handle, None))
    }

    /// Makes a runtime on one background thread of its own, which ends with the last clone. The last clone
    /// may be dropped anywhere, even in async code or on that thread: `drop` does not wait.
    ///
    /// # Errors
    ///
    /// If the system refuses the thread, or the runtime's I/O driver.
    pub fn background() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (life, end) = oneshot::channel::<()>();
        thread::Builder::new().name("latchwork-tokio".into()).spawn(move || {
            let _ = runtime.block_on(end);
        })?;
        Ok(Self::new(handle, Some(life)))
    }
}

#[cfg(feature = "redis")]
impl TokioRuntime {
    /// Pauses a task of this runtime. Unlike [`sleep_until`](Runtime::sleep_until), never ends early, so a
    /// loop around this call does not spin during the shutdown of the runtime.
    pub(crate) async fn sleep(&self, time: std::time::Duration) {
        match &self.0 {
            Place::Tokio(_) => tokio::time::sleep(time).await,
            #[cfg(latchwork_simulation)]
            Place::Simulated(surroundings) => surroundings.sleep_until(surroundings.now() + time).await,
        }
    }

    /// Awaits `future`; `None` after `limit`. For tasks of this runtime.
    pub(crate) async fn timeout<F: Future>(
        &self,
        limit: std::time::Duration,
        future: F,
    ) -> Option<F::Output> {
        match &self.0 {
            Place::Tokio(_) => tokio::time::timeout(limit, future).await.ok(),
            #[cfg(latchwork_simulation)]
            Place::Simulated(_) => tokio::select! {
                biased;
                output = future => Some(output),
                () = self.sleep(limit) => None,
            },
        }
    }

    /// Returns the driver that the caller's runtime lacks, if any. tokio has no function to ask, and panics.
    pub(crate) async fn lacks() -> Option<&'static str> {
        if foreign::caught(async { drop(tokio::time::sleep(std::time::Duration::ZERO)) }).await.is_err() {
            return Some("timers");
        }
        let socket = foreign::caught(tokio::net::UdpSocket::bind((std::net::Ipv4Addr::LOCALHOST, 0)));
        socket.await.is_err().then_some("I/O")
    }

    pub(crate) fn is_paused(&self) -> bool {
        let (before, begun) = (self.now(), Instant::now());
        // After a tick of the system's clock, only a paused clock shows the same time.
        while begun.elapsed().is_zero() {
            std::hint::spin_loop();
        }
        self.now() == before
    }

    /// Runs `task` to its end, even if this future is dropped. `None` on the runtime's end, or a panic.
    pub(crate) async fn spawn_for<T: Send + 'static>(
        &self,
        task: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        match &self.0 {
            Place::Tokio(tokio) => tokio.handle.spawn(task).await.ok(),
            #[cfg(latchwork_simulation)]
            Place::Simulated(surroundings) => {
                let (done, outcome) = oneshot::channel();
                surroundings.spawn(Box::pin(async move { _ = done.send(task.await) }));
                outcome.await.ok()
            }
        }
    }
}

impl Runtime for TokioRuntime {
    type Sleep = TokioSleep;

    fn now(&self) -> Instant {
        match &self.0 {
            Place::Tokio(tokio) => tokio.now(),
            #[cfg(latchwork_simulation)]
            Place::Simulated(surroundings) => surroundings.now(),
        }
    }

    fn sleep_until(&self, deadline: Instant) -> TokioSleep {
        match &self.0 {
            Place::Tokio(tokio) => TokioSleep::new(deadline, tokio.sleep_until(deadline)),
            #[cfg(latchwork_simulation)]
            Place::Simulated(surroundings) => TokioSleep::new(deadline, surroundings.sleep_until(deadline)),
        }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        match &self.0 {
            Place::Tokio(tokio) => drop(tokio.handle.spawn(task)),
            #[cfg(latchwork_simulation)]
            Place::Simulated(surroundings) => surroundings.spawn(Box::pin(task)),
        }
    }

    #[cfg(latchwork_simulation)]
    fn random(&self) -> u64 {
        match &self.0 {
            Place::Tokio(_) => getrandom::u64().expect("the system gives random numbers"),
            Place::Simulated(surroundings) => surroundings.random(),
        }
    }

    fn has_ended(&self) -> bool {
        match &self.0 {
            Place::Tokio(tokio) => has_come(&tokio.life.ended),
            #[cfg(latchwork_simulation)]
            Place::Simulated(_) => false,
        }
    }
}

/// True at the very end of a thread, without tokio's thread-locals: no runtime can be entered.
fn is_over_for_tokio() -> bool {
    Handle::try_current().is_err_and(|error| error.is_thread_local_destroyed())
}

impl Tokio {
    /// Returns this runtime's time. The caller's runtime may have another: either clock may be paused.
    fn now(&self) -> Instant {
        if !self.has_own_clock {
            return Instant::now();
        }
        let _inside = match Handle::try_current() {
            // Most callers are tasks of this runtime: entering costs more than the clock.
            Ok(here) if here.id() == self.handle.id() => None,
            Err(error) if error.is_thread_local_destroyed() => return Instant::now(),
            _ => Some(self.handle.enter()),
        };
        tokio::time::Instant::now().into_std()
    }

    fn sleep_until(&self, deadline: Instant) -> Timer {
        if is_over_for_tokio() {
            let timer = self.handle.spawn(async move { tokio::time::sleep_until(deadline.into()).await });
            // An error means the end of the runtime.
            return Box::pin(async { _ = timer.await });
        }
        let ended = self.life.ended.clone();
        // A timer belongs to the runtime entered at its creation.
        let sleep = {
            let _inside = self.handle.enter();
            tokio::time::sleep_until(deadline.into())
        };
        Box::pin(async move { sleep_or_end(sleep, ended).await })
    }
}

async fn sleep_or_end(sleep: impl Future<Output = ()>, mut ended: Ended) {
    let mut panicked = None;
    let timer = async { panicked = foreign::caught(sleep).await.err() };
    let _ = unless(pin!(ended.changed()), pin!(timer)).await;
    // If the runtime ends between the check and the timer's poll, tokio panics: that panic means the end.
    if let Some(payload) = panicked
        && !has_come(&ended)
    {
        std::panic::resume_unwind(payload);
    }
}

fn has_come(ended: &Ended) -> bool {
    ended.has_changed().is_err()
}

type Timer = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A timer of a [`TokioRuntime`]. Also ready when the runtime ends.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// use std::time::Duration;
/// use latchwork::backend::{Runtime, TokioRuntime};
/// let runtime = TokioRuntime::current();
/// let deadline = runtime.now() + Duration::from_millis(1);
/// runtime.sleep_until(deadline).await;
/// assert!(runtime.now() >= deadline);
/// # });
/// ```
#[must_use = "futures do nothing unless polled"]
pub struct TokioSleep {
    deadline: Instant,
    timer: Timer,
}

impl TokioSleep {
    fn new(deadline: Instant, timer: Timer) -> Self {
        Self { deadline, timer: Box::pin(shielded(timer)) }
    }
}

impl Future for TokioSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.timer.as_mut().poll(context)
    }
}

impl fmt::Debug for TokioSleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokioSleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::panic::{self, AssertUnwindSafe, catch_unwind};
    use std::sync::{Once, mpsc};
    use std::task::Waker;
    use std::time::Duration;

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const SOON: Duration = Duration::from_secs(10);
    const LONG: Duration = Duration::from_secs(3600);

    /// Makes a runtime that runs tasks only during `block_on`.
    fn runtime() -> (tokio::runtime::Runtime, TokioRuntime) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let ours = TokioRuntime::new(runtime.handle().clone(), None);
        (runtime, ours)
    }

    /// Polls `sleep`, and counts this thread's panics during the poll, caught or not.
    fn poll(sleep: &mut TokioSleep) -> (Poll<()>, usize) {
        thread_local!(static PANICS: Cell<usize> = const { Cell::new(0) });
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            let before = panic::take_hook();
            panic::set_hook(Box::new(move |panic| {
                PANICS.set(PANICS.get() + 1);
                before(panic);
            }));
        });
        let before = PANICS.get();
        let polled = Pin::new(sleep).poll(&mut Context::from_waker(Waker::noop()));
        (polled, PANICS.get() - before)
    }

    /// A panic would end a process built with `panic = "abort"`.
    #[test]
    fn clock_is_the_runtimes_own_wherever_the_caller_is() {
        let pausable = |start_paused| {
            let runtime = Builder::new_current_thread().enable_time().start_paused(start_paused).build();
            let runtime = runtime.expect("a runtime");
            let own = runtime.block_on(async { TokioRuntime::current() });
            (runtime, own)
        };
        let ((paused, stands), (running, runs)) = (pausable(true), pausable(false));
        let begun = paused.block_on(async { stands.now() });
        let system = Instant::now();
        while system.elapsed().is_zero() {
            std::hint::spin_loop();
        }
        assert_eq!([paused.block_on(async { stands.now() }), stands.now()], [begun; 2]);
        assert_eq!(running.block_on(async { stands.now() }), begun);
        assert!(paused.block_on(async { runs.now() }) > system && runs.now() > system);
    }

    #[test]
    fn timers_that_outlive_their_runtime_are_ready_and_do_not_panic() {
        let (runtime, ours) = runtime();
        let far = || ours.sleep_until(ours.now() + LONG);
        let (mut polled, unpolled) = (far(), far());
        assert_eq!(poll(&mut polled), (Poll::Pending, 0));
        drop(runtime);
        assert!(ours.has_ended());
        for mut sleep in [polled, unpolled, far()] {
            assert_eq!(poll(&mut sleep), (Poll::Ready(()), 0));
        }
    }

    #[test]
    fn tokios_panic_in_a_poll_is_passed_on_unless_the_runtime_ended() {
        for is_over in [false, true] {
            let (tells_end, ended) = watch::channel(());
            let mut tells_end = Some(tells_end);
            let sleep = async {
                tells_end.take_if(|_| is_over);
                panic!("as tokio's timers do");
            };
            let mut timer = pin!(sleep_or_end(sleep, ended));
            let mut poll = || timer.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
            assert_eq!(catch_unwind(AssertUnwindSafe(&mut poll)).ok(), is_over.then_some(true));
        }
    }

    #[test]
    fn timers_take_no_task_and_the_last_clone_leaves_none() {
        let (runtime, ours) = runtime();
        let tasks = || runtime.metrics().num_alive_tasks();
        let only = tasks();
        let sleeps: Vec<_> = (0..10).map(|_| ours.sleep_until(ours.now() + LONG)).collect();
        assert_eq!(tasks(), only);
        drop((sleeps, ours));
        runtime.block_on(tokio::task::yield_now());
        assert_eq!(tasks(), 0);
    }

    #[test]
    fn timer_that_is_set_at_the_very_end_of_a_thread_fires() {
        struct Late(TokioRuntime, mpsc::Sender<(bool, Instant, TokioSleep)>);
        impl Drop for Late {
            fn drop(&mut self) {
                let deadline = self.0.now() + SHORT;
                let _ = self.1.send((is_over_for_tokio(), deadline, self.0.sleep_until(deadline)));
            }
        }
        thread_local!(static LATE: RefCell<Option<Late>> = const { RefCell::new(None) });

        let runtime = TokioRuntime::background().unwrap();
        let (tell, told) = mpsc::channel();
        let late = Late(runtime.clone(), tell);
        let ends = thread::spawn(|| {
            // Registered before tokio's thread-locals, and so dropped after them.
            LATE.set(Some(late));
            assert!(!is_over_for_tokio());
        });
        ends.join().unwrap();
        let (is_over, deadline, sleep) = told.recv().unwrap();
        assert!(is_over);
        let (tell, fired) = mpsc::channel();
        let clock = runtime.clone();
        runtime.spawn(async move {
            sleep.await;
            tell.send(clock.now()).unwrap();
        });
        assert!(fired.recv_timeout(SOON).expect("it fires") >= deadline);
    }
}

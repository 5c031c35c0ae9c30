//! The tasks, timers and clock of a property, all parts of a single future for any executor. The time is that
//! of the backend's [`Runtime`](latchwork::backend::Runtime), which may be simulated.

use std::cell::{Cell, RefCell};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use latchwork::LockClient;

use crate::probe::Probe;

/// Time limit of a property.
const LIMIT: Duration = Duration::from_secs(180);
/// Pause between two evaluations of an awaited condition.
const AGAIN: Duration = Duration::from_millis(1);

type Sleep = Pin<Box<dyn Future<Output = ()> + Send>>;
type Task<'a, T> = Pin<Box<dyn Future<Output = Option<T>> + 'a>>;

/// The clock of a property: that of its first client's backend.
#[derive(Clone)]
struct Clock {
    client: LockClient,
    probe: for<'c> fn(&'c LockClient) -> &'c dyn Probe,
}

impl Clock {
    fn now(&self) -> Instant {
        (self.probe)(&self.client).now()
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        (self.probe)(&self.client).sleep_until(deadline)
    }
}

#[derive(Default)]
struct Scope {
    spawned: RefCell<Vec<Task<'static, std::convert::Infallible>>>,
    clock: RefCell<Option<Clock>>,
}

thread_local! {
    static CURRENT: RefCell<Option<Rc<Scope>>> = const { RefCell::new(None) };
}

fn scope() -> Rc<Scope> {
    CURRENT.with_borrow(|current| current.clone()).expect("called by a property")
}

fn clock() -> Clock {
    scope().clock.borrow().clone().expect("a property makes a client first")
}

/// Makes the clock of this client's backend the property's, unless the property has a clock.
pub(crate) fn use_clock_of(client: &LockClient, probe: for<'c> fn(&'c LockClient) -> &'c dyn Probe) {
    scope().clock.borrow_mut().get_or_insert_with(|| Clock { client: client.clone(), probe });
}

/// Runs a property and the tasks that it spawns, which end with it; returns `None` at the time limit.
pub(crate) async fn run<T>(property: impl Future<Output = T>) -> Option<T> {
    let scope = Rc::new(Scope::default());
    let mut tasks: FuturesUnordered<Task<'_, T>> = FuturesUnordered::new();
    tasks.push(Box::pin(async { Some(property.await) }));
    let mut limit = None;
    std::future::poll_fn(move |context| {
        let _entered = Entered::new(&scope);
        loop {
            for task in scope.spawned.take() {
                tasks.push(Box::pin(async { task.await.map(|never| match never {}) }));
            }
            match tasks.poll_next_unpin(context) {
                Poll::Ready(Some(Some(output))) => return Poll::Ready(Some(output)),
                Poll::Ready(_) => {}
                Poll::Pending if scope.spawned.borrow().is_empty() => break,
                Poll::Pending => {}
            }
        }
        if limit.is_none() && scope.clock.borrow().is_some() {
            limit = Some(Box::pin(sleep(LIMIT)));
        }
        match &mut limit {
            Some(limit) => limit.as_mut().poll(context).map(|()| None),
            None => Poll::Pending,
        }
    })
    .await
}

/// While this value lives, the thread polls a property of the scope.
struct Entered(Option<Rc<Scope>>);

impl Entered {
    fn new(scope: &Rc<Scope>) -> Self {
        Self(CURRENT.replace(Some(Rc::clone(scope))))
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

struct Joined<T> {
    output: Option<T>,
    ended: bool,
    aborted: bool,
    waits: Option<Waker>,
    runs: Option<Waker>,
}

/// A spawned task. If the task panics, the property panics.
pub(crate) struct JoinHandle<T>(Arc<Mutex<Joined<T>>>);

#[derive(Debug)]
pub(crate) struct JoinError;

impl JoinError {
    #[allow(clippy::unused_self, reason = "a join fails for no other reason")]
    pub(crate) fn is_cancelled(&self) -> bool {
        true
    }
}

impl<T> JoinHandle<T> {
    fn new() -> Self {
        let joined = Joined { output: None, ended: false, aborted: false, waits: None, runs: None };
        Self(Arc::new(Mutex::new(joined)))
    }

    fn same(&self) -> Self {
        Self(Arc::clone(&self.0))
    }

    fn joined(&self) -> MutexGuard<'_, Joined<T>> {
        self.0.lock().expect("nothing panics under this lock")
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.joined().ended
    }

    pub(crate) fn abort(&self) {
        let runs = {
            let mut joined = self.joined();
            joined.aborted = true;
            joined.runs.take()
        };
        runs.into_iter().for_each(Waker::wake);
    }

    fn end(&self, output: Option<T>) {
        let waits = {
            let mut joined = self.joined();
            (joined.output, joined.ended) = (output, true);
            joined.waits.take()
        };
        waits.into_iter().for_each(Waker::wake);
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut joined = self.joined();
        if joined.ended {
            return Poll::Ready(joined.output.take().ok_or(JoinError));
        }
        joined.waits = Some(context.waker().clone());
        Poll::Pending
    }
}

pub(crate) fn spawn<T: 'static>(future: impl Future<Output = T> + 'static) -> JoinHandle<T> {
    let handle = JoinHandle::new();
    let task = handle.same();
    scope().spawned.borrow_mut().push(Box::pin(async move {
        let mut future = Some(Box::pin(future));
        std::future::poll_fn(|context| {
            if task.joined().aborted {
                future = None;
                task.end(None);
                return Poll::Ready(());
            }
            let Some(running) = &mut future else { return Poll::Ready(()) };
            match running.as_mut().poll(context) {
                Poll::Ready(output) => task.end(Some(output)),
                Poll::Pending => {
                    task.joined().runs = Some(context.waker().clone());
                    return Poll::Pending;
                }
            }
            Poll::Ready(())
        })
        .await;
        None
    }));
    handle
}

/// Runs a blocking call on a thread. If the call panics, the task counts as aborted.
pub(crate) fn on_a_thread<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    struct End<T>(JoinHandle<T>, Option<T>);
    impl<T> Drop for End<T> {
        fn drop(&mut self) {
            self.0.end(self.1.take());
        }
    }
    let handle = JoinHandle::new();
    let end = End(handle.same(), None);
    thread::spawn(move || {
        let mut end = end;
        end.1 = Some(call());
    });
    handle
}

/// The time of the backend's clock.
pub(crate) fn now() -> Instant {
    clock().now()
}

pub(crate) fn since(begun: Instant) -> Duration {
    now().saturating_duration_since(begun)
}

pub(crate) async fn sleep(time: Duration) {
    let clock = clock();
    clock.sleep_until(clock.now() + time).await;
}

#[derive(Debug)]
pub(crate) struct Elapsed;

pub(crate) async fn timeout<F: Future>(time: Duration, future: F) -> Result<F::Output, Elapsed> {
    let (mut over, mut future) = (pin!(sleep(time)), pin!(future));
    std::future::poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Ok(output)),
        Poll::Pending => over.as_mut().poll(context).map(|()| Err(Elapsed)),
    })
    .await
}

pub(crate) async fn yield_now() {
    let yielded = Cell::new(false);
    std::future::poll_fn(|context| match yielded.replace(true) {
        true => Poll::Ready(()),
        false => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await;
}

/// Far longer than any step here takes, and far shorter than the leases that a lost wake-up would wait for.
pub(crate) const SOON: Duration = Duration::from_secs(10);

pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    timeout(SOON, future).await.unwrap_or_else(|_| panic!("expected within {SOON:?}: {what}"))
}

/// Polls `ask` until it returns true.
pub(crate) async fn eventually(what: &str, mut ask: impl AsyncFnMut() -> bool) {
    soon(what, async {
        while !ask().await {
            sleep(AGAIN).await;
        }
    })
    .await;
}

/// Polls `future` until it is ready. Whenever the future is pending and was not woken, calls `idle`, which
/// advances a simulated clock to the next timer, or by a millisecond.
///
/// For [`Store::block_on`](crate::Store::block_on) of a store with a simulated clock:
///
/// ```
/// # use latchwork::local::{Local, ThreadRuntime};
/// struct Simulated(ThreadRuntime, Local<ThreadRuntime>);
///
/// impl latchwork_conformance::Store for Simulated {
///     type Backend = Local<ThreadRuntime>;
///
///     async fn connect(&self) -> Local<ThreadRuntime> {
///         self.1.clone()
///     }
///
///     fn block_on<T>(&self, property: impl Future<Output = T>) -> T {
///         latchwork_conformance::drive(property, || self.0.advance(std::time::Duration::from_millis(1)))
///     }
/// }
/// ```
pub fn drive<T>(future: impl Future<Output = T>, mut idle: impl FnMut()) -> T {
    struct Woken(AtomicBool);
    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            // Ordering: Release: the poll sees all writes before the wake-up.
            self.0.store(true, Ordering::Release);
        }
    }
    let woken = Arc::new(Woken(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut future = pin!(future);
    loop {
        // Ordering: Acquire, pairs with the store of the wake-up.
        if !woken.0.swap(false, Ordering::Acquire) {
            idle();
            continue;
        }
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}

//! A runtime that ends, or breaks for a while.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use latchwork::backend::{Backend, Failure, LockName, Message, Mode, Runtime};
use latchwork::local::{Local, Sleep, ThreadRuntime};
use latchwork::{Guard, Lease, LockClient, LockError, LossReason};
use latchwork_testkit::Bell;

use crate::foreign::told::told_of;
use crate::over_local::{Back, Nothing, There, fails, goes, never, over, over_when};
use crate::polled::{poll, poll_by, ready};
use crate::runtimes::{Differently, Differs};
use crate::stage::{begun, begun_by};

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Polls each task once with the task's first waker, and drops all tasks when the runtime ends.
#[derive(Clone)]
struct Ends {
    clock: ThreadRuntime,
    tasks: Arc<Mutex<Vec<Task>>>,
    has_ended: Arc<AtomicBool>,
    waker: Waker,
}

impl Ends {
    fn new(waker: &Waker) -> Self {
        let (clock, waker) = (ThreadRuntime::paused(), waker.clone());
        Self { clock, tasks: Arc::default(), has_ended: Arc::default(), waker }
    }

    fn end(&self) {
        // Ordering: SeqCst here and below for simplicity; a test needs no less.
        self.has_ended.store(true, SeqCst);
        let tasks = std::mem::take(&mut *self.tasks.lock().unwrap());
        drop(tasks);
    }
}

/// A timer that is also ready once the runtime has ended.
struct EndsSleep {
    sleep: Sleep,
    has_ended: Arc<AtomicBool>,
}

impl Future for EndsSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.has_ended.load(SeqCst) {
            return Poll::Ready(());
        }
        Pin::new(&mut self.sleep).poll(context)
    }
}

impl Runtime for Ends {
    type Sleep = EndsSleep;

    fn now(&self) -> Instant {
        self.clock.now()
    }

    fn sleep_until(&self, deadline: Instant) -> EndsSleep {
        EndsSleep { sleep: self.clock.sleep_until(deadline), has_ended: Arc::clone(&self.has_ended) }
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut task: Task = Box::pin(task);
        if !self.has_ended() && poll_by(task.as_mut(), &self.waker).is_pending() {
            self.tasks.lock().unwrap().push(task);
        }
    }

    fn has_ended(&self) -> bool {
        self.has_ended.load(SeqCst)
    }
}

fn has_ended<T>(outcome: Poll<Result<T, LockError>>) -> bool {
    matches!(outcome, Poll::Ready(Err(LockError::RuntimeEnded)))
}

#[test]
fn end_of_the_runtime_is_told_to_each_call_and_ends_each_hold() {
    let ends = Ends::new(Waker::noop());
    let local = Local::with_runtime(ends.clone());
    let elsewhere = LockClient::new(local.clone());
    let _theirs = ready(elsewhere.get_lock("theirs").unwrap().lock()).unwrap();
    for client in [LockClient::new(local.clone()), LockClient::new(over(&local, Nothing))] {
        ends.has_ended.store(false, SeqCst);
        let lock = |name| client.get_lock(name).unwrap();
        let held = ready(lock("orders").lock()).unwrap();
        let (orders, theirs) = (lock("orders"), lock("theirs"));
        let (mut waits, mut competes) = (Box::pin(orders.lock()), Box::pin(theirs.lock()));
        for waits in [&mut waits, &mut competes] {
            assert!(poll(waits.as_mut()).is_pending());
        }
        let limit = Duration::from_secs(3600);
        let mut limited = [&orders, &theirs].map(|lock| Box::pin(lock.try_lock_for(limit, Lease::Watched)));
        limited.iter_mut().for_each(|waits| assert!(poll(waits.as_mut()).is_pending()));
        // Set the flag before dropping the tasks, whose drops would report the end.
        ends.has_ended.store(true, SeqCst);
        for mut waits in limited {
            assert!(has_ended(poll(waits.as_mut())), "expected the limited wait to end with the runtime");
        }
        ends.end();
        assert!(has_ended(poll(waits.as_mut())), "expected the queued waiter to end with the runtime");
        assert!(has_ended(poll(competes.as_mut())), "expected the queue head's wait to end with the runtime");
        assert!(
            has_ended(poll(pin!(lock("free").lock()))),
            "expected a new call to fail after the runtime's end"
        );
        assert!(matches!(ready(held.lost()), LossReason::Unreachable));
    }
}

/// The client has no task that the end of the runtime could wake.
#[test]
fn woken_queue_head_of_a_client_without_holds_learns_of_the_end() {
    let ends = Ends::new(Waker::noop());
    let local = Local::with_runtime(ends.clone());
    let _theirs = ready(LockClient::new(local.clone()).get_lock("orders").unwrap().lock()).unwrap();
    for client in [LockClient::new(local.clone()), LockClient::new(over(&local, Nothing))] {
        ends.has_ended.store(false, SeqCst);
        let lock = client.get_lock("orders").unwrap();
        let mut competes = begun(lock.lock());
        ends.end();
        let channels = local.channels(Mode::Plain, &LockName::new("orders").unwrap(), client.id());
        local.registry().transport().publish(&channels.own, Message::Unlock);
        assert!(has_ended(poll(competes.as_mut())));
    }
}

#[test]
fn waker_panic_at_the_runtimes_end_leaves_no_waiter_asleep() {
    let ends = Ends::new(Waker::noop());
    let client = LockClient::new(Local::with_runtime(ends.clone()));
    let bell = Bell::default();
    let waker = bell.waker_that_panics();
    let locks = ["orders", "prices"].map(|name| client.get_lock(name).unwrap());
    let _held = locks.each_ref().map(|lock| ready(lock.lock()).unwrap());
    let mut waits = locks.each_ref().map(|lock| Box::pin(lock.lock()));
    waits.iter_mut().for_each(|waits| assert!(poll_by(waits.as_mut(), &waker).is_pending()));
    assert!(told_of(|| ends.end()) > 0, "expected an event about the waker's panic");
    assert_eq!(bell.rung(), 2);
}

/// The waker hangs on a task spawned by the call and never polled again.
#[test]
fn waker_of_a_loss_that_panics_when_the_runtime_ends_is_told_of() {
    const LEASE: Duration = Duration::from_secs(1);
    let ends = Ends::new(Waker::noop());
    let client = LockClient::new(Local::with_runtime(ends.clone()));
    let bell = Bell::default();
    let lock = client.get_lock("orders").unwrap();
    let held = ready(lock.lock_with_lease(LEASE)).unwrap();
    let _lost = begun_by(held.lost(), &bell.waker_that_panics());
    ends.clock.advance(LEASE);
    let _next = ready(lock.lock()).unwrap();
    assert_eq!(bell.rung(), 1, "expected the newcomer to call the waker of the loss");
    assert!(told_of(|| ends.end()) > 0, "expected an event about the waker's panic");
    assert_eq!(bell.rung(), 2);
}

/// A client of a store whose connection ends with the runtime.
fn cut_off_by(ends: &Ends) -> LockClient {
    let of = ends.clone();
    let backend = over_when(&Local::with_runtime(ends.clone()), move |way, _| {
        if way == Back || !of.has_ended() {
            return goes();
        }
        of.clock.advance(Duration::from_secs(1));
        fails(Failure::Indeterminate)
    });
    LockClient::new(backend)
}

#[test]
fn command_that_fails_as_the_runtime_has_ended_says_that() {
    let ends = Ends::new(Waker::noop());
    let client = cut_off_by(&ends);
    let lock = client.get_lock("orders").unwrap();
    assert!(ready(lock.holder()).unwrap().is_none());
    ends.end();
    let failed = [ready(lock.holder()).map(drop), ready(lock.force_unlock()).map(drop)];
    assert!(failed.iter().all(|failed| matches!(failed, Err(LockError::RuntimeEnded))), "{failed:?}");
}

/// Without timers, retries would block the caller's thread until the lease ends.
#[test]
fn release_that_fails_as_the_runtime_has_ended_is_not_repeated() {
    let ends = Ends::new(Waker::noop());
    let client = cut_off_by(&ends);
    let held = ready(client.get_lock("orders").unwrap().lock()).unwrap();
    ends.end();
    drop(held);
    let metrics = client.metrics();
    assert_eq!((metrics.releases_failed, metrics.releases_pending), (1, 0));
}

#[test]
fn waker_panic_of_a_runtime_is_reported_and_reaches_no_caller() {
    let bell = Bell::default();
    let client = LockClient::new(Local::with_runtime(Ends::new(&bell.waker_that_panics())));
    let _watched = ready(client.get_lock("orders").unwrap().lock()).unwrap();
    // The lease ends before the renewal is due.
    let lease = Duration::from_secs(1);
    let told = told_of(|| ready(client.get_lock("prices").unwrap().lock_with_lease(lease)).unwrap().forget());
    assert_eq!((told, bell.rung()), (1, 1));
}

/// A runtime whose timers panic while broken.
#[derive(Clone)]
struct Breaks {
    is_broken: Arc<AtomicBool>,
    /// The first call of a timer repairs the runtime.
    once: bool,
}

impl Differs for Breaks {
    fn fires(&self, deadline: Instant) -> Instant {
        let is_broken = self.is_broken.fetch_and(!self.once, SeqCst);
        assert!(!is_broken, "on purpose");
        deadline
    }
}

/// A client whose runtime may break, and its clock.
fn breakable(once: bool) -> (ThreadRuntime, Arc<AtomicBool>, LockClient) {
    let (clock, is_broken) = (ThreadRuntime::paused(), Arc::<AtomicBool>::default());
    let breaks = Breaks { is_broken: Arc::clone(&is_broken), once };
    let client = LockClient::new(Local::with_runtime(Differently(clock.clone(), breaks)));
    (clock, is_broken, client)
}

/// The watchdog ends after a few panics in a row, and all renewals with it.
#[test]
fn lock_lost_by_a_broken_runtime_is_renewed_when_reacquired() {
    let (clock, is_broken, client) = breakable(false);
    let lock = client.get_lock("orders").unwrap();
    let held = ready(lock.lock()).unwrap();
    is_broken.store(true, SeqCst);
    let told = told_of(|| clock.advance(Duration::from_secs(11)));
    assert!(told > 1, "expected events about several panics, and saw {told}");
    is_broken.store(false, SeqCst);
    clock.advance(Duration::from_secs(30));
    assert!(!Guard::is_held(&held));
    drop(held);
    let held = ready(lock.lock()).unwrap();
    clock.advance(Duration::from_secs(100));
    assert!(Guard::is_held(&held), "expected the lease renewed by a repaired runtime");
    ready(held.unlock()).unwrap();
}

/// Each timer panics once after `is_broken` is set.
#[test]
fn panics_that_do_not_come_in_a_row_end_no_renewal() {
    let (clock, is_broken, client) = breakable(true);
    let held = ready(client.get_lock("orders").unwrap().lock()).unwrap();
    for round in 0..20 {
        is_broken.store(true, SeqCst);
        clock.advance(Duration::from_secs(11));
        assert!(!is_broken.load(SeqCst), "expected a panic of the broken runtime");
        assert!(Guard::is_held(&held), "expected a renewed lease after {round} panics");
    }
}

/// An entry kept for a pending release keeps the client alive.
#[test]
fn client_whose_runtime_has_ended_beside_a_release_is_dropped() {
    let ends = Ends::new(Waker::noop());
    let kept = Arc::new(());
    let backend = over_when(&Local::with_runtime(ends.clone()), {
        let kept = Arc::clone(&kept);
        move |way, command| {
            let _kept = &kept;
            if way == There && command.releases() { never() } else { goes() }
        }
    });
    let client = LockClient::new(backend);
    drop(ready(client.get_lock("orders").unwrap().lock()).unwrap());
    assert_eq!(client.metrics().releases_pending, 1);
    ends.end();
    drop(client);
    assert_eq!(Arc::strong_count(&kept), 1, "expected no task that keeps the backend");
}

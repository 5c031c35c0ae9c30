//! Wakers that panic or block, at every place that calls wakers.

use std::pin::{Pin, pin};
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::task::{Poll, RawWaker, RawWakerVTable, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use latchwork::backend::{Backend, Inbox, Message, Mode, Registry, Runtime, SubscribeError};
use latchwork::local::{Local, ThreadRuntime};
use latchwork::{AsyncSemaphore, Guard, Lease, LeaseError, Lock, LockClient, LockOptions};
use latchwork_testkit::waker;

use super::told::told_of;
use super::waker_that_panics_when_dropped;
use crate::over_local::{Back, Command, Gate, Nothing, over};
use crate::polled::{poll, poll_by, ready};
use crate::runtimes::{Differently, Differs, Task, Untimed};
use crate::stage::{ByHand, begun, begun_by};

const WATCHDOG: Duration = Duration::from_millis(1500);
const UNPOLLED: Duration = Duration::from_millis(20);
/// Generous, for a loaded machine; the awaited steps take microseconds.
const SOON: Duration = Duration::from_secs(30);

/// A waker that counts its calls, then panics, or blocks until `let_go`.
struct Trap {
    blocks: bool,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    calls: u32,
    let_go: bool,
}

impl Trap {
    fn new(blocks: bool) -> Arc<Self> {
        Arc::new(Self { blocks, state: Mutex::default(), changed: Condvar::new() })
    }

    fn waker(self: &Arc<Self>) -> Waker {
        Waker::from(Arc::clone(self))
    }

    fn let_go(&self) {
        self.state.lock().unwrap().let_go = true;
        self.changed.notify_all();
    }

    fn await_call(&self) {
        let state = self.state.lock().unwrap();
        let (_state, late) = self.changed.wait_timeout_while(state, SOON, |state| state.calls == 0).unwrap();
        assert!(!late.timed_out(), "expected a call of the waker");
    }
}

impl Wake for Trap {
    fn wake(self: Arc<Self>) {
        {
            let mut state = self.state.lock().unwrap();
            state.calls += 1;
            self.changed.notify_all();
            while self.blocks && !state.let_go {
                state = self.changed.wait(state).unwrap();
            }
        }
        assert!(self.blocks, "on purpose");
    }
}

/// Polls each task on its own thread, as a multi-threaded runtime does for tasks that block.
#[derive(Clone)]
struct ThreadEach;

impl Differs for ThreadEach {
    fn spawns(&self, task: Task, _: &ThreadRuntime) {
        thread::spawn(|| wait(task));
    }
}

/// A client with a watched lock, and another client of the same store.
struct Stage {
    local: Local<Differently<ThreadEach>>,
    client: LockClient,
    other: LockClient,
    watched: Guard,
    trap: Arc<Trap>,
}

impl Stage {
    fn new(blocks: bool) -> Self {
        Self::over(blocks, |local, options| LockClient::with_options(local.clone(), options))
    }

    fn over(
        blocks: bool,
        client: impl FnOnce(&Local<Differently<ThreadEach>>, &LockOptions) -> Result<LockClient, LeaseError>,
    ) -> Self {
        let local = Local::with_runtime(Differently(ThreadRuntime::new(), ThreadEach));
        let options = LockOptions::default().watchdog_timeout(WATCHDOG).unpolled_limit(UNPOLLED);
        let client = client(&local, &options).unwrap();
        let other = LockClient::with_options(local.clone(), &options).unwrap();
        let watched = ready(client.get_lock("watched").unwrap().lock()).unwrap();
        Self { local, client, other, watched, trap: Trap::new(blocks) }
    }

    fn orders(&self) -> Lock {
        self.client.get_lock("orders").unwrap()
    }

    fn theirs(&self) -> Lock {
        self.other.get_lock("orders").unwrap()
    }

    /// Asserts that names, timers and the watchdog work, even while a waker blocks.
    fn assert_works(&self, place: &str, until_renewed: bool) {
        let begun = Instant::now();
        let held = ready(self.client.get_lock("held").unwrap().try_lock()).unwrap().unwrap();
        let tried =
            wait(self.other.get_lock("held").unwrap().try_lock_for(Duration::from_millis(10), WATCHDOG));
        assert!(tried.unwrap().is_none(), "{place}: expected one holder, and found two");
        drop(held);
        let late = begun.elapsed();
        assert!(late < SOON, "{place}: expected the end of a wait of 10 ms, and it took {late:?}");
        if until_renewed {
            // Sleep for longer than an unrenewed lease lasts.
            let sleep = self.local.runtime().sleep_until(Instant::now() + WATCHDOG * 3 / 2);
            wait(sleep);
            assert!(self.watched.is_held(), "{place}: expected a renewed lease");
            wait(self.watched.ensure_held()).unwrap();
        }
    }

    fn assert_free(&self, place: &str) {
        let tried = wait(self.theirs().try_lock_for(SOON, WATCHDOG)).unwrap();
        assert!(tried.is_some(), "{place}: expected the free lock, and the name is dead");
        let tried = wait(self.orders().try_lock_for(SOON, WATCHDOG));
        drop(tried.unwrap_or_else(|error| panic!("{place}: {error}")));
    }
}

/// Blocks this thread on `future`, with a time limit.
fn wait<F: Future>(future: F) -> F::Output {
    let this = thread::current();
    let waker = waker(move || this.unpark());
    let (mut future, begun) = (pin!(future), Instant::now());
    loop {
        if let Poll::Ready(output) = poll_by(future.as_mut(), &waker) {
            return output;
        }
        assert!(begun.elapsed() < SOON * 2, "expected the end of the future");
        thread::park_timeout(SOON);
    }
}

type Place = fn(&Stage, &Waker);

/// Frees the first lock, for which the second waits.
fn frees([holder, waiter]: [Lock; 2], waker: &Waker, free: impl FnOnce(Guard)) {
    let held = ready(holder.lock()).unwrap();
    let _waits = begun_by(waiter.lock(), waker);
    free(held);
}

/// Called on the caller's thread, within the caller's call.
const IN_A_CALL: &[(&str, Place)] = &[
    ("hand-off by unlock", |stage, waker| {
        frees([stage.orders(), stage.orders()], waker, |held| _ = ready(held.unlock()));
    }),
    ("hand-off by drop", |stage, waker| frees([stage.orders(), stage.orders()], waker, drop)),
    ("release that another client hears of", |stage, waker| {
        frees([stage.orders(), stage.theirs()], waker, drop);
    }),
    ("fair hand-off between clients", |stage, waker| {
        let clients = [&stage.client, &stage.other];
        frees(clients.map(|client| client.get_fair_lock("tickets").unwrap()), waker, drop);
    }),
    ("fair hand-off in a client", |stage, waker| {
        frees([(); 2].map(|()| stage.client.get_fair_lock("tickets").unwrap()), waker, drop);
    }),
    ("end of the tenure", |stage, waker| {
        let options = LockOptions::default().tenure(Duration::ZERO);
        let third = LockClient::with_options(over(&stage.local, Nothing), &options).unwrap();
        frees([(); 2].map(|()| third.get_lock("orders").unwrap()), waker, drop);
    }),
    ("queue head that leaves", |stage, waker| {
        let (_held, lock) = (ready(stage.theirs().lock()).unwrap(), stage.orders());
        let head = begun(lock.lock());
        let _waits = begun_by(lock.lock(), waker);
        drop(head);
    }),
    ("loss by force", |stage, waker| {
        let held = ready(stage.orders().lock()).unwrap();
        let _lost = begun_by(held.lost(), waker);
        let _ = ready(stage.orders().force_unlock());
    }),
    // An event of the owner ends the hold, and has other effects beside the loss.
    ("loss by the owner's name", |stage, waker| {
        let me = stage.client.owner();
        let lock = stage.orders().owned_by(&me);
        let held = ready(lock.lock()).unwrap();
        let _lost = begun_by(held.lost(), waker);
        let _ = ready(lock.unlock(&me));
    }),
    ("recalled waiter", |stage, waker| {
        let me = stage.client.owner();
        let prices = stage.client.get_read_write_lock("prices").unwrap();
        let theirs = stage.other.get_read_write_lock("prices").unwrap();
        let written = ready(theirs.write().lock()).unwrap();
        let (write, read) = (prices.write().owned_by(&me), prices.read().owned_by(&me));
        let mut writes = begun(write.lock());
        let _reads = begun_by(read.lock(), waker);
        drop(written);
        let _ = poll(writes.as_mut());
    }),
    ("shutdown that closes a waiter", |stage, waker| {
        let (_held, lock) = (ready(stage.theirs().lock()).unwrap(), stage.orders());
        let _waits = begun_by(lock.lock(), waker);
        let third = LockClient::new(stage.local.clone());
        let theirs = third.get_lock("orders").unwrap();
        let _waits = [(); 2].map(|()| begun_by(theirs.lock(), waker));
        let _ = ready(third.shutdown(Duration::ZERO));
    }),
    ("shutdown that waits for a guard", |stage, waker| {
        let third = LockClient::new(stage.local.clone());
        let held = ready(third.get_lock("orders").unwrap().lock()).unwrap();
        let _ends = begun_by(third.shutdown(SOON), waker);
        drop(held);
    }),
    ("message to a channel", |stage, waker| {
        let subscription = stage.client.registry().subscribe("orders");
        let _told = begun_by(subscription.wait(), waker);
        stage.local.registry().transport().publish("orders", Message::ReadUnlock);
    }),
];

/// Called on the runtime's timer thread.
const IN_TIMERS: &[(&str, Place)] = &[
    ("timer", |stage, waker| {
        let runtime = stage.local.runtime();
        let _sleep = begun_by(runtime.sleep_until(Instant::now() + Duration::from_millis(200)), waker);
        stage.trap.await_call();
    }),
    ("limit of a wait", |stage, waker| {
        let (_held, lock) = (ready(stage.theirs().lock()).unwrap(), stage.orders());
        let _waits = begun_by(lock.try_lock_for(Duration::from_millis(200), WATCHDOG), waker);
        stage.trap.await_call();
    }),
    ("lease that ends beside a waiter", |stage, waker| {
        let _held = ready(stage.orders().lock_with_lease(Duration::from_millis(50))).unwrap();
        let lock = stage.orders();
        let _waits = begun_by(lock.lock(), waker);
        stage.trap.await_call();
    }),
    ("lease that ends beside its watcher", |stage, waker| {
        let held = ready(stage.orders().lock_with_lease(Duration::from_millis(5))).unwrap();
        let _lost = begun_by(held.lost(), waker);
        stage.trap.await_call();
    }),
];

const IN_TASKS: &[(&str, Place)] = &[
    ("waiter that was not polled in time", |stage, waker| {
        let (held, lock) = (ready(stage.orders().lock()).unwrap(), stage.orders());
        let _rests = begun(lock.lock());
        let _waits = begun_by(lock.lock(), waker);
        drop(held);
        stage.trap.await_call();
    }),
    ("loss that a renewal finds", |stage, waker| {
        let held = ready(stage.orders().lock()).unwrap();
        let _lost = begun_by(held.lost(), waker);
        // Another client forces the lock; its call cannot report to this client.
        assert!(ready(stage.theirs().force_unlock()).unwrap());
        stage.trap.await_call();
    }),
];

#[test]
fn waker_panic_anywhere_costs_no_call_name_timer_or_renewal() {
    let places = IN_A_CALL.iter().map(|place| (place, true));
    let places: Vec<_> = places.chain(IN_TIMERS.iter().chain(IN_TASKS).map(|place| (place, false))).collect();
    // In parallel, since each waits for renewals.
    thread::scope(|scope| {
        for ((name, place), in_a_call) in places {
            scope.spawn(move || {
                let stage = Stage::new(false);
                let waker = stage.trap.waker();
                let reports = told_of(|| place(&stage, &waker));
                assert!(stage.trap.state.lock().unwrap().calls > 0, "{name}: expected a call of the waker");
                assert_eq!(
                    reports > 0,
                    in_a_call,
                    "{name}: expected reports of this thread only inside of a call, and saw {reports}"
                );
                stage.assert_free(name);
                stage.assert_works(name, true);
            });
        }
    });
}

#[test]
fn waker_that_blocks_in_a_task_delays_no_timer_and_no_renewal() {
    thread::scope(|scope| {
        for (name, place) in IN_TASKS {
            scope.spawn(move || {
                let stage = Stage::new(true);
                place(&stage, &stage.trap.waker());
                stage.assert_works(name, true);
                stage.trap.let_go();
                stage.assert_free(name);
            });
        }
    });
}

/// A lease granted to an unpolled future is given back; another client waits for the lock.
#[test]
fn waker_blocked_by_an_unpolled_grants_return_delays_no_renewal() {
    // Holds back the answers to reads.
    let answers = Gate::closed();
    let stage = Stage::over(true, |local, options| {
        let is_it =
            |way, command: Command<'_>| way == Back && matches!(command, Command::Acquire(Mode::Read));
        LockClient::with_options(answers.over(local, is_it), options)
    });
    let [prices, theirs] = [&stage.client, &stage.other].map(|client| client.get_read_write_lock("prices"));
    let (prices, theirs, me) = (prices.unwrap(), theirs.unwrap(), stage.client.owner());
    let (reads, writes) = (prices.read().owned_by(&me), prices.write().owned_by(&me));
    let held = ready(writes.lock()).unwrap();
    let _rests = begun(reads.lock());
    drop(held);
    let waits = begun_by(theirs.write().lock(), &stage.trap.waker());
    answers.open();
    stage.trap.await_call();
    stage.assert_works("given back unpolled", true);
    stage.trap.let_go();
    drop(wait(waits).unwrap());
}

/// The waker belongs to another client, whose wait ends because the shutdown finds a lease over.
#[test]
fn waker_that_panics_in_a_shutdown_is_reported_and_ends_nothing() {
    const LEASE: Duration = Duration::from_secs(1);
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(Differently(clock.clone(), Untimed));
    let [client, other] = [(); 2].map(|()| LockClient::new(local.clone()));
    let _over = ready(client.get_lock("orders").unwrap().lock_with_lease(LEASE)).unwrap();
    let (theirs, trap) = (other.get_lock("orders").unwrap(), Trap::new(false));
    let (mut ends, mut waits) = (Box::pin(client.shutdown(SOON)), Box::pin(theirs.lock()));
    assert!(poll(ends.as_mut()).is_pending());
    assert!(poll_by(waits.as_mut(), &trap.waker()).is_pending());
    clock.advance(LEASE);
    assert_eq!(told_of(|| assert_eq!(poll(ends.as_mut()), Poll::Ready(Ok(())))), 1);
    assert_eq!(trap.state.lock().unwrap().calls, 1);
    assert_eq!(ready(client.shutdown(SOON)), Ok(()));
}

#[test]
fn waker_panic_at_a_loss_does_not_fail_the_forced_unlock() {
    let client = LockClient::new(over(&Local::new(), Nothing));
    let (lock, trap) = (client.get_lock("orders").unwrap(), Trap::new(false));
    let held = ready(lock.lock()).unwrap();
    let _lost = begun_by(held.lost(), &trap.waker());
    assert_eq!(told_of(|| assert!(ready(lock.force_unlock()).unwrap())), 1);
    assert_eq!(trap.state.lock().unwrap().calls, 1);
    assert!(!held.is_held());
}

/// A newcomer that finds an expired hold becomes queue head, and waiters behind depend on the newcomer.
#[test]
fn waker_of_a_loss_that_blocks_delays_no_newcomer() {
    let client = LockClient::new(Local::with_runtime(Differently(ThreadRuntime::new(), Untimed)));
    let (lock, trap) = (client.get_lock("orders").unwrap(), Trap::new(true));
    let held = ready(lock.lock_with_lease(Duration::from_millis(5))).unwrap();
    let _lost = begun_by(held.lost(), &trap.waker());
    while held.is_held() {}
    thread::scope(|scope| {
        let newcomer = scope.spawn(|| wait(lock.lock()).map(drop));
        trap.await_call();
        let begun = Instant::now();
        while !newcomer.is_finished() && begun.elapsed() < SOON {
            thread::yield_now();
        }
        let is_delayed = !newcomer.is_finished();
        trap.let_go();
        newcomer.join().unwrap().unwrap();
        assert!(!is_delayed, "expected the newcomer to return, and another's waker blocks it");
    });
}

/// All waiters of a subscription have to learn of the outcome.
#[test]
fn waker_panic_at_a_confirmation_leaves_no_waiter_asleep() {
    type Settle = fn(&Inbox);
    let ways: [(&str, Settle); 3] = [
        ("ready", |inbox| inbox.ready()),
        ("failed", |inbox| inbox.failed(SubscribeError::new("on purpose"))),
        ("resubscribed", |inbox| inbox.resubscribed()),
    ];
    for (way, settle) in ways {
        let registry = Registry::new(ByHand::default());
        let subscription = registry.subscribe("orders");
        let inbox = registry.transport().0.lock().unwrap()[0].clone();
        let (panics, counts) = (Trap::new(false), Trap::new(true));
        counts.let_go();
        let mut waits = [(); 2].map(|()| Box::pin(subscription.subscribed()));
        assert!(poll_by(waits[0].as_mut(), &panics.waker()).is_pending());
        assert!(poll_by(waits[1].as_mut(), &counts.waker()).is_pending());
        let _sleeps = begun_by(subscription.wait(), &counts.waker());
        assert_eq!(told_of(|| settle(&inbox)), 1, "{way}: expected one report of a panic");
        let told = if way == "ready" { 1 } else { 2 };
        assert_eq!(counts.state.lock().unwrap().calls, told, "{way}");
        assert!(waits.iter_mut().all(|waits| poll(waits.as_mut()).is_ready()), "{way}");
    }
}

#[test]
fn waker_of_a_loss_may_wait_for_the_next_one() {
    let client = LockClient::local();
    let lock = client.get_lock("orders").unwrap();
    let held = Arc::new(ready(lock.lock()).unwrap());
    let mut lost = Box::pin(held.lost());
    // Waits for a loss again, on the thread that reports one.
    let again = Arc::clone(&held);
    let waker = waker(move || assert!(poll(pin!(again.lost())).is_ready()));
    assert!(poll_by(lost.as_mut(), &waker).is_pending());
    assert!(ready(lock.force_unlock()).unwrap());
    assert!(poll(lost.as_mut()).is_ready());
}

/// A store in memory calls wakers on the releasing thread; here the waker polls another lock of that client.
#[test]
fn lock_polled_by_a_waker_within_the_releasing_call_is_acquired() {
    type Locks = Pin<Box<dyn Future<Output = bool> + Send>>;
    type Make = fn(&LockClient) -> Lock;
    type Free = fn(Guard);
    let kinds: [(&str, Make); 4] = [
        ("plain", |client| client.get_lock("orders").unwrap()),
        ("fair", |client| client.get_fair_lock("orders").unwrap()),
        ("read", |client| client.get_read_write_lock("orders").unwrap().read().clone()),
        ("write", |client| client.get_read_write_lock("orders").unwrap().write().clone()),
    ];
    let ways: [(&str, Free); 3] = [
        ("dropped", drop),
        ("released", |held| wait(held.unlock()).unwrap()),
        ("released, given up", |held| _ = poll(pin!(held.unlock()))),
    ];
    for (kind, make) in kinds {
        for (way, free) in ways {
            let local = Local::new();
            let [client, other] = [(); 2].map(|()| LockClient::new(local.clone()));
            // Writers exclude readers, so in each kind one lock waits for the other.
            let theirs = if kind == "read" { kinds[3].1(&other) } else { make(&other) };
            let (lock, counts) = (make(&client), Trap::new(true));
            counts.let_go();
            let held = ready(lock.lock()).unwrap();
            let locks: Locks = Box::pin(async move { lock.lock().await.is_ok() });
            let locks = Arc::new(Mutex::new(Some(locks)));
            let polls = waker({
                let (locks, counts) = (Arc::clone(&locks), counts.waker());
                move || _ = locks.lock().unwrap().take_if(|it| poll_by(it.as_mut(), &counts).is_ready())
            });
            let waits = begun_by(theirs.lock(), &polls);
            free(held);
            drop(waits);
            if let Some(locks) = locks.lock().unwrap().take() {
                counts.await_call();
                assert!(wait(locks), "{kind}, {way}");
            }
        }
    }
}

#[test]
fn waker_that_panics_when_dropped_prevents_no_other_wake_up() {
    for named in [false, true] {
        let local = Local::new();
        let [client, other] = [(); 2].map(|()| LockClient::new(local.clone()));
        let lock_of = |client: &LockClient| {
            if named { client.get_fair_lock("orders") } else { client.get_lock("orders") }.unwrap()
        };
        let (lock, held) = (lock_of(&client), ready(lock_of(&other).lock()).unwrap());
        let mut head = Box::pin(lock.lock());
        let panics = waker_that_panics_when_dropped();
        assert!(poll_by(head.as_mut(), &panics).is_pending());
        let counts = Trap::new(true);
        counts.let_go();
        let waits = begun_by(lock.lock(), &counts.waker());
        // The queue head has the last clone.
        drop(panics);
        assert_eq!(told_of(|| drop(head)), 1, "expected the last drop of the waker in the queue head's drop");
        assert_eq!(counts.state.lock().unwrap().calls, 1, "expected the wake-up of the next queue head");
        drop(held);
        drop(wait(waits).unwrap());
    }
}

/// A timed wait has a clone of the waker in its timer; a re-entry asks for a longer lease.
#[test]
fn waker_that_panics_when_dropped_takes_no_result_along() {
    let client =
        LockClient::with_options(Local::new(), &LockOptions::default().tenure(Duration::ZERO)).unwrap();
    let lock = client.get_lock("orders").unwrap();
    let held = ready(lock.lock()).unwrap();
    let mut waits = Box::pin(lock.try_lock_for(SOON, Lease::Watched));
    let panics = waker_whose_clones_panic_when_dropped();
    assert!(poll_by(waits.as_mut(), &panics).is_pending());
    drop(held);
    let guard = wait(waits).unwrap().expect("the wait has got the lock");
    drop(guard);
    assert!(client.held().is_empty());

    let lock = lock.owned_by(&client.owner());
    let outer = ready(lock.lock_with_lease(SOON)).unwrap();
    let Poll::Ready(inner) = poll_by(pin!(lock.lock()), &panics) else {
        panic!("expected no wait for another call's answer")
    };
    drop((inner.unwrap(), outer));
    assert!(client.held().is_empty());
}

/// Only clones panic: the original is never dropped.
fn waker_whose_clones_panic_when_dropped() -> std::mem::ManuallyDrop<Waker> {
    static PANICS: RawWakerVTable = RawWakerVTable::new(
        |data| RawWaker::new(data, &PANICS),
        |_| {},
        |_| {},
        |_| assert!(thread::panicking(), "on purpose"),
    );
    // SAFETY: the functions ignore their pointer.
    std::mem::ManuallyDrop::new(unsafe { Waker::new(std::ptr::null(), &PANICS) })
}

#[test]
fn waker_panic_at_a_replacement_does_not_end_the_wait() {
    let client = LockClient::local();
    let lock = client.get_lock("orders").unwrap();
    let held = ready(lock.lock()).unwrap();
    let mut waits = Box::pin(lock.lock());
    let panics = waker_that_panics_when_dropped();
    assert!(poll_by(waits.as_mut(), &panics).is_pending());
    drop(panics);
    assert_eq!(told_of(|| assert!(poll(waits.as_mut()).is_pending())), 1);
    drop(held);
    assert!(matches!(poll(waits.as_mut()), Poll::Ready(Ok(_))));
}

/// Wakers of a batch are called before a thread blocks in this crate; one may unblock the thread.
#[test]
fn waker_blocking_in_this_crate_waits_for_no_later_waker() {
    /// The first waker called waits for an effect of the second.
    #[derive(Default)]
    struct Two {
        called: Mutex<u32>,
        held: Mutex<Option<Guard>>,
    }
    struct One(Arc<Two>, Arc<AsyncSemaphore>, Option<latchwork::blocking::Lock>, mpsc::Sender<bool>);
    impl Wake for One {
        fn wake(self: Arc<Self>) {
            let Self(two, semaphore, lock, got) = &*self;
            let is_first = {
                let mut called = two.called.lock().unwrap();
                *called += 1;
                *called == 1
            };
            match lock {
                _ if !is_first => {
                    semaphore.add_permits(1);
                    drop(two.held.lock().unwrap().take());
                }
                None => got.send(semaphore.blocking_acquire_timeout(1, LATE).is_ok()).unwrap(),
                Some(lock) => got.send(lock.try_lock_for(LATE, Lease::Watched).unwrap().is_some()).unwrap(),
            }
        }
    }
    const LATE: Duration = Duration::from_secs(3);
    type Call = fn(&LockClient, [&Waker; 2]);
    let calls: [(&str, Call); 2] = [
        ("a release that readers hear of", |client, wakers| {
            let local: &Local = client.backend().unwrap();
            let held = ready(client.get_read_write_lock("prices").unwrap().write().lock()).unwrap();
            let locks = [(); 2].map(|()| {
                let client = LockClient::new(local.clone());
                client.get_read_write_lock("prices").unwrap().read().clone()
            });
            let [mut one, mut other] = [Box::pin(locks[0].lock()), Box::pin(locks[1].lock())];
            assert!(poll_by(one.as_mut(), wakers[0]).is_pending());
            assert!(poll_by(other.as_mut(), wakers[1]).is_pending());
            drop(held);
        }),
        ("a loss", |client, wakers| {
            let lock = client.get_lock("orders").unwrap();
            let held = ready(lock.lock()).unwrap();
            let [mut one, mut other] = [Box::pin(held.lost()), Box::pin(held.lost())];
            assert!(poll_by(one.as_mut(), wakers[0]).is_pending());
            assert!(poll_by(other.as_mut(), wakers[1]).is_pending());
            assert!(ready(lock.force_unlock()).unwrap());
        }),
    ];
    for (call, run) in calls {
        for waits_for_lock in [false, true] {
            let client = LockClient::local();
            let other = client.get_lock("other").unwrap();
            let two = Arc::new(Two::default());
            *two.held.lock().unwrap() = Some(ready(other.lock()).unwrap());
            let semaphore = Arc::new(AsyncSemaphore::new(0));
            let (got, gets) = mpsc::channel();
            let wakers = [(); 2].map(|()| {
                let lock = waits_for_lock.then(|| latchwork::blocking::Lock::from_async(other.clone()));
                Waker::from(Arc::new(One(Arc::clone(&two), Arc::clone(&semaphore), lock, got.clone())))
            });
            run(&client, wakers.each_ref());
            assert_eq!(
                gets.try_recv(),
                Ok(true),
                "{call}, {waits_for_lock}: expected the first waker's call to wait for no later waker"
            );
        }
    }
}

/// The reader that finds the writer's lease over starts a read turn, which wakes other readers too.
#[test]
fn hold_that_is_granted_while_a_waker_panics_stays_granted() {
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(Differently(clock.clone(), Untimed));
    let [writes, waits, reads] = [(); 3].map(|()| LockClient::new(local.clone()));
    let [written, waiting, read] =
        [&writes, &waits, &reads].map(|client| client.get_read_write_lock("prices").unwrap());
    let held = ready(written.write().lock_with_lease(Duration::from_secs(1))).unwrap();
    let waiter = begun_by(waiting.read().lock(), &Trap::new(false).waker());
    clock.advance(Duration::from_secs(2));
    let mut got = None;
    assert_eq!(told_of(|| got = Some(ready(read.read().lock()).unwrap())), 1);
    assert_eq!(reads.held().len(), 1);
    drop((got, waiter, held));
    assert!(
        ready(written.write().try_lock()).unwrap().is_some(),
        "expected no lease without a guard at the store"
    );
}

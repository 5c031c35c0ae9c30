//! A waiter's questions to the store: timing, number, and handling of an unreachable store.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use latchwork::backend::{Backend, Channels, Failure, LockName, Message, Mode};
use latchwork::local::{Local, ThreadRuntime};
use latchwork::{Guard, Lease, Lock, LockClient, LockError};

use crate::over_local::{Back, Between, Command, Fate, Way, fails, goes, over, over_with};
use crate::polled::{poll, ready};
use crate::stage::{ByHand, begun, waits_on};

pub(crate) type Waits = Pin<Box<dyn Future<Output = Result<Guard, LockError>>>>;

pub(crate) fn waits(lock: &Lock) -> Waits {
    let lock = lock.clone();
    let mut waits: Waits = Box::pin(async move { lock.lock().await });
    assert!(poll(waits.as_mut()).is_pending());
    waits
}

/// Counts acquisitions, renewals and rollbacks; unreachable while `gone`. Each release reports two receivers.
#[derive(Clone, Default)]
pub(crate) struct Counted(Arc<Shared>);

#[derive(Default)]
struct Shared {
    asked: AtomicUsize,
    rolled_back: AtomicUsize,
    gone: AtomicBool,
    gone_for_questions: AtomicBool,
    refuses: AtomicBool,
    renewals: AtomicUsize,
}

impl Counted {
    pub(crate) fn asked(&self) -> usize {
        // Ordering: SeqCst here and below for simplicity; a test needs no less.
        self.0.asked.load(SeqCst)
    }

    pub(crate) fn renewals(&self) -> usize {
        self.0.renewals.load(SeqCst)
    }

    pub(crate) fn rolled_back(&self) -> usize {
        self.0.rolled_back.load(SeqCst)
    }

    /// Makes every failure a refusal, not an unreachable store.
    pub(crate) fn refuses(&self) {
        self.0.refuses.store(true, SeqCst);
    }

    pub(crate) fn is_gone(&self, gone: bool) {
        self.0.gone.store(gone, SeqCst);
    }
}

impl Between for Counted {
    fn fate(&self, way: Way, command: Command<'_>) -> Fate {
        if way == Back {
            return goes();
        }
        let asks = command.acquires();
        self.0.asked.fetch_add(usize::from(asks), SeqCst);
        self.0.rolled_back.fetch_add(usize::from(matches!(command, Command::RollBack(_))), SeqCst);
        self.0.renewals.fetch_add(usize::from(command.renews()), SeqCst);
        match self.0.gone.load(SeqCst) || asks && self.0.gone_for_questions.load(SeqCst) {
            true if self.0.refuses.load(SeqCst) => fails(Failure::Refused),
            true => fails(Failure::Unreachable),
            false => goes(),
        }
    }

    fn receivers(&self, _: usize) -> usize {
        2
    }
}

/// Two clients of one store; the commands of `client` are counted.
pub(crate) struct Stage {
    pub(crate) clock: ThreadRuntime,
    pub(crate) local: Local,
    pub(crate) counted: Counted,
    pub(crate) theirs: LockClient,
    pub(crate) client: LockClient,
    channels: Channels,
}

impl Stage {
    pub(crate) fn new(mode: Mode) -> Self {
        let clock = ThreadRuntime::paused();
        let (local, counted) = (Local::with_runtime(clock.clone()), Counted::default());
        let backend = over(&local, counted.clone());
        let [theirs, client] = [LockClient::new(local.clone()), LockClient::new(backend)];
        let channels = local.channels(mode, &LockName::new("orders").unwrap(), client.id());
        Self { clock, local, counted, theirs, client, channels }
    }

    pub(crate) fn lock(client: &LockClient, mode: Mode) -> Lock {
        match mode {
            Mode::Fair => client.get_fair_lock("orders"),
            _ => client.get_lock("orders"),
        }
        .unwrap()
    }

    /// Publishes a message that only makes waiters ask.
    pub(crate) fn tell(&self) {
        self.local.registry().transport().publish(&self.channels.own, Message::Unlock);
    }

    pub(crate) fn asked_by(&self, act: impl FnOnce()) -> usize {
        let before = self.counted.asked();
        act();
        self.counted.asked() - before
    }
}

#[test]
fn constantly_notified_waiter_asks_at_its_pace_and_is_granted() {
    for (mode, burst, every) in [(Mode::Plain, 200, 5), (Mode::Fair, 20, 50)] {
        let stage = Stage::new(mode);
        let held = ready(Stage::lock(&stage.theirs, mode).lock()).unwrap();
        let mut waits = waits(&Stage::lock(&stage.client, mode));
        let mut told = |times: usize| {
            stage.asked_by(|| {
                for _ in 0..times {
                    stage.tell();
                    assert!(poll(waits.as_mut()).is_pending());
                }
            })
        };
        let at_once = told(2 * burst);
        assert!(
            at_once <= burst && at_once > burst / 2,
            "{mode:?}: expected about {burst} attempts at once, and saw {at_once}"
        );
        for _ in 0..10 {
            stage.clock.advance(Duration::from_millis(every));
            let asked = told(10);
            assert_eq!(asked, 1, "{mode:?}: expected one attempt in {every} ms, and saw {asked}");
        }
        drop(held);
        if mode == Mode::Plain {
            stage.clock.advance(Duration::from_millis(every));
        }
        assert!(poll(waits.as_mut()).is_ready(), "{mode:?}: expected the grant meanwhile");
    }
}

/// A waiter waits for the confirmation until the lease's known end, but at most a second.
#[test]
fn unconfirmed_waiter_asks_at_the_leases_end_or_after_a_second() {
    for (lease, sleeps) in [(100, 101), (30_000, 1001)] {
        let stage = Stage::new(Mode::Plain);
        let backend = over_with(stage.local.clone(), stage.counted.clone(), ByHand::default());
        let client = LockClient::new(backend);
        let lease = Duration::from_millis(lease);
        let _held = ready(stage.theirs.get_lock("orders").unwrap().lock_with_lease(lease)).unwrap();
        let mut waits = waits(&client.get_lock("orders").unwrap());
        assert_eq!(stage.counted.asked(), 1);
        stage.clock.advance(Duration::from_millis(sleeps - 1));
        assert!(poll(waits.as_mut()).is_pending());
        assert_eq!(
            stage.counted.asked(),
            1,
            "{lease:?}: expected no second attempt before the lease's end or a second"
        );
        stage.clock.advance(Duration::from_millis(1));
        assert_eq!(poll(waits.as_mut()).is_ready(), lease < Duration::from_secs(1), "{lease:?}");
        assert_eq!(stage.counted.asked(), 2, "{lease:?}: expected the second attempt");
    }
}

#[test]
fn unlimited_call_fails_at_once_if_the_store_is_unreachable() {
    let stage = Stage::new(Mode::Plain);
    let lock = stage.client.get_lock("orders").unwrap();
    stage.counted.is_gone(true);
    let asked = stage.asked_by(|| {
        let error = ready(lock.lock()).unwrap_err();
        assert!(error.is_unreachable(), "{error:?}");
    });
    assert_eq!(asked, 1);
    let mut tries = begun(lock.try_lock_for(Duration::from_secs(2), Lease::Watched));
    stage.clock.advance(Duration::from_secs(1));
    assert!(poll(tries.as_mut()).is_pending());
    stage.counted.is_gone(false);
    stage.clock.advance(Duration::from_millis(501));
    assert!(
        matches!(poll(tries.as_mut()), Poll::Ready(Ok(Some(_)))),
        "expected the waiter to acquire by its next attempt"
    );
}

/// The holder belongs to this client or to another.
#[test]
fn waiter_that_saw_the_lock_held_survives_an_unreachable_store() {
    for held_here in [true, false] {
        let stage = Stage::new(Mode::Plain);
        let lock = stage.client.get_lock("orders").unwrap();
        let holder = if held_here { &stage.client } else { &stage.theirs };
        let held = ready(holder.get_lock("orders").unwrap().lock()).unwrap();
        let mut waits = waits(&lock);
        // The tenure ends, so a release returns the lock to the store.
        stage.clock.advance(Duration::from_millis(500));
        stage.counted.is_gone(true);
        drop(held);
        for _ in 0..30 {
            stage.clock.advance(Duration::from_millis(100));
            waits_on(waits.as_mut());
        }
        stage.counted.is_gone(false);
        stage.clock.advance(Duration::from_secs(1));
        assert!(
            matches!(poll(waits.as_mut()), Poll::Ready(Ok(_))),
            "expected the lock after the outage (holder in this client: {held_here})"
        );
    }
}

/// The store's last answer still counts: another client holds the lock.
#[test]
fn limit_reached_in_an_outage_reports_the_stores_last_answer() {
    let stage = Stage::new(Mode::Plain);
    let _held = ready(stage.theirs.get_lock("orders").unwrap().lock()).unwrap();
    let lock = stage.client.get_lock("orders").unwrap();
    let mut tries = begun(lock.try_lock_for(Duration::from_secs(1), Lease::Watched));
    stage.counted.is_gone(true);
    stage.tell();
    let asked = stage.asked_by(|| assert!(poll(tries.as_mut()).is_pending()));
    assert_eq!(asked, 1);
    stage.clock.advance(Duration::from_millis(600));
    assert!(poll(tries.as_mut()).is_pending());
    stage.clock.advance(Duration::from_millis(400));
    let tried = poll(tries.as_mut());
    assert!(matches!(tried, Poll::Ready(Ok(None))), "{tried:?}");
}

#[test]
fn wake_that_brought_the_lock_counts_as_useful() {
    for mode in [Mode::Plain, Mode::Fair] {
        let stage = Stage::new(mode);
        let lock = Stage::lock(&stage.client, mode);
        let held = ready(Stage::lock(&stage.theirs, mode).lock()).unwrap();
        let mut waits = waits(&lock);
        stage.tell();
        assert!(poll(waits.as_mut()).is_pending());
        drop(held);
        assert!(poll(waits.as_mut()).is_ready());
        let stats = lock.stats();
        assert_eq!((stats.wakes_useful, stats.wakes_spurious), (1, 1), "{mode:?}");
    }
}

#[test]
fn hold_count_of_an_owner_without_a_hold_asks_no_store() {
    let stage = Stage::new(Mode::Plain);
    let lock = stage.client.get_lock("orders").unwrap();
    let (me, other) = (stage.client.owner(), stage.client.owner());
    let _held = ready(lock.owned_by(&me).lock()).unwrap();
    stage.counted.is_gone(true);
    assert_eq!(ready(lock.hold_count(&other)).unwrap(), 0);
    assert!(ready(lock.hold_count(&me)).unwrap_err().is_unreachable());
}

/// A needless rollback would be retried for minutes.
#[test]
fn question_that_did_not_run_is_not_rolled_back() {
    let stage = Stage::new(Mode::Plain);
    let lock = stage.client.get_lock("orders").unwrap();
    stage.counted.0.gone_for_questions.store(true, SeqCst);
    ready(lock.lock()).unwrap_err();
    stage.counted.0.gone_for_questions.store(false, SeqCst);
    // Request a token for an owner that holds the lock without one.
    let owned = lock.owned_by(&stage.client.owner());
    let held = ready(owned.lock()).unwrap();
    stage.counted.0.gone_for_questions.store(true, SeqCst);
    let error = ready(owned.fenced().lock()).unwrap_err();
    assert!(error.is_unreachable(), "{error:?}");
    drop(held);
    assert_eq!(stage.counted.rolled_back(), 0);
    let theirs = stage.theirs.get_lock("orders").unwrap();
    assert!(ready(theirs.try_lock()).unwrap().is_some(), "expected a free lock after the release");
}

/// The release enqueues the waiter behind another client's; hearing of the grant needs the subscription.
#[test]
fn named_waiter_asks_before_its_subscription_is_confirmed() {
    let stage = Stage::new(Mode::Fair);
    let backend = over_with(stage.local.clone(), stage.counted.clone(), ByHand::default());
    let client = LockClient::new(backend);
    let lock = client.get_fair_lock("orders").unwrap();
    let held = ready(lock.lock()).unwrap();
    let they_wait = waits(&Stage::lock(&stage.theirs, Mode::Fair));
    let mut waits = waits(&lock);
    drop(held);
    let _theirs = ready(they_wait).unwrap();
    let asked = stage.asked_by(|| {
        assert!(poll(waits.as_mut()).is_pending());
        stage.clock.advance(Duration::from_millis(1001));
        assert!(poll(waits.as_mut()).is_pending());
    });
    assert!(asked > 0, "expected an attempt after a second, as no message arrives");
}

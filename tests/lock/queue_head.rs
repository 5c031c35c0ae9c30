//! A queue head's reaction to answers, errors and messages: results for the caller, and number of questions.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use latchwork::backend::{Backend, Mode};
use latchwork::local::{Local, ThreadRuntime};
use latchwork::subscription::{Inbox, SubscribeError, Transport};
use latchwork::{Guard, Lease, Lock, LockClient, LockError};
use latchwork_testkit::Bell;

use crate::over_local::over_with;
use crate::polled::{poll, poll_by, ready};
use crate::questions::{Stage, Waits, waits};
use crate::stage::begun;

const SECOND: Duration = Duration::from_secs(1);

/// Claims that messages already arrive, but delivers none, so a queue head subscribes before asking.
#[derive(Clone, Default)]
struct Arrives {
    inboxes: Arc<Mutex<Vec<Inbox>>>,
    unconfirmed: bool,
    inactive: bool,
}

impl Transport for Arrives {
    fn subscribe(&self, _: &Arc<str>, inbox: Inbox) {
        if !self.unconfirmed {
            inbox.ready();
        }
        self.inboxes.lock().unwrap().push(inbox);
    }

    fn unsubscribe(&self, _: &Arc<str>) {}

    fn is_active(&self, _: &str) -> bool {
        !self.inactive
    }
}

impl Arrives {
    /// A client of the store of `stage`, counted there.
    fn client(&self, stage: &Stage) -> LockClient {
        let backend = over_with(stage.local.clone(), stage.counted.clone(), self.clone());
        LockClient::new(backend)
    }
}

#[test]
fn queue_head_whose_messages_arrive_already_asks_once() {
    let stage = Stage::new(Mode::Plain);
    let lock = Stage::lock(&Arrives::default().client(&stage), Mode::Plain);
    let _held = ready(Stage::lock(&stage.theirs, Mode::Plain).lock()).unwrap();
    let asked = stage.asked_by(|| drop(waits(&lock)));
    assert_eq!(asked, 1);
    stage.counted.is_gone(true);
    assert!(ready(lock.lock()).unwrap_err().is_unreachable());
}

/// By asking first, the queue head would have to ask again after subscribing.
#[test]
fn queue_head_waits_a_second_for_its_subscription_before_asking() {
    let stage = Stage::new(Mode::Plain);
    let transport = Arrives { unconfirmed: true, ..Arrives::default() };
    let lock = Stage::lock(&transport.client(&stage), Mode::Plain);
    let _held = ready(Stage::lock(&stage.theirs, Mode::Plain).lock()).unwrap();
    let mut waits = waits(&lock);
    stage.clock.advance(SECOND);
    assert!(poll(waits.as_mut()).is_pending());
    assert_eq!(stage.counted.asked(), 0, "expected no attempt before the subscription");
    stage.clock.advance(Duration::from_millis(1));
    assert!(poll(waits.as_mut()).is_pending());
    assert_eq!(stage.counted.asked(), 1);
}

#[test]
fn lock_counts_as_handed_over_by_another_client_if_that_had_it() {
    for is_held in [false, true] {
        let stage = Stage::new(Mode::Plain);
        let client = Arrives::default().client(&stage);
        let lock = Stage::lock(&client, Mode::Plain);
        let held = is_held.then(|| ready(Stage::lock(&stage.theirs, Mode::Plain).lock()).unwrap());
        let mut waits = pin!(lock.lock());
        assert_eq!(poll(waits.as_mut()).is_pending(), is_held);
        drop(held);
        if is_held {
            stage.clock.advance(SECOND * 31);
            assert!(poll(waits).is_ready());
        }
        assert_eq!(client.metrics().hand_offs_remote, u64::from(is_held));
    }
}

/// Heads ask twice a second; without active messages a head awaits its subscription after the first question.
#[test]
fn limit_reached_before_the_store_is_reached_names_the_outage() {
    let stage = Stage::new(Mode::Plain);
    stage.counted.is_gone(true);
    let arrives = |unconfirmed, inactive| Arrives { unconfirmed, inactive, ..Arrives::default() };
    for (transport, limit, most) in [
        (arrives(false, false), 1500, 3),
        (arrives(false, true), 1500, 4),
        (arrives(true, false), 1500, 1),
        (arrives(true, true), 500, 1),
    ] {
        let lock = Stage::lock(&transport.client(&stage), Mode::Plain);
        let mut tries = pin!(lock.try_lock_for(Duration::from_millis(limit), Lease::Watched));
        let asked = stage.asked_by(|| {
            for _ in 0..limit / 10 {
                assert!(poll(tries.as_mut()).is_pending());
                stage.clock.advance(Duration::from_millis(10));
            }
        });
        let Poll::Ready(Err(error)) = poll(tries) else {
            panic!("expected the end of the wait at its limit")
        };
        assert!(
            matches!(error, LockError::Backend { .. }),
            "expected the backend's error as the reason, and got {error:?}"
        );
        assert!(error.is_unreachable(), "{error:?}");
        assert!((1..=most).contains(&asked), "expected {most} attempts at most, and saw {asked}");
    }
}

/// Waiting would not help: the store would refuse the next question, too.
#[test]
fn caller_with_a_limit_is_told_at_once_that_it_is_refused() {
    let stage = Stage::new(Mode::Plain);
    stage.counted.is_gone(true);
    stage.counted.refuses();
    for client in [stage.client.clone(), Arrives::default().client(&stage)] {
        let lock = Stage::lock(&client, Mode::Plain);
        let asked = stage.asked_by(|| {
            let error = ready(lock.try_lock_for(SECOND, Lease::Watched)).unwrap_err();
            assert!(error.is_refused(), "{error:?}");
        });
        assert_eq!(asked, 1);
    }
}

/// A superseded waiter still knows that the lock was held.
#[test]
fn superseded_waiter_outlasts_a_store_that_cannot_be_reached() {
    let stage = Stage::new(Mode::Plain);
    let lock = Stage::lock(&stage.client, Mode::Plain);
    let held = ready(Stage::lock(&stage.theirs, Mode::Plain).lock()).unwrap();
    let mut waits = waits(&lock);
    drop(held);
    // Woken, but not polled.
    stage.clock.advance(SECOND * 2);
    assert_eq!(stage.client.metrics().superseded, 1);
    stage.counted.is_gone(true);
    assert!(poll(waits.as_mut()).is_pending());
    stage.counted.is_gone(false);
    stage.clock.advance(SECOND);
    assert!(matches!(poll(waits.as_mut()), Poll::Ready(Ok(_))));
}

/// The waiter has seen only a queue head, never a holder.
#[test]
fn waiter_behind_a_cut_off_queue_head_learns_of_the_outage() {
    let stage = Stage::new(Mode::Plain);
    let lock = Stage::lock(&stage.client, Mode::Plain);
    stage.counted.is_gone(true);
    let head = begun(lock.try_lock_for(SECOND, Lease::Watched));
    let mut behind = waits(&lock);
    drop(head);
    let Poll::Ready(Err(error)) = poll(behind.as_mut()) else {
        panic!("expected an error, as the store is gone")
    };
    assert!(error.is_unreachable(), "{error:?}");
}

/// Each time the client finds the lock held, one of the other clients had its turn.
#[test]
fn client_lets_others_go_first_for_one_step_less_each_time() {
    let stage = Stage::new(Mode::Plain);
    let (lock, theirs) = (Stage::lock(&stage.client, Mode::Plain), Stage::lock(&stage.theirs, Mode::Plain));
    let held = ready(theirs.lock()).unwrap();
    let first = waits(&lock);
    drop(held);
    let held = ready(first).unwrap();
    drop(held);
    let mut again = waits(&lock);
    let _held = ready(theirs.lock()).unwrap();
    for steps in [2, 1, 0] {
        // The question after the pause also answers messages that arrive during the pause.
        stage.tell();
        for _ in 0..steps {
            let asked = stage.asked_by(|| assert!(poll(again.as_mut()).is_pending()));
            assert_eq!(asked, 0, "{steps} steps");
            stage.clock.advance(Duration::from_millis(1));
        }
        let asked = stage.asked_by(|| assert!(poll(again.as_mut()).is_pending()));
        assert_eq!(asked, 1, "{steps} steps");
    }
}

/// The next head's first question also answers the wake-up of the superseded head.
#[test]
fn wake_up_of_a_superseded_queue_head_costs_no_extra_question() {
    let stage = Stage::new(Mode::Plain);
    let (lock, theirs) = (Stage::lock(&stage.client, Mode::Plain), Stage::lock(&stage.theirs, Mode::Plain));
    let held = ready(theirs.lock()).unwrap();
    let (first, mut second) = (waits(&lock), waits(&lock));
    drop(held);
    let _held = ready(theirs.lock()).unwrap();
    stage.clock.advance(SECOND * 3 / 2);
    assert_eq!(stage.client.metrics().superseded, 1);
    drop(first);
    let asked = stage.asked_by(|| assert!(poll(second.as_mut()).is_pending()));
    assert_eq!(asked, 2, "expected two attempts, before and after the subscription");
}

/// The release has placed the waiter in the store's queue, and the grant arrives as a message.
#[test]
fn enqueued_waiter_asks_nothing_before_its_grant() {
    for own_lease in [false, true] {
        let stage = Stage::new(Mode::Fair);
        let (lock, theirs) = (Stage::lock(&stage.client, Mode::Fair), Stage::lock(&stage.theirs, Mode::Fair));
        let held = ready(lock.lock()).unwrap();
        let mut before = waits(&theirs);
        let mut named: Waits = match own_lease {
            true => Box::pin(async move { lock.lock_with_lease(SECOND * 20).await }),
            false => Box::pin(async move { lock.lock().await }),
        };
        assert!(poll(named.as_mut()).is_pending());
        drop(held);
        let held = ready(before.as_mut()).unwrap();
        let asked = stage.asked_by(|| {
            for _ in 0..10 {
                assert!(poll(named.as_mut()).is_pending());
                stage.clock.advance(Duration::from_millis(1));
            }
        });
        assert_eq!(asked, 0, "expected no attempt before the turn (own lease: {own_lease})");
        drop(held);
        let mut got = None;
        let asked = stage.asked_by(|| got = Some(poll(named.as_mut())));
        let Some(Poll::Ready(Ok(_))) = got else { panic!("expected the grant") };
        assert_eq!(
            asked,
            usize::from(own_lease),
            "expected an attempt for an own lease only (own lease: {own_lease})"
        );
        assert_eq!(
            stage.client.metrics().hand_offs_remote,
            1,
            "expected one hand-off to another client (own lease: {own_lease})"
        );
    }
}

/// Forwards messages of the store, and releases the guard after the first subscription.
struct Then {
    local: Local,
    then: Mutex<Option<Guard>>,
}

impl Transport for Then {
    fn subscribe(&self, channel: &Arc<str>, inbox: Inbox) {
        self.local.registry().transport().subscribe(channel, inbox);
        let held = self.then.lock().unwrap().take();
        drop(held);
    }

    fn unsubscribe(&self, channel: &Arc<str>) {
        self.local.registry().transport().unsubscribe(channel);
    }
}

/// No wake-up was needed, so the check on woken but unpolled heads does not apply.
#[test]
fn lock_that_a_message_grants_between_two_questions_is_renewed() {
    let stage = Stage::new(Mode::Fair);
    let held = ready(Stage::lock(&stage.theirs, Mode::Fair).lock()).unwrap();
    let transport = Then { local: stage.local.clone(), then: Mutex::new(Some(held)) };
    let backend = over_with(stage.local.clone(), stage.counted.clone(), transport);
    let lock = Stage::lock(&LockClient::new(backend), Mode::Fair);
    let mut held = None;
    let asked = stage.asked_by(|| held = Some(ready(lock.lock()).unwrap()));
    assert_eq!(asked, 2, "expected the second attempt to find the grant that came during the subscription");
    for _ in 0..100 {
        stage.clock.advance(SECOND);
    }
    assert!(held.is_some_and(|held| held.is_held()), "expected a renewed hold");
}

#[test]
fn queue_head_learns_of_a_failed_subscription_while_waiting() {
    let stage = Stage::new(Mode::Plain);
    let transport = Arrives::default();
    let lock = Stage::lock(&transport.client(&stage), Mode::Plain);
    let _held = ready(Stage::lock(&stage.theirs, Mode::Plain).lock()).unwrap();
    let mut waits = waits(&lock);
    let inbox = transport.inboxes.lock().unwrap()[0].clone();
    inbox.failed(SubscribeError::new(std::io::Error::other("no such right")));
    let told = poll(waits.as_mut());
    assert!(matches!(told, Poll::Ready(Err(LockError::Subscribe(_)))), "{told:?}");
}

/// Verifying costs a command; a waiter with more than a second left learns of a loss from the watchdog.
#[test]
fn lease_is_verified_at_once_for_a_waiter_that_gives_up_soon() {
    for (limit, verified) in [(SECOND / 2, 1), (SECOND * 2, 0)] {
        let stage = Stage::new(Mode::Plain);
        let lock = Stage::lock(&stage.client, Mode::Plain);
        let _held = ready(lock.lock()).unwrap();
        let _tries = begun(lock.try_lock_for(limit, Lease::Watched));
        stage.clock.advance(Duration::from_millis(1));
        assert_eq!(stage.counted.renewals(), verified, "{limit:?}");
    }
}

/// The release wakes the client that is not polled.
#[test]
fn wake_up_of_an_unpolled_client_reaches_another_client() {
    let stage = Stage::new(Mode::Plain);
    let held = ready(Stage::lock(&stage.theirs, Mode::Plain).lock()).unwrap();
    let _rests = waits(&Stage::lock(&stage.client, Mode::Plain));
    let mut waits = waits(&Stage::lock(&LockClient::new(stage.local.clone()), Mode::Plain));
    drop(held);
    assert!(poll(waits.as_mut()).is_pending(), "expected the other client to wait beside the notified one");
    stage.clock.advance(SECOND * 2);
    assert_eq!(stage.client.metrics().superseded, 1);
    assert!(
        matches!(poll(waits.as_mut()), Poll::Ready(Ok(_))),
        "expected the waiter to acquire after the supersession of the unpolled client"
    );
}

/// With more waiters of its own, the client would reacquire forever.
#[test]
fn client_at_the_end_of_its_tenure_yields_to_notified_clients() {
    let stage = Stage::new(Mode::Plain);
    let lock = Stage::lock(&stage.client, Mode::Plain);
    let held = ready(lock.lock()).unwrap();
    let mut next = waits(&lock);
    stage.clock.advance(SECOND);
    drop(held);
    for step in 0..2 {
        let asked = stage.asked_by(|| assert!(poll(next.as_mut()).is_pending()));
        assert_eq!(asked, 0, "step {step}");
        stage.clock.advance(Duration::from_millis(1));
    }
    assert!(matches!(poll(next.as_mut()), Poll::Ready(Ok(_))));
}

/// A waiter polled on each wake-up.
struct Live {
    waits: Waits,
    woken: Bell,
    has: Option<Guard>,
}

impl Live {
    fn new(lock: &Lock) -> Self {
        let lock = lock.clone();
        let woken = Bell::default();
        woken.ring();
        let mut live = Self { waits: Box::pin(async move { lock.lock().await }), woken, has: None };
        live.poll_if_woken();
        live
    }

    fn poll_if_woken(&mut self) {
        while self.has.is_none() && self.woken.take() {
            if let Poll::Ready(had) = poll_by(self.waits.as_mut(), &self.woken.waker()) {
                self.has = Some(had.unwrap());
            }
        }
    }
}

/// `select!` over `&mut lock()` leaves such waiters: polled once, then kept.
#[test]
fn unpolled_waiters_delay_a_live_one_by_two_limits_at_most() {
    const KEPT: usize = 64;
    for (mode, is_theirs) in
        [Mode::Plain, Mode::Fair].into_iter().flat_map(|mode| [(mode, false), (mode, true)])
    {
        let clock = ThreadRuntime::paused();
        let store = Local::with_runtime(clock.clone());
        let (ours, theirs) = (LockClient::new(store.clone()), LockClient::new(store));
        let lock = Stage::lock(&ours, mode);
        let held = ready(Stage::lock(if is_theirs { &theirs } else { &ours }, mode).lock()).unwrap();
        let kept = [(); KEPT].map(|()| waits(&lock));
        let mut live = [(); 2].map(|()| Live::new(&lock));
        drop(held);
        for _ in 0..30 {
            clock.advance(SECOND / 10);
            live.iter_mut().for_each(Live::poll_if_woken);
        }
        let have = live.each_ref().map(|live| live.has.is_some());
        assert_eq!(have, [true, false], "{mode:?}, {is_theirs}");
        assert_eq!(ours.metrics().superseded, KEPT as u64, "{mode:?}, {is_theirs}");
        drop(kept);
    }
}

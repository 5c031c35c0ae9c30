//! Questions to the store with a late or failed answer, mostly asked by a writer that also reads.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use latchwork::backend::{Failure, Mode, Runtime as _};
use latchwork::local::{Local, ThreadRuntime};
use latchwork::{Guard, Lease, LeaseError, Lock, LockClient, LockError, LossReason, ReadWriteLock};

use crate::meanwhile::Act;
use crate::over_local::{
    Back, Command, Fate, Gate, There, Way, at_once, fails, goes, never, over, over_when,
};
use crate::polled::{poll, ready};
use crate::stage::{Two, begun};

const SECOND: Duration = Duration::from_secs(1);
const WATCHDOG: u32 = 30;

/// Withholds answers to acquisitions and renewals, or fails acquisitions.
#[derive(Clone, Default)]
struct Answers {
    attempts: Gate,
    renewals: Gate,
    failure: Arc<Mutex<Option<Failure>>>,
    rolled_back: Arc<AtomicUsize>,
}

impl Answers {
    fn fail(&self, failure: Option<Failure>) {
        *self.failure.lock().unwrap() = failure;
    }

    fn rolled_back(&self) -> usize {
        // Ordering: SeqCst here and below for simplicity; a test needs no less.
        self.rolled_back.load(SeqCst)
    }

    fn fate(&self) -> impl Fn(Way, Command<'_>) -> Fate + Send + Sync + 'static {
        let Self { attempts, renewals, failure, rolled_back } = self.clone();
        move |way, command| {
            // An attempt of an unknown outcome has run.
            let failure = *failure.lock().unwrap();
            let failure = failure.filter(|it| (*it == Failure::Indeterminate) == (way == Back));
            match (way, command, failure) {
                (_, Command::Acquire(_), Some(failure)) => fails(failure),
                (Back, Command::Acquire(_), _) => attempts.passes(),
                (Back, Command::Renew(..), _) => renewals.passes(),
                (Back, Command::RollBack(_), _) => {
                    rolled_back.fetch_add(1, SeqCst);
                    goes()
                }
                _ => goes(),
            }
        }
    }
}

/// An owner that holds the write lock.
struct Stage {
    clock: ThreadRuntime,
    answers: Answers,
    client: LockClient,
    theirs: ReadWriteLock,
    reads: Lock,
    writes: Guard,
}

impl Stage {
    fn new() -> Self {
        let clock = ThreadRuntime::paused();
        let (local, answers) = (Local::with_runtime(clock.clone()), Answers::default());
        let client = LockClient::new(over_when(&local, answers.fate()));
        let theirs = LockClient::new(local).get_read_write_lock("prices").unwrap();
        let (prices, me) = (client.get_read_write_lock("prices").unwrap(), client.owner());
        let writes = ready(prices.write().owned_by(&me).lock()).unwrap();
        Self { clock, answers, theirs, reads: prices.read().owned_by(&me), client, writes }
    }
}

#[test]
fn wait_limit_bounds_the_answer_and_a_try_waits_for_its_answer() {
    let stage = Stage::new();
    let me = stage.client.owner();
    let lock = stage.client.get_lock("orders").unwrap().owned_by(&me);
    let _outer = ready(lock.lock_with_lease(SECOND * 3)).unwrap();
    [&stage.answers.attempts, &stage.answers.renewals].into_iter().for_each(Gate::close);
    let mut limited = pin!(stage.reads.try_lock_for(SECOND, Lease::Watched));
    let mut reads = pin!(stage.reads.try_lock());
    let mut longer = pin!(lock.try_lock_for(Duration::ZERO, Lease::For(SECOND * 9)));
    assert!(poll(limited.as_mut()).is_pending());
    assert!(
        poll(reads.as_mut()).is_pending() && poll(longer.as_mut()).is_pending(),
        "expected the try to wait for the answer, although the clock stands still"
    );
    stage.clock.advance(SECOND);
    let told = poll(limited);
    assert!(matches!(told, Poll::Ready(Err(LockError::NoAnswer { .. }))), "{told:?}");
    [&stage.answers.attempts, &stage.answers.renewals].into_iter().for_each(Gate::open);
    assert!(matches!(poll(reads), Poll::Ready(Ok(Some(_)))));
    assert!(matches!(poll(longer), Poll::Ready(Ok(Some(_)))));
}

#[test]
fn hold_that_is_forced_free_behind_a_token_is_not_ensured() {
    let stage = Stage::new();
    let prices = stage.client.get_read_write_lock("prices").unwrap();
    let fenced = prices.write().owned_by(stage.writes.owner()).fenced();
    stage.answers.attempts.close();
    let mut inner = begun(fenced.lock());
    assert!(ready(stage.theirs.write().force_unlock()).unwrap());
    stage.answers.renewals.close();
    let mut ensured = begun(stage.writes.ensure_held());
    stage.answers.attempts.open();
    assert!(poll(inner.as_mut()).is_ready(), "expected a token by the answer from before the forced unlock");
    stage.answers.renewals.open();
    let ensured = poll(ensured.as_mut());
    assert!(
        matches!(ensured, Poll::Ready(Err(LockError::Lost { reason: LossReason::Gone, .. }))),
        "{ensured:?}"
    );
}

#[test]
fn expired_own_lease_fails_and_watched_lease_is_requested_again() {
    for lease in [Lease::For(SECOND * WATCHDOG), Lease::Watched] {
        let stage = Stage::new();
        stage.answers.attempts.close();
        let mut reads = begun(stage.reads.try_lock_for(Duration::ZERO, lease));
        for _ in 0..WATCHDOG {
            stage.clock.advance(SECOND);
        }
        assert!(stage.writes.is_held());
        stage.answers.attempts.open();
        match (lease, poll(reads.as_mut())) {
            (Lease::Watched, Poll::Ready(Ok(Some(read)))) => assert!(read.is_held()),
            (Lease::For(_), Poll::Ready(Err(LockError::Lease(LeaseError::OverBeforeAnswer)))) => {}
            (lease, other) => panic!("{lease:?}: {other:?}"),
        }
    }
}

/// A call with a time limit asks again; a plain try ends with its only round trip.
#[test]
fn limited_wait_requests_an_expired_watched_lease_again() {
    for waits in [true, false] {
        let clock = ThreadRuntime::paused();
        let (local, answers) = (Local::with_runtime(clock.clone()), Gate::closed());
        let backend = answers.over(&local, |way, command| way == Back && command.acquires());
        let lock = LockClient::new(backend).get_lock("orders").unwrap();
        let wait = if waits { SECOND * WATCHDOG * 2 } else { Duration::ZERO };
        let mut tries = begun(lock.try_lock_for(wait, Lease::Watched));
        clock.advance(SECOND * WATCHDOG);
        answers.open();
        match poll(tries.as_mut()) {
            Poll::Ready(Ok(Some(held))) if waits => assert!(held.is_held()),
            Poll::Ready(Err(LockError::NoAnswer { .. })) if !waits => {}
            other => panic!("waits: {waits}: {other:?}"),
        }
    }
}

#[test]
fn shutdown_while_the_answer_is_awaited_is_told_to_be_that() {
    let stage = Stage::new();
    stage.answers.attempts.close();
    let mut reads = begun(stage.reads.try_lock_for(SECOND, Lease::For(SECOND)));
    ready(stage.client.shutdown(Duration::ZERO)).unwrap_err();
    stage.answers.attempts.open();
    let told = poll(reads.as_mut());
    assert!(matches!(told, Poll::Ready(Err(LockError::ShutDown))), "{told:?}");
}

/// A needless rollback costs a command, and minutes of retries if unanswered.
#[test]
fn question_that_was_refused_or_did_not_run_is_not_rolled_back() {
    let stage = Stage::new();
    stage.answers.fail(Some(Failure::Unreachable));
    assert!(ready(stage.reads.lock()).unwrap_err().is_unreachable());
    assert_eq!(stage.answers.rolled_back(), 0, "expected no rollback of an attempt that did not run");
    stage.answers.fail(None);
    // The writer has lost its lease and does not know yet.
    assert!(ready(stage.theirs.write().force_unlock()).unwrap());
    let theirs = ready(stage.theirs.write().lock()).unwrap();
    let mut reads = begun(stage.reads.lock());
    assert!(!stage.writes.is_held());
    drop(theirs);
    assert!(poll(reads.as_mut()).is_ready());
    assert_eq!(stage.answers.rolled_back(), 0, "expected no rollback of a refused attempt");
}

#[test]
fn indeterminate_attempt_within_a_call_is_rolled_back() {
    let rolled_back = [
        (Some(Failure::Indeterminate), 1),
        (Some(Failure::Unreachable), 0),
        (Some(Failure::Refused), 0),
        (None, 0),
    ];
    for (failure, times) in rolled_back {
        let local = Local::with_runtime(ThreadRuntime::paused());
        let answers = Answers::default();
        let backend = over(&local, at_once(answers.fate()));
        let lock = LockClient::new(backend).get_lock("orders").unwrap();
        let theirs = LockClient::new(local).get_lock("orders").unwrap();
        if failure.is_some() {
            answers.fail(failure);
            ready(lock.lock()).unwrap_err();
        } else {
            let _held = ready(theirs.lock()).unwrap();
            assert!(ready(lock.try_lock()).unwrap().is_none());
        }
        answers.fail(None);
        assert!(ready(theirs.try_lock()).unwrap().is_some(), "expected a free lock after {failure:?}");
        assert_eq!(answers.rolled_back(), times, "{failure:?}");
    }
}

/// No other process has heard of a release and would have to go first.
#[test]
fn waiter_behind_a_call_that_is_refused_asks_at_once() {
    let local = Local::with_runtime(ThreadRuntime::paused());
    // Runs before the first question is answered, within the call.
    let meanwhile = Act::default();
    let backend = over(&local, {
        let meanwhile = meanwhile.clone();
        at_once(move |way, _| {
            let _ = way == Back && meanwhile.run();
            goes()
        })
    });
    let lock = LockClient::new(backend).get_lock("orders").unwrap();
    let held = ready(LockClient::new(local).get_lock("orders").unwrap().lock()).unwrap();
    let (waits, behind) = (Arc::new(Mutex::new(None)), lock.clone());
    let comes = Arc::clone(&waits);
    meanwhile.set(move || {
        let waits = begun(async move { behind.lock().await });
        *comes.lock().unwrap() = Some(waits);
        drop(held);
    });
    assert!(ready(lock.try_lock()).unwrap().is_none());
    let mut waits = waits.lock().unwrap().take().expect("the waiter has come meanwhile");
    assert!(
        matches!(poll(waits.as_mut()), Poll::Ready(Ok(_))),
        "expected the waiter to acquire without a back-off"
    );
}

#[derive(Clone, Copy)]
enum Outcome {
    Answered,
    After(Duration),
    Unreachable,
    Unanswered,
}

/// Applies one outcome to each question in order; later questions are answered.
fn in_turn(outcomes: impl IntoIterator<Item = Outcome>) -> (ThreadRuntime, Lock, Lock) {
    let (clock, outcomes) =
        (ThreadRuntime::paused(), Mutex::new(outcomes.into_iter().collect::<VecDeque<_>>()));
    let local = Local::with_runtime(clock.clone());
    let backend = over_when(&local, {
        let clock = clock.clone();
        move |way, command| {
            let mut outcomes = outcomes.lock().unwrap();
            let is_now = |outcome: &Outcome| matches!(outcome, Outcome::Unreachable) == (way == There);
            let outcome = if command.acquires() {
                outcomes.front().is_some_and(is_now).then(|| outcomes.pop_front()).flatten()
            } else {
                None
            };
            match outcome {
                Some(Outcome::After(time)) => {
                    let at = clock.sleep_until(clock.now() + time);
                    Box::pin(async {
                        at.await;
                        Ok(())
                    })
                }
                Some(Outcome::Unreachable) => fails(Failure::Unreachable),
                Some(Outcome::Unanswered) => never(),
                _ => goes(),
            }
        }
    });
    let [lock, theirs] =
        [LockClient::new(backend), LockClient::new(local)].map(|client| client.get_lock("orders").unwrap());
    (clock, lock, theirs)
}

/// The error blames the late answer, not an unreachable store.
#[test]
fn limit_reached_after_a_late_answer_is_reported_as_no_answer() {
    let late = Outcome::After(SECOND * WATCHDOG);
    let (clock, lock, _) = in_turn([Outcome::Unreachable, late, Outcome::Unanswered]);
    let mut tries = pin!(lock.try_lock_for(SECOND * WATCHDOG * 2, Lease::Watched));
    for _ in 0..2 {
        assert!(poll(tries.as_mut()).is_pending());
        clock.advance(SECOND * WATCHDOG);
    }
    let told = poll(tries);
    assert!(matches!(told, Poll::Ready(Err(LockError::NoAnswer { .. }))), "{told:?}");
}

/// Once a waiter has seen the lock held, it waits for the store despite late answers.
#[test]
fn waiter_that_saw_a_holder_survives_late_answers_and_outages() {
    let late = Outcome::After(SECOND * WATCHDOG);
    let (clock, lock, theirs) = in_turn([Outcome::Answered, Outcome::Answered, late, Outcome::Unreachable]);
    let held = ready(theirs.lock()).unwrap();
    let mut waits = begun(lock.lock());
    drop(held);
    assert!(poll(waits.as_mut()).is_pending());
    clock.advance(SECOND * WATCHDOG);
    // The rollback of the late answer wakes the waiter again.
    let told = poll(waits.as_mut());
    assert!(matches!(told, Poll::Ready(Ok(_))), "{told:?}");
}

/// Keeps renewals and queries for holders from reaching the store.
fn kept_on_the_way() -> (Local, Gate, LockClient) {
    let (local, way) = (Local::with_runtime(ThreadRuntime::paused()), Gate::default());
    let asks = |way, command: Command<'_>| {
        way == There && matches!(command, Command::Renew(..) | Command::Holders(_))
    };
    let client = LockClient::new(way.over(&local, asks));
    (local, way, client)
}

/// Another reader's longer lease replaces the lease in question.
#[test]
fn reader_whose_lease_is_replaced_meanwhile_learns_of_its_loss() {
    let (local, way, client) = kept_on_the_way();
    let prices = client.get_read_write_lock("prices").unwrap();
    let theirs = LockClient::new(local).get_read_write_lock("prices").unwrap();
    for is_forced in [false, true] {
        let held = ready(prices.read().lock()).unwrap();
        way.close();
        let mut ensures = begun(held.ensure_held());
        let _longer = ready(prices.read().lock_with_lease(SECOND * 600)).unwrap();
        if is_forced {
            assert!(ready(theirs.read().force_unlock()).unwrap());
        }
        way.open();
        let Poll::Ready(ensured) = poll(ensures.as_mut()) else { panic!("expected the answer of the store") };
        assert_eq!(ensured.is_err_and(|error| error.is_lost()), is_forced);
    }
}

/// A writer has had the lock between both leases.
#[test]
fn reader_does_not_go_on_by_a_lease_that_begins_after_the_loss_of_its_own() {
    for is_answered in [true, false] {
        let unanswered = AtomicUsize::new(usize::from(!is_answered));
        let Two { client, prices, their_prices, .. } =
            Two::when(&Local::new(), move |way, command| match (way, command) {
                (There, Command::Renew(..)) if unanswered.swap(0, SeqCst) == 1 => fails(Failure::Unreachable),
                _ => goes(),
            });
        let held = ready(prices.read().lock()).unwrap();
        assert!(ready(their_prices.read().force_unlock()).unwrap());
        ready(ready(their_prices.write().lock()).unwrap().unlock()).unwrap();
        let _longer = ready(prices.read().lock_with_lease(SECOND * 600)).unwrap();
        assert_eq!((held.is_held(), client.metrics().leases_lost), (!is_answered, u64::from(is_answered)));
        assert!(ready(held.ensure_held()).is_err_and(|error| error.is_lost()));
    }
}

/// A later hold with a longer lease replaces the lease in question.
#[test]
fn inner_hold_acquires_although_its_lease_is_replaced_meanwhile() {
    let (_, way, client) = kept_on_the_way();
    let (prices, me) = (client.get_read_write_lock("prices").unwrap(), client.owner());
    let mine = prices.read().owned_by(&me);
    let _outer = ready(mine.lock()).unwrap();
    way.close();
    let mut inner = begun(mine.lock_with_lease(SECOND * 300));
    let _longer = ready(prices.read().lock_with_lease(SECOND * 600)).unwrap();
    way.open();
    let got = poll(inner.as_mut());
    assert!(matches!(got, Poll::Ready(Ok(_))), "{got:?}");
}

/// The renewed lease is newer than the refusal; believing the refusal would leave a lease without an owner.
#[test]
fn renewed_writer_keeps_its_lease_despite_a_refused_read() {
    let local = Local::with_runtime(ThreadRuntime::paused());
    let (asked_to_write, answered_to_read) = (Gate::default(), Gate::closed());
    let backend = over_when(&local, {
        let (asked_to_write, answered_to_read) = (asked_to_write.clone(), answered_to_read.clone());
        move |way, command| match (way, command) {
            (There, Command::Acquire(Mode::Write)) => asked_to_write.passes(),
            (Back, Command::Acquire(Mode::Read)) => answered_to_read.passes(),
            _ => goes(),
        }
    });
    let client = LockClient::new(backend);
    let (prices, me) = (client.get_read_write_lock("prices").unwrap(), client.owner());
    let theirs = LockClient::new(local).get_read_write_lock("prices").unwrap();
    let (reads, writes) = (prices.read().owned_by(&me), prices.write().owned_by(&me));
    let outer = ready(writes.lock()).unwrap();
    asked_to_write.close();
    let fenced = writes.clone().fenced();
    let mut inner = begun(fenced.lock());
    assert!(ready(theirs.write().force_unlock()).unwrap());
    let stranger = ready(theirs.write().lock()).unwrap();
    let mut reads = begun(reads.lock());
    ready(stranger.unlock()).unwrap();
    asked_to_write.open();
    let inner = ready(inner.as_mut()).unwrap();
    answered_to_read.open();
    let read = poll(reads.as_mut());
    assert!(matches!(read, Poll::Ready(Ok(_))), "{read:?}");
    assert!(inner.is_held() && outer.is_held());
    drop((read, inner, outer));
    assert!(ready(theirs.write().try_lock()).unwrap().is_some(), "expected no lease at the store");
}

/// By a stopped clock the refusal may be older than the new lease.
#[test]
fn refused_read_of_a_writer_is_not_repeated_at_a_stopped_clock() {
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(clock.clone());
    let client = LockClient::new(local.clone());
    let (prices, me) = (client.get_read_write_lock("prices").unwrap(), client.owner());
    let theirs = LockClient::new(local).get_read_write_lock("prices").unwrap();
    let writes = prices.write().owned_by(&me);
    let outer = ready(writes.lock()).unwrap();
    let inner = ready(writes.clone().fenced().lock()).unwrap();
    assert!(ready(theirs.write().force_unlock()).unwrap());
    let stranger = ready(theirs.write().lock()).unwrap();
    let reads = prices.read().owned_by(&me);
    let mut reads = begun(reads.lock());
    clock.advance(SECOND);
    assert!(poll(reads.as_mut()).is_pending());
    assert!(!outer.is_held() && !inner.is_held());
    drop(stranger);
    assert!(matches!(poll(reads.as_mut()), Poll::Ready(Ok(_))));
}

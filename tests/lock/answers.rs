//! Questions to the store with a late or failed answer, mostly asked by a writer that also reads.

use std::collections::VecDeque;
use std::future::{pending, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use latchwork::backend::{Failure, Mode, Runtime as _};
use latchwork::local::{Local, OtherKind, ThreadRuntime};
use latchwork::{Guard, Lease, LeaseError, Lock, LockClient, LockError, ReadWriteLock};

use crate::over_local::{Between, Command, kept_while, over};
use crate::polled::{poll, ready};

const SECOND: Duration = Duration::from_secs(1);
const WATCHDOG: u32 = 30;

/// Withholds answers to acquisitions and renewals, or fails commands after they have run.
#[derive(Clone, Default)]
struct Answers<const AT_ONCE: bool>(Arc<Shared>);

#[derive(Default)]
struct Shared {
    withheld: AtomicBool,
    fails: Mutex<Option<Failure>>,
    rolled_back: AtomicUsize,
}

impl<const AT_ONCE: bool> Answers<AT_ONCE> {
    fn withhold(&self, withheld: bool) {
        // Ordering: SeqCst here and below for simplicity; a test needs no less.
        self.0.withheld.store(withheld, SeqCst);
    }

    fn fail(&self, failure: Option<Failure>) {
        *self.0.fails.lock().unwrap() = failure;
    }

    fn rolled_back(&self) -> usize {
        self.0.rolled_back.load(SeqCst)
    }
}

impl<const AT_ONCE: bool> Between for Answers<AT_ONCE> {
    type Error = io::Error;

    const ANSWERS_AT_ONCE: bool = AT_ONCE;

    async fn before(&self, command: Command<'_>) -> Result<(), io::Error> {
        let fails = |failure| failure != Failure::Indeterminate;
        if let Command::Acquire(_) = command
            && self.0.fails.lock().unwrap().is_some_and(fails)
        {
            return Err(io::Error::other("no connection"));
        }
        Ok(())
    }

    async fn after(&self, command: Command<'_>) -> Result<(), io::Error> {
        let asks = matches!(command, Command::Acquire(_));
        if let Command::RollBack(_) = command {
            self.0.rolled_back.fetch_add(1, SeqCst);
        }
        if asks || matches!(command, Command::Renew(..)) {
            kept_while(&self.0.withheld).await;
        }
        if asks && self.0.fails.lock().unwrap().is_some() {
            return Err(io::Error::other("no answer"));
        }
        Ok(())
    }

    fn failure(&self, _: &io::Error) -> Failure {
        self.0.fails.lock().unwrap().unwrap_or(Failure::Refused)
    }
}

/// An owner that holds the write lock.
struct Stage {
    clock: ThreadRuntime,
    answers: Answers<false>,
    client: LockClient,
    theirs: ReadWriteLock,
    reads: Lock,
    writes: Guard,
}

impl Stage {
    fn new() -> Self {
        let clock = ThreadRuntime::paused();
        let (local, answers) = (Local::with_runtime(clock.clone()), Answers::default());
        let client = LockClient::new(over(&local, answers.clone()));
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
    stage.answers.withhold(true);
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
    stage.answers.withhold(false);
    assert!(matches!(poll(reads), Poll::Ready(Ok(Some(_)))));
    assert!(matches!(poll(longer), Poll::Ready(Ok(Some(_)))));
}

#[test]
fn expired_own_lease_fails_and_watched_lease_is_requested_again() {
    for lease in [Lease::For(SECOND * WATCHDOG), Lease::Watched] {
        let stage = Stage::new();
        stage.answers.withhold(true);
        let mut reads = pin!(stage.reads.try_lock_for(Duration::ZERO, lease));
        assert!(poll(reads.as_mut()).is_pending());
        // Let renewals of the write lease through.
        stage.answers.withhold(false);
        for _ in 0..WATCHDOG {
            stage.clock.advance(SECOND);
        }
        assert!(stage.writes.is_held());
        match (lease, poll(reads)) {
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
        let (local, answers) = (Local::with_runtime(clock.clone()), Answers::<false>::default());
        let lock = LockClient::new(over(&local, answers.clone())).get_lock("orders").unwrap();
        answers.withhold(true);
        let wait = if waits { SECOND * WATCHDOG * 2 } else { Duration::ZERO };
        let mut tries = pin!(lock.try_lock_for(wait, Lease::Watched));
        assert!(poll(tries.as_mut()).is_pending());
        clock.advance(SECOND * WATCHDOG);
        answers.withhold(false);
        match poll(tries) {
            Poll::Ready(Ok(Some(held))) if waits => assert!(held.is_held()),
            Poll::Ready(Err(LockError::NoAnswer { .. })) if !waits => {}
            other => panic!("waits: {waits}: {other:?}"),
        }
    }
}

#[test]
fn shutdown_while_the_answer_is_awaited_is_told_to_be_that() {
    let stage = Stage::new();
    stage.answers.withhold(true);
    let mut reads = pin!(stage.reads.try_lock_for(SECOND, Lease::For(SECOND)));
    assert!(poll(reads.as_mut()).is_pending());
    ready(stage.client.shutdown(Duration::ZERO)).unwrap_err();
    stage.answers.withhold(false);
    let told = poll(reads);
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
    let mut reads = pin!(stage.reads.lock());
    assert!(poll(reads.as_mut()).is_pending());
    assert!(!stage.writes.is_held());
    drop(theirs);
    assert!(poll(reads).is_ready());
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
        let answers = Answers::<true>::default();
        let lock = LockClient::new(over(&local, answers.clone())).get_lock("orders").unwrap();
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

type Act = Box<dyn FnOnce() + Send>;

/// Runs an action before the first question is answered, within the call.
#[derive(Clone)]
struct Meanwhile(Arc<Mutex<Option<Act>>>);

impl Between for Meanwhile {
    type Error = OtherKind;

    const ANSWERS_AT_ONCE: bool = true;

    async fn after(&self, _: Command<'_>) -> Result<(), OtherKind> {
        let meanwhile = self.0.lock().unwrap().take();
        meanwhile.into_iter().for_each(|run| run());
        Ok(())
    }
}

/// No other process has heard of a release and would have to go first.
#[test]
fn waiter_behind_a_call_that_is_refused_asks_at_once() {
    let local = Local::with_runtime(ThreadRuntime::paused());
    let meanwhile = Meanwhile(Arc::default());
    let lock = LockClient::new(over(&local, meanwhile.clone())).get_lock("orders").unwrap();
    let held = ready(LockClient::new(local).get_lock("orders").unwrap().lock()).unwrap();
    let (waits, behind) = (Arc::new(Mutex::new(None)), lock.clone());
    let comes = Arc::clone(&waits);
    *meanwhile.0.lock().unwrap() = Some(Box::new(move || {
        let mut waits = Box::pin(async move { behind.lock().await });
        assert!(poll(waits.as_mut()).is_pending());
        *comes.lock().unwrap() = Some(waits);
        drop(held);
    }));
    assert!(ready(lock.try_lock()).unwrap().is_none());
    let mut waits = waits.lock().unwrap().take().expect("the waiter has come meanwhile");
    assert!(
        matches!(poll(waits.as_mut()), Poll::Ready(Ok(_))),
        "expected the waiter to acquire without a back-off"
    );
}

#[derive(Clone, Copy)]
enum Fate {
    Answered,
    After(Duration),
    Unreachable,
    Unanswered,
}

/// Applies one fate to each question in order; later questions are answered.
#[derive(Clone)]
struct InTurn(ThreadRuntime, Arc<Mutex<VecDeque<Fate>>>);

impl Between for InTurn {
    type Error = io::Error;

    async fn before(&self, command: Command<'_>) -> Result<(), io::Error> {
        let mut fates = self.1.lock().unwrap();
        if let (Command::Acquire(_), Some(Fate::Unreachable)) = (command, fates.front()) {
            fates.pop_front();
            return Err(io::Error::other("no connection"));
        }
        Ok(())
    }

    async fn after(&self, command: Command<'_>) -> Result<(), io::Error> {
        let Command::Acquire(_) = command else { return Ok(()) };
        let fate = self.1.lock().unwrap().pop_front();
        let at = match fate {
            Some(Fate::After(time)) => self.0.now() + time,
            Some(Fate::Unanswered) => pending().await,
            _ => self.0.now(),
        };
        poll_fn(|_| if self.0.now() < at { Poll::Pending } else { Poll::Ready(Ok(())) }).await
    }

    fn failure(&self, _: &io::Error) -> Failure {
        Failure::Unreachable
    }
}

fn in_turn(fates: impl IntoIterator<Item = Fate>) -> (ThreadRuntime, Lock, Lock) {
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(clock.clone());
    let between = InTurn(clock.clone(), Arc::new(Mutex::new(fates.into_iter().collect())));
    let clients = [LockClient::new(over(&local, between)), LockClient::new(local)];
    let [lock, theirs] = clients.map(|client| client.get_lock("orders").unwrap());
    (clock, lock, theirs)
}

/// The error blames the late answer, not an unreachable store.
#[test]
fn limit_reached_after_a_late_answer_is_reported_as_no_answer() {
    let late = Fate::After(SECOND * WATCHDOG);
    let (clock, lock, _) = in_turn([Fate::Unreachable, late, Fate::Unanswered]);
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
    let late = Fate::After(SECOND * WATCHDOG);
    let (clock, lock, theirs) = in_turn([Fate::Answered, Fate::Answered, late, Fate::Unreachable]);
    let held = ready(theirs.lock()).unwrap();
    let mut waits = pin!(lock.lock());
    assert!(poll(waits.as_mut()).is_pending());
    drop(held);
    assert!(poll(waits.as_mut()).is_pending());
    clock.advance(SECOND * WATCHDOG);
    // The rollback of the late answer wakes the waiter again.
    let told = poll(waits);
    assert!(matches!(told, Poll::Ready(Ok(_))), "{told:?}");
}

/// Keeps renewals and queries for holders from reaching the store.
#[derive(Clone, Default)]
struct OnTheWay(Arc<AtomicBool>);

impl OnTheWay {
    fn keep(&self, kept: bool) {
        // Ordering: SeqCst, as above.
        self.0.store(kept, SeqCst);
    }
}

impl Between for OnTheWay {
    type Error = OtherKind;

    async fn before(&self, command: Command<'_>) -> Result<(), OtherKind> {
        if matches!(command, Command::Renew(..) | Command::Holders(_)) {
            kept_while(&self.0).await;
        }
        Ok(())
    }
}

/// Another reader's longer lease replaces the lease in question.
#[test]
fn reader_whose_lease_is_replaced_meanwhile_learns_of_its_loss() {
    let (local, way) = (Local::with_runtime(ThreadRuntime::paused()), OnTheWay::default());
    let client = LockClient::new(over(&local, way.clone()));
    let prices = client.get_read_write_lock("prices").unwrap();
    let theirs = LockClient::new(local).get_read_write_lock("prices").unwrap();
    for is_forced in [false, true] {
        let held = ready(prices.read().lock()).unwrap();
        way.keep(true);
        let mut ensures = Box::pin(held.ensure_held());
        assert!(poll(ensures.as_mut()).is_pending());
        let _longer = ready(prices.read().lock_with_lease(SECOND * 600)).unwrap();
        if is_forced {
            assert!(ready(theirs.read().force_unlock()).unwrap());
        }
        way.keep(false);
        let Poll::Ready(ensured) = poll(ensures.as_mut()) else { panic!("expected the answer of the store") };
        assert_eq!(ensured.is_err_and(|error| error.is_lost()), is_forced);
    }
}

/// A later hold with a longer lease replaces the lease in question.
#[test]
fn inner_hold_acquires_although_its_lease_is_replaced_meanwhile() {
    let (local, way) = (Local::with_runtime(ThreadRuntime::paused()), OnTheWay::default());
    let client = LockClient::new(over(&local, way.clone()));
    let (prices, me) = (client.get_read_write_lock("prices").unwrap(), client.owner());
    let mine = prices.read().owned_by(&me);
    let _outer = ready(mine.lock()).unwrap();
    way.keep(true);
    let mut inner = pin!(mine.lock_with_lease(SECOND * 300));
    assert!(poll(inner.as_mut()).is_pending());
    let _longer = ready(prices.read().lock_with_lease(SECOND * 600)).unwrap();
    way.keep(false);
    let got = poll(inner);
    assert!(matches!(got, Poll::Ready(Ok(_))), "{got:?}");
}

/// Keeps a writer's acquisitions from the store, and answers from a reader.
#[derive(Clone, Default)]
struct Apart(Arc<[AtomicBool; 2]>);

impl Apart {
    const ASKED_TO_WRITE: usize = 0;
    const ANSWERED_TO_READ: usize = 1;

    fn keep(&self, which: usize, kept: bool) {
        // Ordering: SeqCst, as above.
        self.0[which].store(kept, SeqCst);
    }
}

impl Between for Apart {
    type Error = OtherKind;

    async fn before(&self, command: Command<'_>) -> Result<(), OtherKind> {
        if let Command::Acquire(Mode::Write) = command {
            kept_while(&self.0[Self::ASKED_TO_WRITE]).await;
        }
        Ok(())
    }

    async fn after(&self, command: Command<'_>) -> Result<(), OtherKind> {
        if let Command::Acquire(Mode::Read) = command {
            kept_while(&self.0[Self::ANSWERED_TO_READ]).await;
        }
        Ok(())
    }
}

/// The renewed lease is newer than the refusal; believing the refusal would leave a lease without an owner.
#[test]
fn renewed_writer_keeps_its_lease_despite_a_refused_read() {
    let (local, apart) = (Local::with_runtime(ThreadRuntime::paused()), Apart::default());
    let client = LockClient::new(over(&local, apart.clone()));
    let (prices, me) = (client.get_read_write_lock("prices").unwrap(), client.owner());
    let theirs = LockClient::new(local).get_read_write_lock("prices").unwrap();
    let (reads, writes) = (prices.read().owned_by(&me), prices.write().owned_by(&me));
    let outer = ready(writes.lock()).unwrap();
    apart.keep(Apart::ASKED_TO_WRITE, true);
    let fenced = writes.clone().fenced();
    let mut inner = pin!(fenced.lock());
    assert!(poll(inner.as_mut()).is_pending());
    assert!(ready(theirs.write().force_unlock()).unwrap());
    let stranger = ready(theirs.write().lock()).unwrap();
    apart.keep(Apart::ANSWERED_TO_READ, true);
    let mut reads = pin!(reads.lock());
    assert!(poll(reads.as_mut()).is_pending());
    ready(stranger.unlock()).unwrap();
    apart.keep(Apart::ASKED_TO_WRITE, false);
    let Poll::Ready(Ok(inner)) = poll(inner) else { panic!("expected a hold with a token") };
    apart.keep(Apart::ANSWERED_TO_READ, false);
    let read = poll(reads);
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
    let mut reads = pin!(reads.lock());
    assert!(poll(reads.as_mut()).is_pending());
    clock.advance(SECOND);
    assert!(poll(reads.as_mut()).is_pending());
    assert!(!outer.is_held() && !inner.is_held());
    drop(stranger);
    assert!(matches!(poll(reads), Poll::Ready(Ok(_))));
}

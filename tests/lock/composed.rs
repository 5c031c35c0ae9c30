//! What holds where several things come together: a forced unlock beside a hand-off, forgotten holds beside
//! guards, a shutdown or a future that is not polled beside a question outside of the queue, a timer that is
//! late.

use std::future::{pending, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use latchwork::backend::Runtime;
use latchwork::local::{Local, OtherKind, ThreadRuntime};
use latchwork::lock::Mode;
use latchwork::{Guard, Lock, LockClient, LockOptions, Owner};
use tokio::sync::Semaphore;

use crate::foreign::wakers::Untimed;
use crate::meanwhile::Act;
use crate::over_local::{Between, Command, OverLocal, over};
use crate::polled::{poll, ready};

const SOON: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);
/// Two threads meet at a place of nanoseconds in some of so many.
const ROUNDS: usize = 5_000;
crate::waiting::waiting_for!(SOON);

/// Stops one kind of command on its way to the store, or its answer on the way back, or both, until it is let
/// through.
#[derive(Clone)]
struct Stops {
    what: fn(Command<'_>) -> bool,
    commands: bool,
    answers: bool,
    let_through: Arc<Semaphore>,
}

impl Stops {
    fn new(answers: bool, what: fn(Command<'_>) -> bool) -> Self {
        Self { what, commands: !answers, answers, let_through: Arc::new(Semaphore::new(0)) }
    }

    fn both(what: fn(Command<'_>) -> bool) -> Self {
        Self { commands: true, ..Self::new(true, what) }
    }

    fn over(&self, local: &Local) -> OverLocal<Self> {
        over(local, self.clone())
    }

    fn let_through(&self) {
        self.let_through.add_permits(Semaphore::MAX_PERMITS / 2);
    }

    async fn stop(&self) {
        self.let_through.acquire().await.unwrap().forget();
    }
}

impl Between for Stops {
    type Error = OtherKind;

    async fn before(&self, command: Command<'_>) -> Result<(), OtherKind> {
        if self.commands && (self.what)(command) {
            self.stop().await;
        }
        Ok(())
    }

    async fn after(&self, command: Command<'_>) -> Result<(), OtherKind> {
        if self.answers && (self.what)(command) {
            self.stop().await;
        }
        Ok(())
    }
}

/// The waiter goes on by the number of the hold before it. That was in hand when the lock was forced free,
/// and is the waiter's when the answer to that comes.
#[tokio::test]
async fn lease_that_is_granted_after_a_forced_unlock_is_not_lost_by_its_answer() {
    let (local, stops) =
        (Local::new(), Stops::new(true, |command| matches!(command, Command::ForceRelease(_))));
    let (client, other) = (LockClient::new(stops.over(&local)), LockClient::new(local));
    let (lock, theirs) = (client.get_lock("orders").unwrap(), other.get_lock("orders").unwrap());
    let held = lock.lock().await.unwrap();
    let mut waits = pin!(lock.lock_with_lease(HOUR));
    assert!(poll(waits.as_mut()).is_pending());
    let mut forced = pin!(lock.force_unlock());
    assert!(poll(forced.as_mut()).is_pending(), "it has run, and is not answered");
    drop(held);
    let next = soon("the waiter's turn", waits).await.unwrap();
    stops.let_through();
    assert!(forced.await.unwrap());
    assert!(next.is_held(), "it was taken after the lock was forced free");
    next.unlock().await.unwrap();
    assert!(theirs.try_lock().await.unwrap().is_some(), "the store keeps a lease that nobody has");
}

/// The other way round: the waiter was granted the lock before it was forced free.
#[tokio::test]
async fn lease_that_is_granted_before_a_forced_unlock_is_lost_by_it() {
    let (local, stops) =
        (Local::new(), Stops::new(false, |command| matches!(command, Command::ForceRelease(_))));
    let client = LockClient::new(stops.over(&local));
    let lock = client.get_lock("orders").unwrap();
    let held = lock.lock().await.unwrap();
    let mut waits = pin!(lock.lock_with_lease(HOUR));
    assert!(poll(waits.as_mut()).is_pending());
    let mut forced = pin!(lock.force_unlock());
    assert!(poll(forced.as_mut()).is_pending(), "it is on its way");
    drop(held);
    let next = soon("the waiter's turn", waits).await.unwrap();
    stops.let_through();
    assert!(forced.await.unwrap());
    assert!(!next.is_held(), "it is not told");
}

/// Holds back the answers of reads and of forced unlocks, and counts the leases of each renewal.
#[derive(Clone)]
struct CountsRenewals(Stops, Arc<Mutex<Vec<usize>>>);

impl Between for CountsRenewals {
    type Error = OtherKind;

    async fn after(&self, command: Command<'_>) -> Result<(), OtherKind> {
        if let Command::Renew(leases, _) = command {
            self.1.lock().unwrap().push(leases.len());
        }
        self.0.after(command).await
    }
}

/// A store that is silent is waited for once, and not once for each reader.
#[tokio::test]
async fn forced_unlock_asks_once_about_all_leases_that_were_granted_meanwhile() {
    let is_held_back =
        |command: Command<'_>| matches!(command, Command::Acquire(Mode::Read) | Command::ForceRelease(_));
    let counts = CountsRenewals(Stops::new(true, is_held_back), Arc::default());
    let client = LockClient::new(over(&Local::new(), counts.clone()));
    let (both, owner) = (client.get_read_write_lock("orders").unwrap(), client.owner());
    let _writes = both.write().owned_by(&owner).lock().await.unwrap();
    // Beside the write each asks for itself.
    let read = both.read().owned_by(&owner);
    let mut reads: Vec<_> = (1..=3).map(|hours| Box::pin(read.lock_with_lease(HOUR * hours))).collect();
    assert!(reads.iter_mut().all(|read| poll(read.as_mut()).is_pending()));
    let mut forced = pin!(read.force_unlock());
    assert!(poll(forced.as_mut()).is_pending(), "it has run, and is not answered");
    counts.0.let_through.add_permits(reads.len());
    let mut held = Vec::new();
    for read in reads {
        held.push(soon("the answer", read).await.unwrap());
    }
    counts.0.let_through();
    assert!(forced.await.unwrap());
    assert!(held.iter().all(|read| !read.is_held()), "it was granted before the lock was forced free");
    assert_eq!(*counts.1.lock().unwrap(), [held.len()]);
}

/// Its answer comes after that to the forced unlock, or between that and the unlock.
#[tokio::test]
async fn lease_that_was_granted_before_a_forced_unlock_and_is_known_later_is_lost_by_it() {
    let kinds: [fn(&LockClient) -> Lock; 4] = [
        |client| client.get_lock("orders").unwrap(),
        |client| client.get_fair_lock("orders").unwrap(),
        |client| client.get_read_write_lock("orders").unwrap().read().clone(),
        |client| client.get_read_write_lock("orders").unwrap().write().clone(),
    ];
    let what: [fn(Command<'_>) -> bool; 2] = [
        |command| matches!(command, Command::Acquire(_)),
        |command| matches!(command, Command::Acquire(_) | Command::ForceRelease(_)),
    ];
    for (lock_of, (answered_first, what)) in
        kinds.into_iter().flat_map(|kind| what.into_iter().enumerate().map(move |what| (kind, what)))
    {
        let (local, stops) = (Local::new(), Stops::new(true, what));
        let client = LockClient::new(stops.over(&local));
        let lock = lock_of(&client);
        let mut asks = pin!(lock.lock_with_lease(HOUR));
        assert!(poll(asks.as_mut()).is_pending(), "it is granted, and not answered");
        let mut forced = pin!(lock.force_unlock());
        let done = poll(forced.as_mut());
        assert_eq!(done.is_pending(), answered_first == 1);
        stops.let_through();
        let held = soon("the answer", asks).await.unwrap();
        if done.is_pending() {
            assert!(forced.await.unwrap());
            assert!(!held.is_held(), "it is not told");
        }
        soon("the loss", held.lost()).await;
    }
}

/// Another client has had the lock meanwhile. What asks for a token leases the lock by the hold's number.
#[test]
fn hold_that_is_lost_is_not_begun_anew_by_the_token_of_an_inner_one() {
    let kinds: [fn(&LockClient) -> Lock; 4] = [
        |client| client.get_lock("orders").unwrap(),
        |client| client.get_fair_lock("orders").unwrap(),
        |client| client.get_read_write_lock("orders").unwrap().read().clone(),
        |client| client.get_read_write_lock("orders").unwrap().write().clone(),
    ];
    for lock_of in kinds {
        let local = Local::new();
        let (client, other) = (LockClient::new(local.clone()), LockClient::new(local));
        let (lock, theirs) = (lock_of(&client).owned_by(&client.owner()), lock_of(&other));
        let outer = ready(lock.lock()).unwrap();
        assert!(ready(theirs.force_unlock()).unwrap());
        drop(ready(theirs.lock()).unwrap());
        assert!(ready(lock.fenced().lock()).unwrap_err().is_lost());
        assert!(!outer.is_held() && ready(outer.unlock()).unwrap_err().is_lost());
    }
}

#[tokio::test]
async fn work_takes_no_step_after_its_lease_though_no_timer_has_fired() {
    let clock = ThreadRuntime::paused();
    let client = LockClient::new(Local::with_runtime(Untimed(clock.clone())));
    let guard = client.get_lock("orders").unwrap().lock_with_lease(Duration::from_secs(1)).await.unwrap();
    let steps = AtomicUsize::new(0);
    let mut run = pin!(guard.run(poll_fn(|_| {
        // Ordering: SeqCst, a test's count.
        steps.fetch_add(1, Ordering::SeqCst);
        Poll::<()>::Pending
    })));
    assert!(poll(run.as_mut()).is_pending());
    clock.advance(Duration::from_secs(2));
    let Poll::Ready(outcome) = poll(run.as_mut()) else { panic!("its lease is over") };
    assert!(outcome.unwrap_err().is_lost());
    // Ordering: as above.
    assert_eq!(steps.load(Ordering::SeqCst), 1);
}

/// How often the name was taken since the first of its handles was made.
fn acquisitions(client: &LockClient, of: fn(&LockClient) -> Lock) -> u64 {
    of(client).stats().acquisitions
}

/// The one that was forgotten ends first, when its owner has the lock on.
#[test]
fn name_is_not_kept_for_a_hold_that_was_forgotten_beside_a_guard() {
    let kinds: [fn(&LockClient) -> Lock; 3] = [
        |client| client.get_lock("orders").unwrap(),
        |client| client.get_fair_lock("orders").unwrap(),
        |client| client.get_read_write_lock("orders").unwrap().read().clone(),
    ];
    for lock_of in kinds {
        let clock = ThreadRuntime::paused();
        let client = LockClient::new(Local::with_runtime(clock.clone()));
        let me: Owner = client.owner();
        let take = |lease| ready(lock_of(&client).owned_by(&me).lock_with_lease(lease)).unwrap();
        for ends_by_itself in [false, true] {
            let (outer, inner) = (take(Duration::from_secs(10)), take(Duration::from_secs(1)));
            inner.forget();
            clock.advance(Duration::from_secs(if ends_by_itself { 20 } else { 3 }));
            drop(outer);
            assert_eq!(acquisitions(&client, lock_of), 0, "the name is kept for ever");
        }
    }
}

/// Options by which a waiter that is not polled is given up soon.
fn hasty() -> LockOptions {
    LockOptions::default().unpolled_limit(Duration::from_millis(20))
}

/// An owner that has the lock waits for the store to lengthen its lease, or for a token, and has one hold
/// more by then.
#[tokio::test]
async fn inner_hold_whose_future_is_not_polled_keeps_the_lock_from_no_other() {
    for fair in [false, true] {
        let asks = |command: Command<'_>| matches!(command, Command::Acquire(Mode::Fair | Mode::Plain));
        let (local, stops) = (Local::new(), Stops::new(false, asks));
        let client = LockClient::with_options(stops.over(&local), &hasty()).unwrap();
        let other = LockClient::new(local);
        let of = |client: &LockClient| {
            if fair { client.get_fair_lock("orders") } else { client.get_lock("orders") }
        };
        let (lock, theirs) = (of(&client).unwrap().owned_by(&client.owner()), of(&other).unwrap());
        stops.let_through.add_permits(1);
        let outer = lock.lock().await.unwrap();
        let fenced = lock.fenced();
        let mut inner = pin!(fenced.lock());
        assert!(poll(inner.as_mut()).is_pending(), "it asks for a token");
        drop(outer);
        stops.let_through.add_permits(1);
        let got = soon("the other's turn", theirs.lock()).await.unwrap();
        got.unlock().await.unwrap();
        stops.let_through();
        let inner = soon("its own turn, once it is polled", inner).await.unwrap();
        assert!(inner.is_held() && inner.fencing_token().is_some());
        assert_eq!(client.metrics().superseded, 1);
    }
}

fn reads(command: Command<'_>) -> bool {
    matches!(command, Command::Acquire(Mode::Read))
}

/// A writer that reads as well asks the store beside all others.
#[tokio::test]
async fn writers_read_whose_future_is_not_polled_keeps_the_lock_from_no_other() {
    let (local, stops) = (Local::new(), Stops::new(true, reads));
    let client = LockClient::with_options(stops.over(&local), &hasty()).unwrap();
    let other = LockClient::new(local);
    let (prices, theirs) =
        (client.get_read_write_lock("prices").unwrap(), other.get_read_write_lock("prices").unwrap());
    let me = client.owner();
    let writes = prices.write().owned_by(&me).lock().await.unwrap();
    let read = prices.read().owned_by(&me);
    let mut reads = pin!(read.lock());
    assert!(poll(reads.as_mut()).is_pending(), "it asks beside the queue");
    drop(writes);
    stops.let_through();
    soon("the other's turn", theirs.write().lock()).await.unwrap().unlock().await.unwrap();
    assert!(soon("its own turn, once it is polled", reads).await.unwrap().is_held());
}

/// What a writer reads by, with a clock that stands still.
struct Reads {
    clock: ThreadRuntime,
    client: LockClient,
    lock: Lock,
    writes: Guard,
}

impl Reads {
    const UNPOLLED_LIMIT: Duration = Duration::from_secs(2);

    fn over(between: impl Between) -> Self {
        let clock = ThreadRuntime::paused();
        let options = LockOptions::default().unpolled_limit(Self::UNPOLLED_LIMIT);
        let backend = over(&Local::with_runtime(clock.clone()), between);
        let client = LockClient::with_options(backend, &options).unwrap();
        let (prices, me) = (client.get_read_write_lock("prices").unwrap(), client.owner());
        let writes = ready(prices.write().owned_by(&me).lock()).unwrap();
        Self { clock, client, lock: prices.read().owned_by(&me), writes }
    }
}

/// The look that gives back what one of them was granted comes to the other one too early.
#[test]
fn read_that_waits_for_its_poll_keeps_its_grant_beside_one_that_has_waited_for_too_long() {
    let stops = Stops::new(true, reads);
    let Reads { clock, client, lock, writes: _writes } = Reads::over(stops.clone());
    let [mut late, mut in_time] = [(); 2].map(|()| Box::pin(lock.lock()));
    assert!(poll(late.as_mut()).is_pending() && poll(in_time.as_mut()).is_pending(), "they ask");
    for _ in 0..2 {
        stops.let_through.add_permits(1);
        clock.advance(Reads::UNPOLLED_LIMIT / 2);
    }
    assert_eq!(client.metrics().superseded, 1);
    let Poll::Ready(Ok(held)) = poll(in_time.as_mut()) else { panic!("it asks once more") };
    assert!(held.is_held());
}

#[tokio::test]
async fn shutdown_waits_for_what_a_writer_has_asked_to_read() {
    let (local, stops) = (Local::new(), Stops::new(true, reads));
    let (client, other) = (LockClient::new(stops.over(&local)), LockClient::new(local));
    let (prices, theirs) =
        (client.get_read_write_lock("prices").unwrap(), other.get_read_write_lock("prices").unwrap());
    let me = client.owner();
    let writes = prices.write().owned_by(&me).lock().await.unwrap();
    let read = prices.read().owned_by(&me);
    let reads = tokio::spawn(async move { read.lock().await.map(drop) });
    eventually("it reads", async || theirs.read().is_locked().await.unwrap()).await;
    writes.unlock().await.unwrap();
    let error = client.shutdown(Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(error.releasing(), [prices.name().clone()]);
    stops.let_through();
    client.shutdown(SOON).await.unwrap();
    assert!(reads.await.unwrap().unwrap_err().is_shut_down());
    assert!(!theirs.read().is_locked().await.unwrap(), "the store keeps what nobody has");
}

/// The owner's hold ends with its own lease, for which the store keeps the one of the hold around it.
#[tokio::test]
async fn shutdown_leaves_no_lease_of_a_hold_that_is_over_though_no_timer_has_fired() {
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(Untimed(clock.clone()));
    let (client, other) = (LockClient::new(local.clone()), LockClient::new(local));
    let lock = client.get_lock("orders").unwrap().owned_by(&client.owner());
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock_with_lease(Duration::from_secs(5)).await.unwrap();
    drop(outer);
    let mut shutdown = pin!(client.shutdown(HOUR));
    assert!(poll(shutdown.as_mut()).is_pending(), "it is held");
    clock.advance(Duration::from_secs(5));
    assert!(!inner.is_held());
    let Poll::Ready(Ok(())) = poll(shutdown.as_mut()) else { panic!("nothing is held") };
    let free = other.get_lock("orders").unwrap().try_lock().await.unwrap().is_some();
    assert!(free, "the runtime may end now, and the store keeps the lease");
}

/// The hold has ended and its release has not begun: a shutdown that looks then is to see one of them.
#[test]
fn shutdown_that_comes_between_a_hold_and_its_release_waits_for_it() {
    for _ in 0..ROUNDS {
        let stops = Stops::new(false, |command| matches!(command, Command::Release(_)));
        let client = LockClient::new(stops.over(&Local::new()));
        let held = ready(client.get_lock("orders").unwrap().lock()).unwrap();
        let begins = Barrier::new(2);
        let is_over = thread::scope(|scope| {
            scope.spawn(|| {
                begins.wait();
                drop(held);
            });
            begins.wait();
            poll(pin!(client.shutdown(HOUR))).is_ready()
        });
        assert!(!is_over, "its release is not answered");
    }
}

/// Otherwise one process would have the lock again and again, and the other would be told and find it taken.
#[test]
fn process_that_wants_the_lock_again_lets_one_go_first_that_has_heard_of_its_release() {
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(clock.clone());
    let (client, other) = (LockClient::new(local.clone()), LockClient::new(local));
    let (lock, theirs) = (client.get_lock("orders").unwrap(), other.get_lock("orders").unwrap());
    let their_hold = ready(theirs.lock()).unwrap();
    let mut ours = pin!(lock.lock());
    assert!(poll(ours.as_mut()).is_pending(), "the other has it");
    ready(their_hold.unlock()).unwrap();
    let our_hold = ready(ours).unwrap();
    let mut waits = pin!(theirs.lock());
    assert!(poll(waits.as_mut()).is_pending(), "this one has it");
    ready(our_hold.unlock()).unwrap();

    let mut again = pin!(lock.lock());
    assert!(poll(again.as_mut()).is_pending(), "it overtakes the other, which has heard");
    let their_hold = ready(waits).unwrap();
    clock.advance(SOON);
    assert!(poll(again.as_mut()).is_pending(), "the other has it");
    ready(their_hold.unlock()).unwrap();
    assert!(ready(again).is_ok());
}

/// A runtime that panics when it is to run a task, if it is set to.
#[derive(Clone)]
struct RunsNoTask(ThreadRuntime, Arc<AtomicBool>);

impl Runtime for RunsNoTask {
    type Sleep = <ThreadRuntime as Runtime>::Sleep;

    fn now(&self) -> Instant {
        self.0.now()
    }

    fn sleep_until(&self, deadline: Instant) -> Self::Sleep {
        self.0.sleep_until(deadline)
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        // Ordering: SeqCst, for no reason but that it is a test.
        assert!(!self.1.swap(false, Ordering::SeqCst), "on purpose");
        self.0.spawn(task);
    }
}

/// The watchdog looks at the name before the release is to be repeated, and no handle keeps it.
#[tokio::test]
async fn release_that_no_task_was_run_for_is_repeated_though_no_handle_is_left() {
    let (clock, panics) = (ThreadRuntime::paused(), Arc::new(AtomicBool::new(false)));
    let local = Local::with_runtime(RunsNoTask(clock.clone(), Arc::clone(&panics)));
    let stops = Stops::new(false, |command| matches!(command, Command::Release(_)));
    let client = LockClient::new(over(&local, stops.clone()));
    let other = LockClient::new(local);
    let held = client.get_lock("orders").unwrap().lock().await.unwrap();
    // Its renewal is due in a tenth of a second.
    clock.advance(Duration::from_millis(9900));
    // Ordering: as above.
    panics.store(true, Ordering::SeqCst);
    drop(held);
    assert!(!panics.load(Ordering::SeqCst), "the runtime was not asked");
    stops.let_through();
    clock.advance(Duration::from_secs(5));
    let free = other.get_lock("orders").unwrap().try_lock().await.unwrap().is_some();
    assert!(free, "the release is not repeated");
}

/// What an event has left to be released is not under way yet when the entry is not held any more.
#[test]
fn shutdown_that_ends_beside_a_call_leaves_nothing_at_the_store() {
    type Act = fn(&LockClient) -> Box<dyn FnOnce() + Send>;
    let acts: [(&str, Act); 2] = [
        ("a lock that is granted too late", |client| {
            let lock = client.get_lock("orders").unwrap();
            Box::new(move || drop(poll(pin!(lock.lock()))))
        }),
        ("a release that names a waiter", |client| {
            let lock = client.get_fair_lock("orders").unwrap();
            let held = ready(lock.lock()).unwrap();
            let mut waits = Box::pin(async move { lock.lock().await.map(drop) });
            assert!(poll(waits.as_mut()).is_pending());
            Box::new(move || drop((held, waits)))
        }),
    ];
    for (name, act) in acts {
        for _ in 0..ROUNDS {
            let local = Local::new();
            let (client, other) = (LockClient::new(local.clone()), LockClient::new(local));
            let (act, theirs) = (act(&client), other.get_lock("orders").unwrap());
            let begins = Barrier::new(2);
            let is_left = thread::scope(|scope| {
                scope.spawn(|| {
                    begins.wait();
                    act();
                });
                begins.wait();
                poll(pin!(client.shutdown(HOUR))).is_ready() && ready(theirs.is_locked()).unwrap()
            });
            assert!(!is_left, "{name}: the store keeps it");
        }
    }
}

/// A waker may poll its future at once.
#[test]
fn shutdown_that_is_told_of_a_release_by_its_caller_waits_for_the_answer() {
    struct Polls(LockClient, AtomicUsize);
    impl Wake for Polls {
        fn wake(self: Arc<Self>) {
            if poll(pin!(self.0.shutdown(HOUR))).is_ready() {
                // Ordering: SeqCst, a test's count.
                self.1.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
    let stops = Stops::new(false, |command| matches!(command, Command::Release(_)));
    let client = LockClient::new(stops.over(&Local::new()));
    let held = ready(client.get_lock("orders").unwrap().lock()).unwrap();
    let polls = Arc::new(Polls(client.clone(), AtomicUsize::new(0)));
    let mut shutdown = pin!(client.shutdown(HOUR));
    let waker = Waker::from(Arc::clone(&polls));
    assert!(shutdown.as_mut().poll(&mut Context::from_waker(&waker)).is_pending(), "it is held");
    let mut release = pin!(held.unlock());
    assert!(poll(release.as_mut()).is_pending());
    // Ordering: as above.
    assert_eq!(polls.1.load(Ordering::SeqCst), 0, "its release is not answered");
    stops.let_through();
    ready(release).unwrap();
    ready(shutdown).unwrap();
}

/// No timer has fired: the clock stands still.
#[test]
fn shutdown_ends_with_the_release_whose_caller_has_left() {
    let stops = Stops::new(false, |command| matches!(command, Command::Release(_)));
    let clock = ThreadRuntime::paused();
    let client = LockClient::new(stops.over(&Local::with_runtime(clock.clone())));
    let lock = client.get_lock("orders").unwrap();
    let held = ready(lock.lock()).unwrap();
    let mut release = Box::pin(held.unlock());
    assert!(poll(release.as_mut()).is_pending());
    drop(release);
    let mut shutdown = pin!(client.shutdown(HOUR));
    assert!(poll(shutdown.as_mut()).is_pending(), "it is not answered");
    stops.let_through();
    clock.advance(Duration::from_nanos(1));
    assert!(poll(shutdown).is_ready(), "it waits for no release");
}

#[test]
fn name_is_not_kept_for_a_forgotten_hold_that_has_ended_by_itself() {
    let clock = ThreadRuntime::paused();
    let client = LockClient::new(Local::with_runtime(clock.clone()));
    let lock_of: fn(&LockClient) -> Lock = |client| client.get_lock("orders").unwrap();
    ready(lock_of(&client).lock_with_lease(Duration::from_secs(1))).unwrap().forget();
    assert_eq!(acquisitions(&client, lock_of), 1);
    clock.advance(Duration::from_secs(2));
    assert_eq!(acquisitions(&client, lock_of), 0, "the name is kept for ever");
}

/// The store has forgotten the lease by then, as the repetition has released it.
#[test]
fn unlock_whose_release_was_repeated_meanwhile_is_told_that_it_had_the_lock() {
    let clock = ThreadRuntime::paused();
    let stops = Stops::new(false, |command| matches!(command, Command::Release(_)));
    let client = LockClient::with_options(stops.over(&Local::with_runtime(clock.clone())), &hasty()).unwrap();
    let held = ready(client.get_lock("orders").unwrap().lock()).unwrap();
    let mut unlocks = pin!(held.unlock());
    assert!(poll(unlocks.as_mut()).is_pending(), "it is not answered");
    clock.advance(SOON);
    // For both, of which the caller's is not polled.
    stops.let_through();
    clock.advance(Duration::from_nanos(1));
    ready(unlocks).unwrap();
    assert_eq!(client.metrics().leases_lost, 0);
}

/// What a writer has asked to read is refused, as it does not write any more.
#[test]
fn shutdown_ends_with_the_refusal_of_what_a_writer_has_asked_to_read() {
    let stops = Stops::new(false, reads);
    let local = Local::with_runtime(ThreadRuntime::paused());
    let (client, other) = (LockClient::new(stops.over(&local)), LockClient::new(local));
    let (prices, theirs) =
        (client.get_read_write_lock("prices").unwrap(), other.get_read_write_lock("prices").unwrap());
    let me = client.owner();
    let writes = ready(prices.write().owned_by(&me).lock()).unwrap();
    let read = prices.read().owned_by(&me);
    let mut reads = pin!(read.lock());
    assert!(poll(reads.as_mut()).is_pending(), "it asks beside the queue");
    ready(writes.unlock()).unwrap();
    let _theirs = ready(theirs.write().lock()).unwrap();
    let mut shutdown = pin!(client.shutdown(HOUR));
    assert!(poll(shutdown.as_mut()).is_pending(), "it may be granted yet");
    stops.let_through();
    assert!(ready(reads).unwrap_err().is_shut_down());
    ready(shutdown).unwrap();
}

/// A lease that is gone is not released: what has found that tells it.
#[test]
fn shutdown_ends_with_the_renewal_that_finds_the_last_lease_gone() {
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(clock.clone());
    let (client, other) = (LockClient::new(local.clone()), LockClient::new(local));
    let _held = ready(client.get_lock("orders").unwrap().lock()).unwrap();
    ready(other.get_lock("orders").unwrap().force_unlock()).unwrap();
    let mut shutdown = pin!(client.shutdown(HOUR));
    assert!(poll(shutdown.as_mut()).is_pending(), "it is held");
    clock.advance(Duration::from_secs(11));
    let metrics = client.metrics();
    assert_eq!((metrics.leases_lost, metrics.renewals_late), (1, 0), "nothing of it came late");
    ready(shutdown).unwrap();
}

#[test]
fn shutdown_names_what_is_held_by_name_in_order() {
    let client = LockClient::local();
    let names = (0..50).map(|number| format!("orders:{}", number * 7 % 50));
    let _held: Vec<_> = names.map(|name| ready(client.get_lock(&name).unwrap().lock()).unwrap()).collect();
    let error = ready(client.shutdown(Duration::ZERO)).unwrap_err();
    assert_eq!(error.held().len(), 50);
    assert!(error.held().iter().map(|name| name.as_str()).is_sorted(), "{error}");
}

/// It has one look for both, and that comes too early for one of them.
#[test]
fn each_read_that_is_not_polled_is_given_back_in_its_time() {
    let stops = Stops::new(true, reads);
    let Reads { clock, client, lock, writes: _writes } = Reads::over(stops.clone());
    let mut asks = [(); 2].map(|()| Box::pin(lock.lock()));
    assert!(asks.iter_mut().all(|asks| poll(asks.as_mut()).is_pending()), "they ask");
    for superseded in [0, 1, 2] {
        stops.let_through.add_permits(1);
        clock.advance(Reads::UNPOLLED_LIMIT / 2);
        assert_eq!(client.metrics().superseded, superseded);
    }
}

/// Stops each read twice on its way back.
struct InSteps(Stops);

impl Between for InSteps {
    type Error = OtherKind;

    async fn before(&self, command: Command<'_>) -> Result<(), OtherKind> {
        self.0.before(command).await
    }

    async fn after(&self, command: Command<'_>) -> Result<(), OtherKind> {
        self.0.after(command).await?;
        if reads(command) {
            self.0.stop().await;
        }
        Ok(())
    }
}

#[test]
fn read_that_was_polled_in_time_and_waits_on_is_not_taken_for_unpolled() {
    let stops = Stops::new(true, reads);
    let Reads { clock, client, lock, writes: _writes } = Reads::over(InSteps(stops.clone()));
    let mut asks = pin!(lock.lock());
    assert!(poll(asks.as_mut()).is_pending());
    stops.let_through.add_permits(1);
    assert!(poll(asks.as_mut()).is_pending(), "it waits for the second step");
    clock.advance(SOON);
    assert_eq!(client.metrics().superseded, 0);
    stops.let_through.add_permits(1);
    assert!(ready(asks).unwrap().is_held());
}

/// A writer that was forced out asks to read, and is refused.
#[test]
fn loss_that_a_refused_read_brings_to_light_is_told_and_counted() {
    let local = Local::new();
    let (client, other) = (LockClient::new(local.clone()), LockClient::new(local));
    let (prices, theirs) =
        (client.get_read_write_lock("prices").unwrap(), other.get_read_write_lock("prices").unwrap());
    let me = client.owner();
    let writes = ready(prices.write().owned_by(&me).lock()).unwrap();
    ready(theirs.write().force_unlock()).unwrap();
    let _theirs = ready(theirs.write().lock()).unwrap();
    assert!(ready(prices.read().owned_by(&me).try_lock()).unwrap().is_none());
    assert!(!writes.is_held());
    assert_eq!(client.metrics().leases_lost, 1);
}

/// Stops what asks for a token on its way to the store, and the answer to a renewal on its way back.
#[derive(Clone)]
struct Apart {
    asks: Stops,
    renews: Stops,
}

impl Apart {
    fn new() -> Self {
        let asks = Stops::new(false, |command| matches!(command, Command::Acquire(_)));
        Self { asks, renews: Stops::new(true, |command| matches!(command, Command::Renew(..))) }
    }
}

impl Between for Apart {
    type Error = OtherKind;

    async fn before(&self, command: Command<'_>) -> Result<(), OtherKind> {
        self.renews.before(command).await?;
        self.asks.before(command).await
    }

    async fn after(&self, command: Command<'_>) -> Result<(), OtherKind> {
        self.asks.after(command).await?;
        self.renews.after(command).await
    }
}

/// The command that asked for a token was sent later, and has begun the lease anew when that answer comes.
#[test]
fn extension_is_asked_for_once_more_when_what_says_that_the_lease_is_gone_is_older_than_the_lease() {
    let local = Local::new();
    let apart = Apart::new();
    let (client, other) = (LockClient::new(over(&local, apart.clone())), LockClient::new(local));
    let (lock, theirs) = (client.get_lock("orders").unwrap(), other.get_lock("orders").unwrap());
    let lock = lock.owned_by(&client.owner());
    apart.asks.let_through.add_permits(1);
    let mut outer = ready(lock.lock()).unwrap();
    let fenced = lock.fenced();
    let mut inner = pin!(fenced.lock());
    apart.renews.let_through.add_permits(1);
    assert!(poll(inner.as_mut()).is_pending(), "it asks for a token");
    ready(theirs.force_unlock()).unwrap();
    {
        let mut extends = pin!(outer.extend(HOUR));
        assert!(poll(extends.as_mut()).is_pending(), "it is told that the lease is gone");
        apart.asks.let_through();
        assert!(ready(inner).unwrap().is_held());
        apart.renews.let_through();
        ready(extends).unwrap();
    }
    assert!(outer.remaining() > HOUR / 2);
    let kept = ready(theirs.remaining()).unwrap();
    assert!(kept.is_some_and(|kept| kept > HOUR / 2), "the store keeps it for {kept:?}");
}

/// The command has run, and its future is dropped before it is answered.
#[test]
fn extension_that_was_given_up_keeps_the_lock_for_no_longer_than_the_hold() {
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(clock.clone());
    let stops = Stops::new(true, |command| matches!(command, Command::Renew(..)));
    let (client, other) = (LockClient::new(stops.over(&local)), LockClient::new(local));
    let lock = client.get_lock("orders").unwrap();
    let mut held = ready(lock.lock_with_lease(Duration::from_secs(1))).unwrap();
    assert!(poll(pin!(held.extend(HOUR))).is_pending());
    clock.advance(Duration::from_secs(2));
    assert!(!held.is_held());
    let free = ready(other.get_lock("orders").unwrap().try_lock()).unwrap().is_some();
    assert!(free, "the store keeps what nobody has");
}

/// No look at its end has come before.
#[test]
fn extension_that_is_answered_when_the_hold_is_over_is_given_back_though_no_timer_has_fired() {
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(Untimed(clock.clone()));
    let stops = Stops::new(true, |command| matches!(command, Command::Renew(..)));
    let client = LockClient::new(over(&local, stops.clone()));
    let other = LockClient::new(local);
    let lock = client.get_lock("orders").unwrap();
    let mut held = ready(lock.lock_with_lease(Duration::from_secs(1))).unwrap();
    let mut extends = Box::pin(held.extend(HOUR));
    assert!(poll(extends.as_mut()).is_pending());
    clock.advance(Duration::from_secs(2));
    stops.let_through();
    assert!(ready(extends).unwrap_err().is_lost());
    let free = ready(other.get_lock("orders").unwrap().try_lock()).unwrap().is_some();
    assert!(free, "the store keeps what nobody has");
}

/// The command for it begins the lease anew, and so does not end before that as a release does.
#[test]
fn token_that_comes_when_its_hold_was_given_back_is_rolled_back() {
    let local = Local::new();
    let stops = Stops::new(false, |command| matches!(command, Command::Acquire(_) | Command::Release(_)));
    let (client, other) = (LockClient::new(stops.over(&local)), LockClient::new(local));
    let (lock, theirs) = (client.get_lock("orders").unwrap(), other.get_lock("orders").unwrap());
    let me = client.owner();
    let lock = lock.owned_by(&me);
    stops.let_through.add_permits(1);
    let _outer = ready(lock.lock()).unwrap();
    let fenced = lock.fenced();
    let mut inner = pin!(fenced.lock());
    assert!(poll(inner.as_mut()).is_pending(), "it asks for a token");
    for _ in 0..2 {
        ready(lock.unlock(&me)).unwrap();
    }
    assert!(!ready(theirs.is_locked()).unwrap());
    stops.let_through.add_permits(1);
    assert!(ready(inner).unwrap_err().is_lost());
    assert!(ready(theirs.try_lock()).unwrap().is_some(), "the store keeps what nobody has");
}

/// It comes to the store behind the rollback, and whether it was granted is not known.
#[test]
fn token_whose_answer_is_not_read_leaves_nothing_of_a_hold_that_was_given_back() {
    let local = Local::new();
    let stops = Stops::both(|command| matches!(command, Command::Acquire(_)));
    let (client, other) = (LockClient::new(stops.over(&local)), LockClient::new(local));
    let (lock, theirs) = (client.get_lock("orders").unwrap(), other.get_lock("orders").unwrap());
    let me = client.owner();
    let lock = lock.owned_by(&me);
    stops.let_through.add_permits(2);
    let _outer = ready(lock.lock()).unwrap();
    let fenced = lock.fenced();
    let mut inner = Box::pin(fenced.lock());
    assert!(poll(inner.as_mut()).is_pending(), "it asks for a token");
    for _ in 0..2 {
        ready(lock.unlock(&me)).unwrap();
    }
    assert!(!ready(theirs.is_locked()).unwrap());
    stops.let_through.add_permits(1);
    assert!(poll(inner.as_mut()).is_pending(), "it is granted, and not answered");
    drop(inner);
    assert!(ready(theirs.try_lock()).unwrap().is_some(), "the store keeps what nobody has");
}

/// Something else is done as soon as the queue head's command is on its way, and its answer stays away.
#[derive(Clone, Default)]
struct OnItsWay(Act);

impl Between for OnItsWay {
    type Error = OtherKind;

    async fn before(&self, command: Command<'_>) -> Result<(), OtherKind> {
        if let Command::Acquire(_) = command {
            self.0.run();
        }
        Ok(())
    }

    async fn after(&self, command: Command<'_>) -> Result<(), OtherKind> {
        if let Command::Acquire(_) = command {
            pending::<()>().await;
        }
        Ok(())
    }
}

/// Its rollback goes first. Its future is dropped then, or is kept and not polled again.
#[test]
fn attempt_of_a_queue_head_that_is_superseded_while_it_is_sent_leaves_nothing() {
    for kept in [false, true] {
        let (local, on_its_way) = (Local::new(), OnItsWay::default());
        let client = LockClient::new(over(&local, on_its_way.clone()));
        let (lock, theirs) =
            (client.get_lock("orders").unwrap(), LockClient::new(local).get_lock("orders").unwrap());
        on_its_way.0.set(move || assert!(poll(pin!(client.shutdown(SOON))).is_ready()));
        let mut asks = Box::pin(lock.lock());
        let _ = poll(asks.as_mut());
        let _asks = kept.then_some(asks);
        assert!(ready(theirs.try_lock()).unwrap().is_some(), "the store keeps what nobody has: {kept}");
    }
}

/// A store that says so at the very moment when it has granted the lease is asked twice, and not for ever.
#[test]
fn extension_of_a_lease_that_is_gone_ends_though_the_clock_stands_still() {
    let local = Local::with_runtime(ThreadRuntime::paused());
    let (client, other) = (LockClient::new(local.clone()), LockClient::new(local));
    let mut held = ready(client.get_lock("orders").unwrap().lock()).unwrap();
    ready(other.get_lock("orders").unwrap().force_unlock()).unwrap();
    assert!(ready(held.extend(HOUR)).unwrap_err().is_lost());
}

/// Another client has taken the lock between the two commands by which the inner hold comes by its token.
#[test]
fn inner_hold_whose_token_is_refused_is_none() {
    let local = Local::new();
    let stops = Stops::new(false, |command| matches!(command, Command::Acquire(_)));
    let (client, other) = (LockClient::new(stops.over(&local)), LockClient::new(local));
    let (lock, theirs) = (client.get_lock("orders").unwrap(), other.get_lock("orders").unwrap());
    let lock = lock.owned_by(&client.owner());
    stops.let_through.add_permits(1);
    let outer = ready(lock.lock()).unwrap();
    let fenced = lock.fenced();
    let mut inner = pin!(fenced.lock());
    assert!(poll(inner.as_mut()).is_pending(), "it asks for a token");
    ready(theirs.force_unlock()).unwrap();
    let _theirs = ready(theirs.lock()).unwrap();
    stops.let_through();
    assert!(ready(inner).unwrap_err().is_lost());
    assert!(!outer.is_held());
}

/// It is put into the store's queue behind another client's, and has left when the release is answered.
#[test]
fn waiter_that_leaves_while_it_is_named_listens_no_more() {
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(clock.clone());
    let stops = Stops::new(true, |command| matches!(command, Command::Release(_)));
    let (client, other) = (LockClient::new(stops.over(&local)), LockClient::new(local));
    let (lock, theirs) = (client.get_fair_lock("orders").unwrap(), other.get_fair_lock("orders").unwrap());
    let held = ready(lock.lock()).unwrap();
    let mut they_wait = pin!(theirs.lock());
    assert!(poll(they_wait.as_mut()).is_pending());
    let mut waits = Box::pin(lock.lock());
    assert!(poll(waits.as_mut()).is_pending());
    drop(held);
    let _theirs = ready(they_wait).unwrap();
    drop(waits);
    assert_eq!(client.metrics().subscriptions, 1, "the release is not answered yet");
    stops.let_through();
    clock.advance(Duration::from_nanos(1));
    assert_eq!((client.metrics().releases_pending, client.metrics().subscriptions), (0, 0));
}

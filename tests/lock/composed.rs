//! Features in combination, such as a forced unlock during a hand-off or a shutdown beside a question.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use latchwork::backend::{Failure, Runtime};
use latchwork::local::{Local, ThreadRuntime};
use latchwork::lock::Mode;
use latchwork::{Guard, Lock, LockClient, LockOptions};
use latchwork_testkit::{Bell, waker};

use crate::meanwhile::Act;
use crate::over_local::{Back, Command, Gate, There, Way, fails, goes, never, over_when};
use crate::polled::{poll, ready};
use crate::runtimes::{Differently, Differs, Task, Untimed};
use crate::stage::{Two, begun, begun_by, waits_on};

const SECOND: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);
crate::waiting::waiting_for!(SOON);

/// A lock of each kind.
const KINDS: [fn(&LockClient) -> Lock; 4] = [
    |client| client.get_lock("orders").unwrap(),
    |client| client.get_fair_lock("orders").unwrap(),
    |client| client.get_read_write_lock("orders").unwrap().read().clone(),
    |client| client.get_read_write_lock("orders").unwrap().write().clone(),
];
/// Two threads collide within nanoseconds in some of these rounds.
const ROUNDS: usize = 2_000;

/// Runs each round's closure on a second thread while `beside` runs on this one.
///
/// One thread serves all rounds, because its start takes longer than a round.
fn collide<C>(mut round: impl FnMut() -> (Box<dyn FnOnce() + Send>, C), mut beside: impl FnMut(C)) {
    let arrived = AtomicUsize::new(0);
    // Not a `Barrier`: a thread that sleeps wakes too late to collide.
    let meet = |round: usize| {
        // Ordering: Relaxed, as no other data is published.
        arrived.fetch_add(1, Ordering::Relaxed);
        // Ordering: Relaxed, as above.
        while arrived.load(Ordering::Relaxed) < (round + 1) * 2 {
            thread::yield_now();
        }
    };
    let (acts, received) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
    let (ended, ends) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            for (number, act) in received.into_iter().enumerate() {
                meet(number);
                act();
                ended.send(()).unwrap();
            }
        });
        for number in 0..ROUNDS {
            let (act, context) = round();
            acts.send(act).unwrap();
            meet(number);
            beside(context);
            ends.recv().expect("the second thread does not panic");
        }
        drop(acts);
    });
}

fn asks(way: Way, command: Command<'_>) -> bool {
    way == There && command.acquires()
}

fn answers_a_read(way: Way, command: Command<'_>) -> bool {
    way == Back && matches!(command, Command::Acquire(Mode::Read))
}

fn renews(way: Way, command: Command<'_>) -> bool {
    way == Back && command.renews()
}

fn releases(way: Way, command: Command<'_>) -> bool {
    way == There && command.releases()
}

#[track_caller]
fn assert_free(theirs: &Lock) {
    assert!(ready(theirs.try_lock()).unwrap().is_some(), "expected no lease without a guard at the store");
}

/// The waiter takes over the lease number of the previous hold, while the forced unlock is unanswered.
#[tokio::test]
async fn lease_granted_after_a_forced_unlock_survives_its_answer() {
    let forces = |way, command: Command<'_>| way == Back && command.forces();
    let Two { gate, lock, theirs, .. } = Two::gated(&Local::new(), forces);
    let held = lock.lock().await.unwrap();
    let waits = begun(lock.lock_with_lease(HOUR));
    let forced = begun(lock.force_unlock());
    drop(held);
    let next = soon("the waiter's turn", waits).await.unwrap();
    gate.open();
    assert!(forced.await.unwrap());
    assert!(next.is_held(), "expected a lease granted after the forced unlock to be held");
    next.unlock().await.unwrap();
    assert_free(&theirs);
}

/// The waiter gets the lock before the forced unlock reaches the store.
#[tokio::test]
async fn lease_that_is_granted_before_a_forced_unlock_is_lost_by_it() {
    let forces = |way, command: Command<'_>| way == There && command.forces();
    let Two { gate, lock, .. } = Two::gated(&Local::new(), forces);
    let held = lock.lock().await.unwrap();
    let waits = begun(lock.lock_with_lease(HOUR));
    let forced = begun(lock.force_unlock());
    drop(held);
    let next = soon("the waiter's turn", waits).await.unwrap();
    gate.open();
    assert!(forced.await.unwrap());
    assert!(!next.is_held(), "expected the new hold to be lost by the forced unlock");
}

/// A silent store costs one timeout, not one per reader.
#[tokio::test]
async fn forced_unlock_asks_once_about_all_leases_granted_meanwhile() {
    let (gate, renewed) = (Gate::closed(), Arc::<Mutex<Vec<usize>>>::default());
    let Two { prices, me, .. } = Two::when(&Local::new(), {
        let (gate, renewed) = (gate.clone(), Arc::clone(&renewed));
        move |way, command| match (way, command) {
            (Back, Command::Acquire(Mode::Read) | Command::ForceRelease(_)) => gate.passes(),
            (Back, Command::Renew(leases, _)) => {
                renewed.lock().unwrap().push(leases.len());
                goes()
            }
            _ => goes(),
        }
    });
    let _writes = prices.write().owned_by(&me).lock().await.unwrap();
    // Beside the write, each read asks for itself.
    let read = prices.read().owned_by(&me);
    let reads: Vec<_> = (1..=3).map(|hours| begun(read.lock_with_lease(HOUR * hours))).collect();
    let forced = begun(read.force_unlock());
    gate.let_through(reads.len());
    let mut held = Vec::new();
    for read in reads {
        held.push(soon("the answer", read).await.unwrap());
    }
    gate.open();
    assert!(forced.await.unwrap());
    assert!(
        held.iter().all(|read| !read.is_held()),
        "expected all leases granted before the forced unlock to be lost"
    );
    assert_eq!(*renewed.lock().unwrap(), [held.len()]);
}

/// The acquisition is answered after the forced unlock, or while the unlock's answer is still on the way.
#[tokio::test]
async fn lease_granted_before_a_forced_unlock_and_known_later_is_lost() {
    let stops: [fn(Way, Command<'_>) -> bool; 2] = [
        |way, command| way == Back && command.acquires(),
        |way, command| way == Back && (command.acquires() || command.forces()),
    ];
    for (lock_of, (answered_first, stops)) in
        KINDS.into_iter().flat_map(|kind| stops.into_iter().enumerate().map(move |stops| (kind, stops)))
    {
        let Two { gate, client, .. } = Two::gated(&Local::new(), stops);
        let lock = lock_of(&client);
        let asks = begun(lock.lock_with_lease(HOUR));
        let mut forced = pin!(lock.force_unlock());
        let done = poll(forced.as_mut());
        assert_eq!(done.is_pending(), answered_first == 1);
        gate.open();
        let held = soon("the answer", asks).await.unwrap();
        if done.is_pending() {
            assert!(forced.await.unwrap());
            assert!(!held.is_held(), "expected the hold granted before the forced unlock to be lost");
        }
        soon("the loss", held.lost()).await;
    }
}

/// Another client has held the lock meanwhile; a token request would lease under the lost hold's number.
#[test]
fn lost_hold_is_not_begun_anew_by_the_token_of_an_inner_hold() {
    for lock_of in KINDS {
        let Two { client, me, other, .. } = Two::of(&Local::new());
        let (lock, theirs) = (lock_of(&client).owned_by(&me), lock_of(&other));
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
    let client = LockClient::new(Local::with_runtime(Differently(clock.clone(), Untimed)));
    let guard = client.get_lock("orders").unwrap().lock_with_lease(SECOND).await.unwrap();
    let steps = AtomicUsize::new(0);
    let run = begun(guard.run(poll_fn(|_| {
        // Ordering: SeqCst for simplicity; only a counter.
        steps.fetch_add(1, Ordering::SeqCst);
        Poll::<()>::Pending
    })));
    clock.advance(SECOND * 2);
    assert!(ready(run).unwrap_err().is_lost());
    // Ordering: SeqCst, as above.
    assert_eq!(steps.load(Ordering::SeqCst), 1);
}

/// The forgotten hold ends first, while its owner still has the lock; or it is the only one.
#[test]
fn name_is_dropped_after_a_forgotten_hold() {
    for lock_of in KINDS {
        let clock = ThreadRuntime::paused();
        let client = LockClient::new(Local::with_runtime(clock.clone()));
        // Counts since the oldest live handle of the name was made.
        let acquisitions = || lock_of(&client).stats().acquisitions;
        let me = client.owner();
        let take = |lease| ready(lock_of(&client).owned_by(&me).lock_with_lease(lease)).unwrap();
        for (outer, ends_after) in [(None, 2), (Some(take), 20), (Some(take), 3)] {
            let outer = outer.map(|take| take(SECOND * 10));
            take(SECOND).forget();
            assert_ne!(acquisitions(), 0);
            clock.advance(SECOND * ends_after);
            drop(outer);
            assert_eq!(acquisitions(), 0, "expected no entry of the name after its last hold");
        }
    }
}

fn hasty() -> LockOptions {
    LockOptions::default().unpolled_limit(Duration::from_millis(20))
}

/// The owner, which holds the lock, waits for a longer lease or a token, and gains a hold with the answer.
#[tokio::test]
async fn unpolled_inner_hold_keeps_no_other_client_from_the_lock() {
    for lock_of in &KINDS[..2] {
        let Two { gate, client, me, other, .. } = Two::gated_with(&Local::new(), asks, &hasty());
        let (lock, theirs) = (lock_of(&client).owned_by(&me), lock_of(&other));
        gate.let_through(1);
        let outer = lock.lock().await.unwrap();
        let fenced = lock.fenced();
        let inner = begun(fenced.lock());
        drop(outer);
        gate.let_through(1);
        let got = soon("the other's turn", theirs.lock()).await.unwrap();
        got.unlock().await.unwrap();
        gate.open();
        let inner = soon("its own turn, once it is polled", inner).await.unwrap();
        assert!(inner.is_held() && inner.fencing_token().is_some());
        assert_eq!(client.metrics().superseded, 1);
    }
}

/// A writer's read asks the store outside of the queue.
#[tokio::test]
async fn unpolled_read_of_a_writer_keeps_the_lock_from_no_client() {
    let Two { gate, prices, me, their_prices, .. } = Two::gated_with(&Local::new(), answers_a_read, &hasty());
    let writes = prices.write().owned_by(&me).lock().await.unwrap();
    let read = prices.read().owned_by(&me);
    let reads = begun(read.lock());
    drop(writes);
    gate.open();
    soon("the other's turn", their_prices.write().lock()).await.unwrap().unlock().await.unwrap();
    assert!(soon("its own turn, once it is polled", reads).await.unwrap().is_held());
}

/// A writer's read lock on a paused clock.
struct Reads {
    clock: ThreadRuntime,
    gate: Gate,
    client: LockClient,
    lock: Lock,
    _writes: Guard,
}

impl Reads {
    const UNPOLLED_LIMIT: Duration = Duration::from_secs(2);

    /// Each answer to a read passes the gate so many times.
    fn answered_in(steps: usize) -> Self {
        let (clock, gate) = (ThreadRuntime::paused(), Gate::closed());
        let options = LockOptions::default().unpolled_limit(Self::UNPOLLED_LIMIT);
        let backend = over_when(&Local::with_runtime(clock.clone()), {
            let gate = gate.clone();
            move |way, command| {
                let passes = answers_a_read(way, command).then(|| vec![gate.clone(); steps]);
                Box::pin(async move {
                    for gate in passes.into_iter().flatten() {
                        gate.passes().await?;
                    }
                    Ok(())
                })
            }
        });
        let client = LockClient::with_options(backend, &options).unwrap();
        let (prices, me) = (client.get_read_write_lock("prices").unwrap(), client.owner());
        let _writes = ready(prices.write().owned_by(&me).lock()).unwrap();
        Self { clock, gate, client, lock: prices.read().owned_by(&me), _writes }
    }
}

/// One timer serves both reads, and fires too early for the second, which is polled in time or never.
#[test]
fn each_read_that_is_not_polled_is_given_back_in_its_time() {
    for polled in [false, true] {
        let Reads { clock, gate, client, lock, _writes } = Reads::answered_in(1);
        let [_late, in_time] = [(); 2].map(|()| begun(lock.lock()));
        for superseded in [0, 1] {
            gate.let_through(1);
            clock.advance(Reads::UNPOLLED_LIMIT / 2);
            assert_eq!(client.metrics().superseded, superseded);
        }
        // A future that is not polled is kept.
        let (held, _kept) =
            if polled { (Some(ready(in_time).unwrap()), None) } else { (None, Some(in_time)) };
        clock.advance(Reads::UNPOLLED_LIMIT / 2);
        assert_eq!(client.metrics().superseded, if polled { 1 } else { 2 });
        assert!(held.is_none_or(|held| held.is_held()));
    }
}

#[test]
fn read_polled_in_time_that_waits_on_does_not_count_as_unpolled() {
    let Reads { clock, gate, client, lock, _writes } = Reads::answered_in(2);
    let mut asks = begun(lock.lock());
    gate.let_through(1);
    waits_on(asks.as_mut());
    clock.advance(SOON);
    assert_eq!(client.metrics().superseded, 0);
    gate.let_through(1);
    assert!(ready(asks).unwrap().is_held());
}

#[tokio::test]
async fn shutdown_waits_for_what_a_writer_has_asked_to_read() {
    let Two { gate, client, prices, me, their_prices, .. } = Two::gated(&Local::new(), answers_a_read);
    let writes = prices.write().owned_by(&me).lock().await.unwrap();
    let read = prices.read().owned_by(&me);
    let reads = tokio::spawn(async move { read.lock().await.map(drop) });
    eventually("it reads", async || their_prices.read().is_locked().await.unwrap()).await;
    writes.unlock().await.unwrap();
    let error = client.shutdown(Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(error.releasing(), [prices.name().clone()]);
    gate.open();
    client.shutdown(SOON).await.unwrap();
    assert!(reads.await.unwrap().unwrap_err().is_shut_down());
    let left = their_prices.read().is_locked().await.unwrap();
    assert!(!left, "expected no lease without a guard at the store");
}

/// The hold's own lease is over, while the store keeps the outer hold's longer lease.
#[tokio::test]
async fn shutdown_releases_a_hold_that_ended_without_a_timer() {
    let clock = ThreadRuntime::paused();
    let Two { client, mine, theirs, .. } = Two::of(&Local::with_runtime(Differently(clock.clone(), Untimed)));
    let outer = mine.lock().await.unwrap();
    let inner = mine.lock_with_lease(SECOND * 5).await.unwrap();
    drop(outer);
    let shutdown = begun(client.shutdown(HOUR));
    clock.advance(SECOND * 5);
    assert!(!inner.is_held());
    ready(shutdown).unwrap();
    assert_free(&theirs);
}

/// A shutdown must see either the hold or the release.
#[test]
fn shutdown_between_a_hold_and_its_release_waits_for_both() {
    let round = || {
        let client = LockClient::new(Gate::closed().over(&Local::new(), releases));
        let held = ready(client.get_lock("orders").unwrap().lock()).unwrap();
        (Box::new(|| drop(held)) as Box<_>, client)
    };
    collide(round, |client| {
        let is_over = poll(pin!(client.shutdown(HOUR))).is_ready();
        assert!(!is_over, "expected the shutdown to wait for the answer to the release");
    });
}

/// Without back-off one process would reacquire forever, while woken waiters find the lock taken.
#[test]
fn process_that_reacquires_first_yields_to_a_notified_client() {
    let clock = ThreadRuntime::paused();
    let Two { lock, theirs, .. } = Two::of(&Local::with_runtime(clock.clone()));
    let their_hold = ready(theirs.lock()).unwrap();
    let ours = begun(lock.lock());
    ready(their_hold.unlock()).unwrap();
    let our_hold = ready(ours).unwrap();
    let waits = begun(theirs.lock());
    ready(our_hold.unlock()).unwrap();

    let mut again = begun(lock.lock());
    let their_hold = ready(waits).unwrap();
    clock.advance(SOON);
    waits_on(again.as_mut());
    ready(their_hold.unlock()).unwrap();
    assert!(ready(again).is_ok());
}

/// A runtime whose next `spawn` panics if armed.
#[derive(Clone)]
struct RunsNoTask(Arc<AtomicBool>);

impl Differs for RunsNoTask {
    fn spawns(&self, task: Task, clock: &ThreadRuntime) {
        // Ordering: SeqCst for simplicity; a test needs no less.
        assert!(!self.0.swap(false, Ordering::SeqCst), "on purpose");
        clock.spawn(task);
    }
}

/// The watchdog checks the name before the release is due for a retry; no handle keeps the name alive.
#[tokio::test]
async fn release_without_a_task_or_handle_is_retried() {
    let (clock, panics) = (ThreadRuntime::paused(), Arc::new(AtomicBool::new(false)));
    let local = Local::with_runtime(Differently(clock.clone(), RunsNoTask(Arc::clone(&panics))));
    let gate = Gate::closed();
    let client = LockClient::new(gate.over(&local, releases));
    let held = client.get_lock("orders").unwrap().lock().await.unwrap();
    // The renewal is due in 100 ms.
    clock.advance(Duration::from_millis(9900));
    // Ordering: SeqCst, as above.
    panics.store(true, Ordering::SeqCst);
    drop(held);
    assert!(!panics.load(Ordering::SeqCst), "expected the panic of the runtime");
    gate.open();
    clock.advance(SECOND * 5);
    assert_free(&LockClient::new(local).get_lock("orders").unwrap());
}

/// A release that is an effect of an event starts after the entry has become free.
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
            let waits = begun(async move { lock.lock().await.map(drop) });
            Box::new(move || drop((held, waits)))
        }),
    ];
    for (name, act) in acts {
        let round = || {
            let Two { client, theirs, .. } = Two::of(&Local::new());
            (act(&client), (client, theirs))
        };
        collide(round, |(client, theirs)| {
            let is_left = poll(pin!(client.shutdown(HOUR))).is_ready() && ready(theirs.is_locked()).unwrap();
            assert!(!is_left, "expected no lease of {name} at the store");
        });
    }
}

/// A waker may poll the shutdown in place.
#[test]
fn shutdown_polled_by_a_releases_waker_waits_for_the_answer() {
    let Two { gate, client, lock, .. } = Two::gated(&Local::new(), releases);
    let held = ready(lock.lock()).unwrap();
    let over = Bell::default();
    let waker = waker({
        let (client, over) = (client.clone(), over.clone());
        move || {
            if poll(pin!(client.shutdown(HOUR))).is_ready() {
                over.ring();
            }
        }
    });
    let shutdown = begun_by(client.shutdown(HOUR), &waker);
    let release = begun(held.unlock());
    assert_eq!(over.rung(), 0, "expected no wake-up before the answer to the release");
    gate.open();
    ready(release).unwrap();
    ready(shutdown).unwrap();
}

/// The clock stands still, so no timer fires.
#[test]
fn shutdown_ends_with_the_release_whose_caller_has_left() {
    let clock = ThreadRuntime::paused();
    let Two { gate, client, lock, .. } = Two::gated(&Local::with_runtime(clock.clone()), releases);
    let held = ready(lock.lock()).unwrap();
    drop(begun(held.unlock()));
    let shutdown = begun(client.shutdown(HOUR));
    gate.open();
    clock.advance(Duration::from_nanos(1));
    ready(shutdown).unwrap();
}

/// The retried release has removed the lease before the first release reaches the store.
#[test]
fn unlock_overtaken_by_its_retry_reports_that_it_held_the_lock() {
    let clock = ThreadRuntime::paused();
    let Two { gate, client, lock, .. } =
        Two::gated_with(&Local::with_runtime(clock.clone()), releases, &hasty());
    let held = ready(lock.lock()).unwrap();
    let unlocks = begun(held.unlock());
    clock.advance(SOON);
    // Both releases proceed, although the caller's future is not polled.
    gate.open();
    clock.advance(Duration::from_nanos(1));
    ready(unlocks).unwrap();
    assert_eq!(client.metrics().leases_lost, 0);
}

#[test]
fn shutdown_ends_with_the_refusal_of_a_writers_read() {
    let asks = |way, command: Command<'_>| way == There && matches!(command, Command::Acquire(Mode::Read));
    let Two { gate, client, prices, me, their_prices, .. } =
        Two::gated(&Local::with_runtime(ThreadRuntime::paused()), asks);
    let writes = ready(prices.write().owned_by(&me).lock()).unwrap();
    let read = prices.read().owned_by(&me);
    let reads = begun(read.lock());
    ready(writes.unlock()).unwrap();
    let _theirs = ready(their_prices.write().lock()).unwrap();
    let shutdown = begun(client.shutdown(HOUR));
    gate.open();
    assert!(ready(reads).unwrap_err().is_shut_down());
    ready(shutdown).unwrap();
}

/// No release follows for a lost lease, so the renewal has to wake the shutdown.
#[test]
fn shutdown_ends_with_a_renewal_that_finds_the_last_lease_gone() {
    let clock = ThreadRuntime::paused();
    let Two { client, lock, theirs, .. } = Two::of(&Local::with_runtime(clock.clone()));
    let _held = ready(lock.lock()).unwrap();
    ready(theirs.force_unlock()).unwrap();
    let shutdown = begun(client.shutdown(HOUR));
    clock.advance(SECOND * 11);
    let metrics = client.metrics();
    assert_eq!((metrics.leases_lost, metrics.renewals_late), (1, 0));
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

#[test]
fn loss_that_a_refused_read_brings_to_light_is_told_and_counted() {
    let Two { client, prices, me, their_prices, .. } = Two::of(&Local::new());
    let writes = ready(prices.write().owned_by(&me).lock()).unwrap();
    ready(their_prices.write().force_unlock()).unwrap();
    let _theirs = ready(their_prices.write().lock()).unwrap();
    assert!(ready(prices.read().owned_by(&me).try_lock()).unwrap().is_none());
    assert!(!writes.is_held());
    assert_eq!(client.metrics().leases_lost, 1);
}

/// The token request, sent after the renewal, has begun the lease anew before the renewal's answer arrives.
#[test]
fn extension_is_repeated_if_the_lease_is_newer_than_its_loss() {
    let (attempts, renewals) = (Gate::closed(), Gate::closed());
    let Two { mine, theirs, .. } = Two::when(&Local::new(), {
        let (attempts, renewals) = (attempts.clone(), renewals.clone());
        move |way, command| match (way, command) {
            (There, Command::Acquire(_)) => attempts.passes(),
            (Back, Command::Renew(..)) => renewals.passes(),
            _ => goes(),
        }
    });
    attempts.let_through(1);
    let mut outer = ready(mine.lock()).unwrap();
    let fenced = mine.fenced();
    renewals.let_through(1);
    let inner = begun(fenced.lock());
    ready(theirs.force_unlock()).unwrap();
    {
        let extends = begun(outer.extend(HOUR));
        attempts.open();
        assert!(ready(inner).unwrap().is_held());
        renewals.open();
        ready(extends).unwrap();
    }
    assert!(outer.remaining() > HOUR / 2);
    let kept = ready(theirs.remaining()).unwrap();
    assert!(
        kept.is_some_and(|kept| kept > HOUR / 2),
        "expected the extension at the store, and the lease lasts {kept:?}"
    );
}

/// The command has run, but the future is dropped before the answer.
#[test]
fn abandoned_extension_keeps_the_lock_no_longer_than_the_hold() {
    let clock = ThreadRuntime::paused();
    let Two { lock, theirs, .. } = Two::gated(&Local::with_runtime(clock.clone()), renews);
    let mut held = ready(lock.lock_with_lease(SECOND)).unwrap();
    drop(begun(held.extend(HOUR)));
    clock.advance(SECOND * 2);
    assert!(!held.is_held());
    assert_free(&theirs);
}

#[test]
fn late_extension_of_an_ended_hold_is_released_without_a_timer() {
    let clock = ThreadRuntime::paused();
    let Two { gate, lock, theirs, .. } =
        Two::gated(&Local::with_runtime(Differently(clock.clone(), Untimed)), renews);
    let mut held = ready(lock.lock_with_lease(SECOND)).unwrap();
    let extends = begun(held.extend(HOUR));
    clock.advance(SECOND * 2);
    gate.open();
    assert!(ready(extends).unwrap_err().is_lost());
    assert_free(&theirs);
}

/// A rollback could overtake the release, whose caller would then hear of a loss.
#[test]
fn extension_answered_after_its_hold_was_given_back_rolls_nothing_back() {
    let (renewals, releases) = (Gate::closed(), Gate::closed());
    let Two { me, mine, theirs, .. } = Two::when(&Local::new(), {
        let (renewals, releases) = (renewals.clone(), releases.clone());
        move |way, command| match (way, command) {
            (Back, Command::Renew(..)) => renewals.passes(),
            (There, Command::Release(_)) => releases.passes(),
            _ => goes(),
        }
    });
    let mut held = ready(mine.lock()).unwrap();
    let extends = begun(held.extend(HOUR));
    let release = begun(mine.unlock(&me));
    renewals.open();
    assert!(ready(extends).unwrap_err().is_lost());
    releases.open();
    ready(release).unwrap();
    assert_free(&theirs);
}

/// The token request begins the lease anew, so rolling back early would not undo a later arrival. The outcome
/// is read, or stays unknown.
#[test]
fn token_that_comes_when_its_hold_was_given_back_is_rolled_back() {
    for is_read in [true, false] {
        let stops: fn(Way, Command<'_>) -> bool = match is_read {
            true => |way, command| way == There && (command.acquires() || command.releases()),
            false => |_, command| command.acquires(),
        };
        let Two { gate, me, mine, theirs, .. } = Two::gated(&Local::new(), stops);
        gate.let_through(if is_read { 1 } else { 2 });
        let _outer = ready(mine.lock()).unwrap();
        let fenced = mine.fenced();
        let mut inner = begun(fenced.lock());
        for _ in 0..2 {
            ready(mine.unlock(&me)).unwrap();
        }
        assert!(!ready(theirs.is_locked()).unwrap());
        gate.let_through(1);
        if is_read {
            assert!(ready(inner).unwrap_err().is_lost());
        } else {
            waits_on(inner.as_mut());
            drop(inner);
        }
        assert_free(&theirs);
    }
}

/// The token request has begun the lease anew, though the client hears of a failure.
#[test]
fn token_of_a_hold_given_back_is_rolled_back_after_a_failed_answer() {
    let (asked, answers) = (AtomicUsize::new(0), Gate::closed());
    let Two { me, mine, theirs, .. } = Two::when(&Local::new(), {
        let answers = answers.clone();
        move |way, command| match (way, command) {
            // Ordering: Relaxed, as one thread counts.
            (Back, Command::Acquire(_)) if asked.fetch_add(1, Ordering::Relaxed) > 0 => {
                let answered = answers.passes();
                Box::pin(async move { answered.await.and(Err(Failure::Indeterminate)) })
            }
            (There, Command::Acquire(_)) if asked.load(Ordering::Relaxed) > 0 => answers.passes(),
            _ => goes(),
        }
    });
    let _outer = ready(mine.lock()).unwrap();
    let fenced = mine.fenced();
    let inner = begun(fenced.lock());
    for _ in 0..2 {
        ready(mine.unlock(&me)).unwrap();
    }
    answers.open();
    assert!(ready(inner).is_err());
    assert_free(&theirs);
}

/// The token request would begin a lost lease anew, and its holder would not hear of the loss.
#[test]
fn token_is_not_requested_after_an_unanswered_renewal() {
    let attempts = Arc::new(AtomicUsize::new(0));
    let Two { mine, .. } = Two::when(&Local::new(), {
        let attempts = Arc::clone(&attempts);
        move |way, command| match (way, command) {
            (There, Command::Acquire(_)) => {
                // Ordering: Relaxed, as one thread counts.
                attempts.fetch_add(1, Ordering::Relaxed);
                goes()
            }
            (Back, Command::Renew(..)) => fails(Failure::Indeterminate),
            _ => goes(),
        }
    });
    let _outer = ready(mine.lock()).unwrap();
    assert!(ready(mine.fenced().lock()).is_err());
    // Ordering: Relaxed, as above.
    assert_eq!(attempts.load(Ordering::Relaxed), 1, "expected no request for a token");
}

/// The store has released the lease that the extension names.
#[test]
fn extension_on_its_way_beside_a_merge_goes_on_by_the_newer_lease() {
    let extensions = Gate::closed();
    let Two { prices, their_prices, .. } = Two::when(&Local::new(), {
        let extensions = extensions.clone();
        move |way, command| match (way, command) {
            (There, Command::Renew(_, lease)) if lease == HOUR => extensions.passes(),
            _ => goes(),
        }
    });
    let mut older = ready(prices.read().lock_with_lease(SECOND * 30)).unwrap();
    let extends = begun(older.extend(HOUR));
    let _newer = ready(prices.read().lock_with_lease(SECOND * 60)).unwrap();
    extensions.open();
    ready(extends).unwrap();
    assert!(older.remaining() > HOUR / 2);
    assert!(ready(their_prices.read().remaining()).unwrap().is_some_and(|left| left > HOUR / 2));
}

/// Each further question would wait for the command's limit, too.
#[test]
fn forced_release_of_permits_ends_with_the_first_question_unanswered() {
    let (questions, answers) = (Arc::new(AtomicUsize::new(0)), Gate::closed());
    let Two { client, .. } = Two::when(&Local::new(), {
        let (questions, answers) = (Arc::clone(&questions), answers.clone());
        move |way, command| match (way, command) {
            (Back, Command::ForceRelease(_)) => answers.passes(),
            (There, Command::Renew(..)) => {
                // Ordering: Relaxed, as one thread counts.
                questions.fetch_add(1, Ordering::Relaxed);
                fails(Failure::Unreachable)
            }
            _ => goes(),
        }
    });
    let jobs = client.get_semaphore("jobs", 8).unwrap();
    let _earlier = ready(jobs.acquire()).unwrap();
    let forces = begun(jobs.force_release());
    let _meanwhile = [(); 3].map(|()| ready(jobs.acquire()).unwrap());
    answers.open();
    assert!(ready(forces).unwrap());
    // Ordering: Relaxed, as above.
    assert_eq!(questions.load(Ordering::Relaxed), 1);
}

#[test]
fn question_about_a_hold_given_back_meanwhile_ends() {
    let questions = Gate::closed();
    let Two { me, mine, .. } = Two::when(&Local::new(), {
        let questions = questions.clone();
        move |way, command| match (way, command) {
            (There, Command::Renew(..)) => questions.passes(),
            _ => goes(),
        }
    });
    let held = ready(mine.lock()).unwrap();
    let asks = begun(held.ensure_held());
    ready(mine.unlock(&me)).unwrap();
    questions.open();
    assert!(ready(asks).unwrap_err().is_lost());
}

/// The rollback reaches the store first; then the future is dropped, or kept without another poll.
#[test]
fn attempt_of_a_queue_head_superseded_in_flight_leaves_nothing() {
    for kept in [false, true] {
        let on_its_way = Act::default();
        let Two { client, lock, theirs, .. } = Two::when(&Local::new(), {
            let on_its_way = on_its_way.clone();
            move |way, command| match (way, command) {
                (There, Command::Acquire(_)) => {
                    on_its_way.run();
                    goes()
                }
                // The answer never comes.
                (Back, Command::Acquire(_)) => never(),
                _ => goes(),
            }
        });
        on_its_way.set(move || assert!(poll(pin!(client.shutdown(SOON))).is_ready()));
        let mut asks = Box::pin(lock.lock());
        let _ = poll(asks.as_mut());
        let _asks = kept.then_some(asks);
        assert_free(&theirs);
    }
}

/// If the lease vanishes at the moment of its grant, the store is asked twice and not forever.
#[test]
fn extension_of_a_vanished_lease_ends_although_the_clock_stops() {
    let Two { lock, theirs, .. } = Two::of(&Local::with_runtime(ThreadRuntime::paused()));
    let mut held = ready(lock.lock()).unwrap();
    ready(theirs.force_unlock()).unwrap();
    assert!(ready(held.extend(HOUR)).unwrap_err().is_lost());
}

/// Another client takes the lock before the token request reaches the store.
#[test]
fn inner_hold_whose_token_is_refused_is_none() {
    let Two { gate, mine, theirs, .. } = Two::gated(&Local::new(), asks);
    gate.let_through(1);
    let outer = ready(mine.lock()).unwrap();
    let fenced = mine.fenced();
    let inner = begun(fenced.lock());
    ready(theirs.force_unlock()).unwrap();
    let _theirs = ready(theirs.lock()).unwrap();
    gate.open();
    assert!(ready(inner).unwrap_err().is_lost());
    assert!(!outer.is_held());
}

/// The release enqueues the waiter behind another client's waiter; the waiter leaves before the answer.
#[test]
fn waiter_that_leaves_while_it_is_named_listens_no_more() {
    let clock = ThreadRuntime::paused();
    let answers = |way, command: Command<'_>| way == Back && command.releases();
    let Two { gate, client, other, .. } = Two::gated(&Local::with_runtime(clock.clone()), answers);
    let [lock, theirs] = [&client, &other].map(KINDS[1]);
    let held = ready(lock.lock()).unwrap();
    let they_wait = begun(theirs.lock());
    let waits = begun(lock.lock());
    drop(held);
    let _theirs = ready(they_wait).unwrap();
    drop(waits);
    assert_eq!(
        client.metrics().subscriptions,
        1,
        "expected the subscription to stay until the answer to the release"
    );
    gate.open();
    clock.advance(Duration::from_nanos(1));
    assert_eq!((client.metrics().releases_pending, client.metrics().subscriptions), (0, 0));
}

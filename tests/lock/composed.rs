//! Features in combination, such as a forced unlock during a hand-off or a shutdown beside a question.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use latchwork::backend::Runtime;
use latchwork::local::{Local, ThreadRuntime};
use latchwork::lock::Mode;
use latchwork::{Guard, Lock, LockClient, LockOptions, Owner};
use latchwork_testkit::{Bell, waker};

use crate::meanwhile::Act;
use crate::over_local::{Back, Command, Gate, There, Way, goes, never, over_when};
use crate::polled::{poll, poll_by, ready};
use crate::runtimes::{Differently, Differs, Task, Untimed};

const SOON: Duration = Duration::from_secs(10);
const HOUR: Duration = Duration::from_secs(3600);
/// A lock of each kind.
const KINDS: [fn(&LockClient) -> Lock; 4] = [
    |client| client.get_lock("orders").unwrap(),
    |client| client.get_fair_lock("orders").unwrap(),
    |client| client.get_read_write_lock("orders").unwrap().read().clone(),
    |client| client.get_read_write_lock("orders").unwrap().write().clone(),
];
/// Two threads collide within nanoseconds in some of these rounds.
const ROUNDS: usize = 5_000;
crate::waiting::waiting_for!(SOON);

/// The waiter takes over the lease number of the previous hold, while the forced unlock is unanswered.
#[tokio::test]
async fn lease_granted_after_a_forced_unlock_survives_its_answer() {
    let (local, gate) = (Local::new(), Gate::closed());
    let client = LockClient::new(gate.over(&local, |way, command| way == Back && command.forces()));
    let other = LockClient::new(local);
    let (lock, theirs) = (client.get_lock("orders").unwrap(), other.get_lock("orders").unwrap());
    let held = lock.lock().await.unwrap();
    let mut waits = pin!(lock.lock_with_lease(HOUR));
    assert!(poll(waits.as_mut()).is_pending());
    let mut forced = pin!(lock.force_unlock());
    assert!(poll(forced.as_mut()).is_pending(), "expected the executed forced unlock to wait for its answer");
    drop(held);
    let next = soon("the waiter's turn", waits).await.unwrap();
    gate.open();
    assert!(forced.await.unwrap());
    assert!(next.is_held(), "expected a lease granted after the forced unlock to be held");
    next.unlock().await.unwrap();
    assert!(theirs.try_lock().await.unwrap().is_some(), "expected no lease without a guard at the store");
}

/// The waiter gets the lock before the forced unlock reaches the store.
#[tokio::test]
async fn lease_that_is_granted_before_a_forced_unlock_is_lost_by_it() {
    let gate = Gate::closed();
    let client = LockClient::new(gate.over(&Local::new(), |way, command| way == There && command.forces()));
    let lock = client.get_lock("orders").unwrap();
    let held = lock.lock().await.unwrap();
    let mut waits = pin!(lock.lock_with_lease(HOUR));
    assert!(poll(waits.as_mut()).is_pending());
    let mut forced = pin!(lock.force_unlock());
    assert!(poll(forced.as_mut()).is_pending(), "expected the forced unlock to wait on its way to the store");
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
    let backend = over_when(&Local::new(), {
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
    let client = LockClient::new(backend);
    let (both, owner) = (client.get_read_write_lock("orders").unwrap(), client.owner());
    let _writes = both.write().owned_by(&owner).lock().await.unwrap();
    // Beside the write, each read asks for itself.
    let read = both.read().owned_by(&owner);
    let mut reads: Vec<_> = (1..=3).map(|hours| Box::pin(read.lock_with_lease(HOUR * hours))).collect();
    assert!(reads.iter_mut().all(|read| poll(read.as_mut()).is_pending()));
    let mut forced = pin!(read.force_unlock());
    assert!(poll(forced.as_mut()).is_pending(), "expected the executed forced unlock to wait for its answer");
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
        let gate = Gate::closed();
        let client = LockClient::new(gate.over(&Local::new(), stops));
        let lock = lock_of(&client);
        let mut asks = pin!(lock.lock_with_lease(HOUR));
        assert!(poll(asks.as_mut()).is_pending(), "expected the granted attempt to wait for its answer");
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
    let client = LockClient::new(Local::with_runtime(Differently(clock.clone(), Untimed)));
    let guard = client.get_lock("orders").unwrap().lock_with_lease(Duration::from_secs(1)).await.unwrap();
    let steps = AtomicUsize::new(0);
    let mut run = pin!(guard.run(poll_fn(|_| {
        // Ordering: SeqCst for simplicity; only a counter.
        steps.fetch_add(1, Ordering::SeqCst);
        Poll::<()>::Pending
    })));
    assert!(poll(run.as_mut()).is_pending());
    clock.advance(Duration::from_secs(2));
    let Poll::Ready(outcome) = poll(run.as_mut()) else {
        panic!("expected the end of the work with its lease")
    };
    assert!(outcome.unwrap_err().is_lost());
    // Ordering: SeqCst, as above.
    assert_eq!(steps.load(Ordering::SeqCst), 1);
}

/// Returns the acquisitions since the oldest live handle of the name was made.
fn acquisitions(client: &LockClient, of: fn(&LockClient) -> Lock) -> u64 {
    of(client).stats().acquisitions
}

/// The forgotten hold ends first, while its owner still has the lock.
#[test]
fn name_is_dropped_after_a_hold_forgotten_beside_a_guard() {
    for lock_of in KINDS {
        let clock = ThreadRuntime::paused();
        let client = LockClient::new(Local::with_runtime(clock.clone()));
        let me: Owner = client.owner();
        let take = |lease| ready(lock_of(&client).owned_by(&me).lock_with_lease(lease)).unwrap();
        for ends_by_itself in [false, true] {
            let (outer, inner) = (take(Duration::from_secs(10)), take(Duration::from_secs(1)));
            inner.forget();
            clock.advance(Duration::from_secs(if ends_by_itself { 20 } else { 3 }));
            drop(outer);
            assert_eq!(
                acquisitions(&client, lock_of),
                0,
                "expected no entry of the name after its last hold"
            );
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
        let (local, gate) = (Local::new(), Gate::closed());
        let backend = gate.over(&local, |way, command| way == There && command.acquires());
        let client = LockClient::with_options(backend, &hasty()).unwrap();
        let other = LockClient::new(local);
        let (lock, theirs) = (lock_of(&client).owned_by(&client.owner()), lock_of(&other));
        gate.let_through(1);
        let outer = lock.lock().await.unwrap();
        let fenced = lock.fenced();
        let mut inner = pin!(fenced.lock());
        assert!(poll(inner.as_mut()).is_pending(), "expected the inner acquisition to wait for its token");
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

fn answers_a_read(way: Way, command: Command<'_>) -> bool {
    way == Back && matches!(command, Command::Acquire(Mode::Read))
}

/// A writer's read asks the store outside of the queue.
#[tokio::test]
async fn unpolled_read_of_a_writer_keeps_the_lock_from_no_client() {
    let (local, gate) = (Local::new(), Gate::closed());
    let client = LockClient::with_options(gate.over(&local, answers_a_read), &hasty()).unwrap();
    let other = LockClient::new(local);
    let (prices, theirs) =
        (client.get_read_write_lock("prices").unwrap(), other.get_read_write_lock("prices").unwrap());
    let me = client.owner();
    let writes = prices.write().owned_by(&me).lock().await.unwrap();
    let read = prices.read().owned_by(&me);
    let mut reads = pin!(read.lock());
    assert!(poll(reads.as_mut()).is_pending(), "expected the writer's read to wait for the store");
    drop(writes);
    gate.open();
    soon("the other's turn", theirs.write().lock()).await.unwrap().unlock().await.unwrap();
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

/// The check that takes the first unpolled grant back comes too early for the second.
#[test]
fn unpolled_read_keeps_its_grant_beside_an_overdue_one() {
    let Reads { clock, gate, client, lock, _writes } = Reads::answered_in(1);
    let [mut late, mut in_time] = [(); 2].map(|()| Box::pin(lock.lock()));
    assert!(
        poll(late.as_mut()).is_pending() && poll(in_time.as_mut()).is_pending(),
        "expected both reads to wait for the store"
    );
    for _ in 0..2 {
        gate.let_through(1);
        clock.advance(Reads::UNPOLLED_LIMIT / 2);
    }
    assert_eq!(client.metrics().superseded, 1);
    let Poll::Ready(Ok(held)) = poll(in_time.as_mut()) else {
        panic!("expected the grant of the first attempt")
    };
    assert!(held.is_held());
}

#[tokio::test]
async fn shutdown_waits_for_what_a_writer_has_asked_to_read() {
    let (local, gate) = (Local::new(), Gate::closed());
    let (client, other) = (LockClient::new(gate.over(&local, answers_a_read)), LockClient::new(local));
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
    gate.open();
    client.shutdown(SOON).await.unwrap();
    assert!(reads.await.unwrap().unwrap_err().is_shut_down());
    assert!(!theirs.read().is_locked().await.unwrap(), "expected no lease without a guard at the store");
}

/// The hold's own lease is over, while the store keeps the outer hold's longer lease.
#[tokio::test]
async fn shutdown_releases_a_hold_that_ended_without_a_timer() {
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(Differently(clock.clone(), Untimed));
    let (client, other) = (LockClient::new(local.clone()), LockClient::new(local));
    let lock = client.get_lock("orders").unwrap().owned_by(&client.owner());
    let outer = lock.lock().await.unwrap();
    let inner = lock.lock_with_lease(Duration::from_secs(5)).await.unwrap();
    drop(outer);
    let mut shutdown = pin!(client.shutdown(HOUR));
    assert!(poll(shutdown.as_mut()).is_pending(), "expected the shutdown to wait for the hold");
    clock.advance(Duration::from_secs(5));
    assert!(!inner.is_held());
    let Poll::Ready(Ok(())) = poll(shutdown.as_mut()) else { panic!("nothing is held") };
    let free = other.get_lock("orders").unwrap().try_lock().await.unwrap().is_some();
    assert!(free, "expected no lease at the store after the shutdown");
}

fn releases(way: Way, command: Command<'_>) -> bool {
    way == There && command.releases()
}

/// A shutdown must see either the hold or the release.
#[test]
fn shutdown_between_a_hold_and_its_release_waits_for_both() {
    for _ in 0..ROUNDS {
        let client = LockClient::new(Gate::closed().over(&Local::new(), releases));
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
        assert!(!is_over, "expected the shutdown to wait for the answer to the release");
    }
}

/// Without back-off one process would reacquire forever, while woken waiters find the lock taken.
#[test]
fn process_that_reacquires_first_yields_to_a_notified_client() {
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(clock.clone());
    let (client, other) = (LockClient::new(local.clone()), LockClient::new(local));
    let (lock, theirs) = (client.get_lock("orders").unwrap(), other.get_lock("orders").unwrap());
    let their_hold = ready(theirs.lock()).unwrap();
    let mut ours = pin!(lock.lock());
    assert!(poll(ours.as_mut()).is_pending(), "expected the waiter to wait for the other client");
    ready(their_hold.unlock()).unwrap();
    let our_hold = ready(ours).unwrap();
    let mut waits = pin!(theirs.lock());
    assert!(poll(waits.as_mut()).is_pending(), "expected the other client to wait for this one");
    ready(our_hold.unlock()).unwrap();

    let mut again = pin!(lock.lock());
    assert!(
        poll(again.as_mut()).is_pending(),
        "expected the releasing client to wait for the notified client"
    );
    let their_hold = ready(waits).unwrap();
    clock.advance(SOON);
    assert!(poll(again.as_mut()).is_pending(), "expected the releasing client to wait for the other client");
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
    let (client, other) = (LockClient::new(gate.over(&local, releases)), LockClient::new(local));
    let held = client.get_lock("orders").unwrap().lock().await.unwrap();
    // The renewal is due in 100 ms.
    clock.advance(Duration::from_millis(9900));
    // Ordering: SeqCst, as above.
    panics.store(true, Ordering::SeqCst);
    drop(held);
    assert!(!panics.load(Ordering::SeqCst), "expected the panic of the runtime");
    gate.open();
    clock.advance(Duration::from_secs(5));
    let free = other.get_lock("orders").unwrap().try_lock().await.unwrap().is_some();
    assert!(free, "expected a free lock after the retry of the release");
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
            assert!(!is_left, "expected no lease of {name} at the store");
        }
    }
}

/// A waker may poll the shutdown in place.
#[test]
fn shutdown_polled_by_a_releases_waker_waits_for_the_answer() {
    let gate = Gate::closed();
    let client = LockClient::new(gate.over(&Local::new(), releases));
    let held = ready(client.get_lock("orders").unwrap().lock()).unwrap();
    let over = Bell::default();
    let waker = waker({
        let (client, over) = (client.clone(), over.clone());
        move || {
            if poll(pin!(client.shutdown(HOUR))).is_ready() {
                over.ring();
            }
        }
    });
    let mut shutdown = pin!(client.shutdown(HOUR));
    assert!(poll_by(shutdown.as_mut(), &waker).is_pending(), "expected the shutdown to wait for the hold");
    let mut release = pin!(held.unlock());
    assert!(poll(release.as_mut()).is_pending());
    assert_eq!(over.rung(), 0, "expected no wake-up before the answer to the release");
    gate.open();
    ready(release).unwrap();
    ready(shutdown).unwrap();
}

/// The clock stands still, so no timer fires.
#[test]
fn shutdown_ends_with_the_release_whose_caller_has_left() {
    let (gate, clock) = (Gate::closed(), ThreadRuntime::paused());
    let client = LockClient::new(gate.over(&Local::with_runtime(clock.clone()), releases));
    let lock = client.get_lock("orders").unwrap();
    let held = ready(lock.lock()).unwrap();
    let mut release = Box::pin(held.unlock());
    assert!(poll(release.as_mut()).is_pending());
    drop(release);
    let mut shutdown = pin!(client.shutdown(HOUR));
    assert!(
        poll(shutdown.as_mut()).is_pending(),
        "expected the shutdown to wait for the answer to the release"
    );
    gate.open();
    clock.advance(Duration::from_nanos(1));
    assert!(poll(shutdown).is_ready(), "expected the end of the shutdown after the answer");
}

#[test]
fn name_is_dropped_after_a_forgotten_hold_ended_by_itself() {
    let clock = ThreadRuntime::paused();
    let client = LockClient::new(Local::with_runtime(clock.clone()));
    let lock_of: fn(&LockClient) -> Lock = |client| client.get_lock("orders").unwrap();
    ready(lock_of(&client).lock_with_lease(Duration::from_secs(1))).unwrap().forget();
    assert_eq!(acquisitions(&client, lock_of), 1);
    clock.advance(Duration::from_secs(2));
    assert_eq!(acquisitions(&client, lock_of), 0, "expected no entry of the name after its last hold");
}

/// The retried release has removed the lease before the first release reaches the store.
#[test]
fn unlock_overtaken_by_its_retry_reports_that_it_held_the_lock() {
    let (gate, clock) = (Gate::closed(), ThreadRuntime::paused());
    let backend = gate.over(&Local::with_runtime(clock.clone()), releases);
    let client = LockClient::with_options(backend, &hasty()).unwrap();
    let held = ready(client.get_lock("orders").unwrap().lock()).unwrap();
    let mut unlocks = pin!(held.unlock());
    assert!(poll(unlocks.as_mut()).is_pending(), "expected the unlock to wait for its answer");
    clock.advance(SOON);
    // Both releases proceed, although the caller's future is not polled.
    gate.open();
    clock.advance(Duration::from_nanos(1));
    ready(unlocks).unwrap();
    assert_eq!(client.metrics().leases_lost, 0);
}

#[test]
fn shutdown_ends_with_the_refusal_of_a_writers_read() {
    let (gate, local) = (Gate::closed(), Local::with_runtime(ThreadRuntime::paused()));
    let asks = |way, command: Command<'_>| way == There && matches!(command, Command::Acquire(Mode::Read));
    let (client, other) = (LockClient::new(gate.over(&local, asks)), LockClient::new(local));
    let (prices, theirs) =
        (client.get_read_write_lock("prices").unwrap(), other.get_read_write_lock("prices").unwrap());
    let me = client.owner();
    let writes = ready(prices.write().owned_by(&me).lock()).unwrap();
    let read = prices.read().owned_by(&me);
    let mut reads = pin!(read.lock());
    assert!(poll(reads.as_mut()).is_pending(), "expected the writer's read to wait for the store");
    ready(writes.unlock()).unwrap();
    let _theirs = ready(theirs.write().lock()).unwrap();
    let mut shutdown = pin!(client.shutdown(HOUR));
    assert!(
        poll(shutdown.as_mut()).is_pending(),
        "expected the shutdown to wait for the attempt that may be granted"
    );
    gate.open();
    assert!(ready(reads).unwrap_err().is_shut_down());
    ready(shutdown).unwrap();
}

/// No release follows for a lost lease, so the renewal has to wake the shutdown.
#[test]
fn shutdown_ends_with_a_renewal_that_finds_the_last_lease_gone() {
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(clock.clone());
    let (client, other) = (LockClient::new(local.clone()), LockClient::new(local));
    let _held = ready(client.get_lock("orders").unwrap().lock()).unwrap();
    ready(other.get_lock("orders").unwrap().force_unlock()).unwrap();
    let mut shutdown = pin!(client.shutdown(HOUR));
    assert!(poll(shutdown.as_mut()).is_pending(), "expected the shutdown to wait for the hold");
    clock.advance(Duration::from_secs(11));
    let metrics = client.metrics();
    assert_eq!(
        (metrics.leases_lost, metrics.renewals_late),
        (1, 0),
        "expected one lost lease and no late renewal"
    );
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

/// One timer serves both reads, and fires too early for the second.
#[test]
fn each_read_that_is_not_polled_is_given_back_in_its_time() {
    let Reads { clock, gate, client, lock, _writes } = Reads::answered_in(1);
    let mut asks = [(); 2].map(|()| Box::pin(lock.lock()));
    assert!(
        asks.iter_mut().all(|asks| poll(asks.as_mut()).is_pending()),
        "expected all reads to wait for the store"
    );
    for superseded in [0, 1, 2] {
        gate.let_through(1);
        clock.advance(Reads::UNPOLLED_LIMIT / 2);
        assert_eq!(client.metrics().superseded, superseded);
    }
}

#[test]
fn read_polled_in_time_that_waits_on_does_not_count_as_unpolled() {
    let Reads { clock, gate, client, lock, _writes } = Reads::answered_in(2);
    let mut asks = pin!(lock.lock());
    assert!(poll(asks.as_mut()).is_pending());
    gate.let_through(1);
    assert!(poll(asks.as_mut()).is_pending(), "expected the read to wait for its second step");
    clock.advance(SOON);
    assert_eq!(client.metrics().superseded, 0);
    gate.let_through(1);
    assert!(ready(asks).unwrap().is_held());
}

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

/// The token request, sent after the renewal, has begun the lease anew before the renewal's answer arrives.
#[test]
fn extension_is_repeated_if_the_lease_is_newer_than_its_loss() {
    let (local, asks, renewals) = (Local::new(), Gate::closed(), Gate::closed());
    let backend = over_when(&local, {
        let (asks, renewals) = (asks.clone(), renewals.clone());
        move |way, command| match (way, command) {
            (There, Command::Acquire(_)) => asks.passes(),
            (Back, Command::Renew(..)) => renewals.passes(),
            _ => goes(),
        }
    });
    let (client, other) = (LockClient::new(backend), LockClient::new(local));
    let (lock, theirs) = (client.get_lock("orders").unwrap(), other.get_lock("orders").unwrap());
    let lock = lock.owned_by(&client.owner());
    asks.let_through(1);
    let mut outer = ready(lock.lock()).unwrap();
    let fenced = lock.fenced();
    let mut inner = pin!(fenced.lock());
    renewals.let_through(1);
    assert!(poll(inner.as_mut()).is_pending(), "expected the inner acquisition to wait for its token");
    ready(theirs.force_unlock()).unwrap();
    {
        let mut extends = pin!(outer.extend(HOUR));
        assert!(
            poll(extends.as_mut()).is_pending(),
            "expected the extension to wait after the report of a lost lease"
        );
        asks.open();
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
    let local = Local::with_runtime(clock.clone());
    let backend = Gate::closed().over(&local, |way, command| way == Back && command.renews());
    let (client, other) = (LockClient::new(backend), LockClient::new(local));
    let lock = client.get_lock("orders").unwrap();
    let mut held = ready(lock.lock_with_lease(Duration::from_secs(1))).unwrap();
    assert!(poll(pin!(held.extend(HOUR))).is_pending());
    clock.advance(Duration::from_secs(2));
    assert!(!held.is_held());
    let free = ready(other.get_lock("orders").unwrap().try_lock()).unwrap().is_some();
    assert!(free, "expected no lease without a guard at the store");
}

#[test]
fn late_extension_of_an_ended_hold_is_released_without_a_timer() {
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(Differently(clock.clone(), Untimed));
    let gate = Gate::closed();
    let backend = gate.over(&local, |way, command| way == Back && command.renews());
    let (client, other) = (LockClient::new(backend), LockClient::new(local));
    let lock = client.get_lock("orders").unwrap();
    let mut held = ready(lock.lock_with_lease(Duration::from_secs(1))).unwrap();
    let mut extends = Box::pin(held.extend(HOUR));
    assert!(poll(extends.as_mut()).is_pending());
    clock.advance(Duration::from_secs(2));
    gate.open();
    assert!(ready(extends).unwrap_err().is_lost());
    let free = ready(other.get_lock("orders").unwrap().try_lock()).unwrap().is_some();
    assert!(free, "expected no lease without a guard at the store");
}

/// The token request begins the lease anew, so rolling back early would not undo a later arrival.
#[test]
fn token_that_comes_when_its_hold_was_given_back_is_rolled_back() {
    let (local, gate) = (Local::new(), Gate::closed());
    let backend =
        gate.over(&local, |way, command| way == There && (command.acquires() || command.releases()));
    let (client, other) = (LockClient::new(backend), LockClient::new(local));
    let (lock, theirs) = (client.get_lock("orders").unwrap(), other.get_lock("orders").unwrap());
    let me = client.owner();
    let lock = lock.owned_by(&me);
    gate.let_through(1);
    let _outer = ready(lock.lock()).unwrap();
    let fenced = lock.fenced();
    let mut inner = pin!(fenced.lock());
    assert!(poll(inner.as_mut()).is_pending(), "expected the inner acquisition to wait for its token");
    for _ in 0..2 {
        ready(lock.unlock(&me)).unwrap();
    }
    assert!(!ready(theirs.is_locked()).unwrap());
    gate.let_through(1);
    assert!(ready(inner).unwrap_err().is_lost());
    assert!(ready(theirs.try_lock()).unwrap().is_some(), "expected no lease without a guard at the store");
}

/// The request reaches the store after the rollback, and its outcome stays unknown.
#[test]
fn unread_token_request_leaves_nothing_of_a_released_hold() {
    let (local, gate) = (Local::new(), Gate::closed());
    let backend = gate.over(&local, |_, command| command.acquires());
    let (client, other) = (LockClient::new(backend), LockClient::new(local));
    let (lock, theirs) = (client.get_lock("orders").unwrap(), other.get_lock("orders").unwrap());
    let me = client.owner();
    let lock = lock.owned_by(&me);
    gate.let_through(2);
    let _outer = ready(lock.lock()).unwrap();
    let fenced = lock.fenced();
    let mut inner = Box::pin(fenced.lock());
    assert!(poll(inner.as_mut()).is_pending(), "expected the inner acquisition to wait for its token");
    for _ in 0..2 {
        ready(lock.unlock(&me)).unwrap();
    }
    assert!(!ready(theirs.is_locked()).unwrap());
    gate.let_through(1);
    assert!(poll(inner.as_mut()).is_pending(), "expected the granted acquisition to wait for its answer");
    drop(inner);
    assert!(ready(theirs.try_lock()).unwrap().is_some(), "expected no lease without a guard at the store");
}

/// The rollback reaches the store first; then the future is dropped, or kept without another poll.
#[test]
fn attempt_of_a_queue_head_superseded_in_flight_leaves_nothing() {
    for kept in [false, true] {
        let (local, on_its_way) = (Local::new(), Act::default());
        let backend = over_when(&local, {
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
        let client = LockClient::new(backend);
        let (lock, theirs) =
            (client.get_lock("orders").unwrap(), LockClient::new(local).get_lock("orders").unwrap());
        on_its_way.set(move || assert!(poll(pin!(client.shutdown(SOON))).is_ready()));
        let mut asks = Box::pin(lock.lock());
        let _ = poll(asks.as_mut());
        let _asks = kept.then_some(asks);
        assert!(
            ready(theirs.try_lock()).unwrap().is_some(),
            "expected a free lock, and the store keeps a lease without a guard (future kept: {kept})"
        );
    }
}

/// If the lease vanishes at the moment of its grant, the store is asked twice and not forever.
#[test]
fn extension_of_a_vanished_lease_ends_although_the_clock_stops() {
    let local = Local::with_runtime(ThreadRuntime::paused());
    let (client, other) = (LockClient::new(local.clone()), LockClient::new(local));
    let mut held = ready(client.get_lock("orders").unwrap().lock()).unwrap();
    ready(other.get_lock("orders").unwrap().force_unlock()).unwrap();
    assert!(ready(held.extend(HOUR)).unwrap_err().is_lost());
}

/// Another client takes the lock before the token request reaches the store.
#[test]
fn inner_hold_whose_token_is_refused_is_none() {
    let (local, gate) = (Local::new(), Gate::closed());
    let backend = gate.over(&local, |way, command| way == There && command.acquires());
    let (client, other) = (LockClient::new(backend), LockClient::new(local));
    let (lock, theirs) = (client.get_lock("orders").unwrap(), other.get_lock("orders").unwrap());
    let lock = lock.owned_by(&client.owner());
    gate.let_through(1);
    let outer = ready(lock.lock()).unwrap();
    let fenced = lock.fenced();
    let mut inner = pin!(fenced.lock());
    assert!(poll(inner.as_mut()).is_pending(), "expected the inner acquisition to wait for its token");
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
    let local = Local::with_runtime(clock.clone());
    let gate = Gate::closed();
    let backend = gate.over(&local, |way, command| way == Back && command.releases());
    let (client, other) = (LockClient::new(backend), LockClient::new(local));
    let (lock, theirs) = (client.get_fair_lock("orders").unwrap(), other.get_fair_lock("orders").unwrap());
    let held = ready(lock.lock()).unwrap();
    let mut they_wait = pin!(theirs.lock());
    assert!(poll(they_wait.as_mut()).is_pending());
    let mut waits = Box::pin(lock.lock());
    assert!(poll(waits.as_mut()).is_pending());
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

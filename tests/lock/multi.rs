//! Several names at once: `MultiLock`.

use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use latchwork::backend::Failure;
use latchwork::local::{Local, ThreadRuntime};
use latchwork::{Lease, LeaseError, Lock, LockClient, LockError, LossReason, MultiLockError, blocking};
use latchwork_testkit::waker;

use crate::clashing::{self, lock, set};
use crate::over_local::{Between, Command, Fate, There, Way, never, over};
use crate::polled::{poll, poll_by, ready};
use crate::stage::begun;

const SECOND: Duration = Duration::from_secs(1);
crate::waiting::waiting_for!(Duration::from_secs(60));

fn held(client: &LockClient) -> String {
    let mut names: Vec<String> = client.held().iter().map(|held| held.name.to_string()).collect();
    names.sort();
    names.join(" ")
}

/// Two clients over one store in memory, by a clock that the test moves.
fn two_clients() -> (ThreadRuntime, LockClient, LockClient) {
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(clock.clone());
    (clock, LockClient::new(local.clone()), LockClient::new(local))
}

#[track_caller]
fn now<T>(polled: Poll<T>) -> T {
    let Poll::Ready(output) = polled else { panic!("expected a ready future") };
    output
}

fn refused(client: &LockClient, locks: &[Lock]) -> MultiLockError {
    match client.get_multi_lock(locks) {
        Err(error @ LockError::MultiLock(_)) => {
            assert!(
                error.is_refused() && !error.is_retryable() && error.to_string().contains("; "),
                "{error}"
            );
            let LockError::MultiLock(reason) = error else { unreachable!() };
            reason
        }
        other => panic!("expected an error, and got {other:?}"),
    }
}

#[test]
fn all_names_are_taken_or_none() {
    let (_, ours, theirs) = two_clients();
    let names = set(&ours, "c fair:a read:d write:b");
    assert_eq!(names.names().map(ToString::to_string).collect::<Vec<_>>(), ["a", "b", "c", "d"]);
    for taken in ["fair:a", "read:b", "c", "write:d"] {
        let elsewhere = ready(lock(&theirs, taken).lock()).unwrap();
        assert!(ready(names.try_lock()).unwrap().is_none());
        assert_eq!(held(&ours), "", "expected nothing taken beside {taken}");
        drop(elsewhere);
    }
    let guard = ready(names.try_lock()).unwrap().expect("all are free");
    assert!(held(&ours) == "a b c d" && guard.is_held() && guard.guards().len() == 4);
    assert!(ready(set(&theirs, "c e").try_lock()).unwrap().is_none() && held(&theirs).is_empty());
    assert!(ready(set(&theirs, "read:d e").try_lock()).unwrap().is_some(), "expected shared reads");
    drop(guard);
    assert_eq!(held(&ours), "", "expected all given back by the drop");
    ready(ready(names.lock()).unwrap().unlock()).unwrap();
    assert_eq!(held(&ours), "", "expected all given back by the unlock");
}

#[test]
fn sets_that_cannot_be_one_lock_are_refused() {
    let (_, client, other) = two_clients();
    let [a, b] = ["a", "b"].map(|name| lock(&client, name));
    let (me, you) = (client.owner(), client.owner());
    let name = || a.name().clone();
    assert_eq!(refused(&client, &[]), MultiLockError::Empty);
    assert_eq!(
        refused(&client, &[b.clone(), lock(&other, "a")]),
        MultiLockError::OtherClient { name: name() }
    );
    for kinds in [["a", "fair:a"], ["read:a", "write:a"]] {
        let locks = kinds.map(|kind| lock(&client, kind));
        assert!(matches!(refused(&client, &locks), MultiLockError::TwoKinds { .. }));
    }
    for twice in [[a.owned_by(&me), a.clone()], [a.owned_by(&me), a.owned_by(&you)]] {
        assert_eq!(refused(&client, &twice), MultiLockError::TwoOwners { name: name() });
    }
    let short = ready(set(&client, "a b").lock_with_lease(Duration::ZERO)).unwrap_err();
    assert!(matches!(short, LockError::Lease(LeaseError::TooShort)) && held(&client).is_empty());
}

#[test]
fn name_given_twice_is_taken_once() {
    let (_, client, _) = two_clients();
    let a = lock(&client, "a");
    let guard = ready(client.get_multi_lock([&a, &a.fenced(), &a]).unwrap().lock()).unwrap();
    assert!(guard.guards().len() == 1 && guard.fencing_token("a").is_some());
    assert_eq!(guard.fencing_token("b"), None);
    ready(guard.unlock()).unwrap();
    // An owner takes a name again beside its outer hold, which stays.
    let me = client.owner();
    let mine = [a.owned_by(&me), a.owned_by(&me), lock(&client, "b").owned_by(&me)];
    let outer = ready(mine[0].lock()).unwrap();
    drop(ready(client.get_multi_lock(&mine).unwrap().lock()).unwrap());
    assert_eq!(held(&client), "a");
    ready(outer.unlock()).unwrap();
}

#[test]
fn limit_is_one_for_all_names() {
    let (clock, ours, theirs) = two_clients();
    let [a, b] = ["a", "b"].map(|name| ready(lock(&theirs, name).lock()).unwrap());
    let names = set(&ours, "a b");
    let mut wait = begun(names.try_lock_for(10 * SECOND, Lease::Watched));
    clock.advance(6 * SECOND);
    drop(a);
    assert!(poll(wait.as_mut()).is_pending());
    assert_eq!(held(&ours), "a");
    clock.advance(4 * SECOND);
    assert!(now(poll(wait.as_mut())).unwrap().is_none() && held(&ours).is_empty());
    drop(b);
}

/// The single holder of `b` waits for `a`, which the set holds while it waits for `b`.
#[test]
fn cycle_through_a_holder_of_a_single_name_dissolves() {
    let (clock, ours, theirs) = two_clients();
    let [a, b] = ["a", "b"].map(|name| lock(&theirs, name));
    let has_b = ready(b.lock()).unwrap();
    let names = set(&ours, "b a");
    let mut all = begun(names.lock());
    assert_eq!(held(&ours), "a");
    let mut nested = begun(a.lock());
    let late = lock(&ours, "b");
    let mut late = begun(late.lock());
    clock.advance(SECOND);
    assert!(poll(all.as_mut()).is_pending() && held(&ours).is_empty());
    let has_a = now(poll(nested.as_mut())).unwrap();
    drop((has_a, has_b));
    assert!(now(poll(all.as_mut())).unwrap().is_held(), "expected the set's turn before the late waiter's");
    assert!(now(poll(late.as_mut())).is_ok());
}

/// Each set kept `a` in vain for its own time: a waiter of `a` alone waited for all sets before it.
#[test]
fn set_behind_one_that_gave_its_names_back_keeps_none() {
    let (clock, ours, theirs) = two_clients();
    let elsewhere = ready(lock(&theirs, "b").lock()).unwrap();
    let names = set(&ours, "a b");
    let mut sets: Vec<_> = (0..16).map(|_| Box::pin(names.lock())).collect();
    assert!(sets.iter_mut().all(|set| poll(set.as_mut()).is_pending()));
    let single = lock(&ours, "a");
    let mut waits = begun(single.lock());
    clock.advance(Duration::from_millis(51));
    // Each set hands `a` to the next.
    for set in &mut sets {
        assert!(poll(set.as_mut()).is_pending());
    }
    drop(now(poll(waits.as_mut())).unwrap());
    drop(elsewhere);
    for set in &mut sets {
        drop(now(poll(set.as_mut())).unwrap());
    }
    assert_eq!(held(&ours), "");
}

#[test]
fn waiting_set_is_served_by_a_drain() {
    let (_, ours, theirs) = two_clients();
    let elsewhere = ready(lock(&theirs, "b").lock()).unwrap();
    let names = set(&ours, "a b c");
    let mut waits = begun(names.lock());
    let drain = begun(ours.drain(Duration::from_secs(3600)));
    assert!(matches!(ready(names.lock()), Err(LockError::ShutDown)));
    drop(elsewhere);
    drop(now(poll(waits.as_mut())).unwrap());
    ready(drain).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sets_in_clashing_orders_exclude_each_other_and_finish() {
    let local = Local::new();
    let clients = [LockClient::new(local.clone()), LockClient::new(local)];
    soon("the end of all tasks", clashing::tasks(&clients, 500)).await;
    assert!(clients.iter().all(|client| held(client).is_empty()));
}

/// A store that answers late, fails as told, and answers nothing as told.
#[derive(Clone, Default)]
struct Faulty(Arc<Mutex<Faults>>);

#[derive(Default)]
struct Faults {
    acquisitions: usize,
    fails: Option<usize>,
    releases_fail: bool,
    is_silent: bool,
}

impl Between for Faulty {
    fn fate(&self, way: Way, command: Command<'_>) -> Fate {
        let mut faults = self.0.lock().unwrap();
        let fails = match (way, command) {
            (There, _) if faults.is_silent => return never(),
            (There, Command::Acquire(_)) => {
                faults.acquisitions += 1;
                faults.fails == Some(faults.acquisitions)
            }
            (There, Command::Release(_)) => faults.releases_fail,
            _ => false,
        };
        Box::pin(async move {
            if way == There {
                tokio::task::yield_now().await;
            }
            if fails { Err(Failure::Unreachable) } else { Ok(()) }
        })
    }
}

fn faulty() -> (Faulty, LockClient, LockClient) {
    let (local, faulty) = (Local::new(), Faulty::default());
    let client = LockClient::new(over(&local, faulty.clone()));
    (faulty, client, LockClient::new(local))
}

/// The set tries, waits with a name in hand, and tries again.
#[tokio::test]
async fn set_dropped_at_any_poll_leaves_nothing() {
    for polls in 0.. {
        let (_, ours, theirs) = faulty();
        let (names, mut b) = (set(&ours, "a b c d"), Some(lock(&theirs, "b").lock().await.unwrap()));
        let mut all = Box::pin(names.lock());
        let mut is_ready = false;
        for number in 0..polls {
            if let Poll::Ready(guard) = poll(all.as_mut()) {
                drop(guard.unwrap());
                is_ready = true;
                break;
            }
            if number == 8 {
                b = None;
            }
            tokio::task::yield_now().await;
        }
        drop((all, b));
        eventually("nothing held", async || {
            held(&ours).is_empty() && ready(set(&theirs, "a b c d").try_lock()).unwrap().is_some()
        })
        .await;
        eventually("no interest", async || ours.registry().is_empty()).await;
        if is_ready {
            assert!(polls > 10, "expected a wait, and the set was had by poll {polls}");
            return;
        }
    }
}

#[tokio::test]
async fn failed_name_is_told_and_the_others_are_given_back() {
    let (faults, ours, theirs) = faulty();
    let names = set(&ours, "a b c");
    faults.0.lock().unwrap().fails = Some(2);
    let error = names.lock().await.unwrap_err();
    assert!(matches!(&error, LockError::Backend { name, .. } if name.as_str() == "b"), "{error:?}");
    eventually("all free", async || ready(set(&theirs, "a b c").try_lock()).unwrap().is_some()).await;
    // A call with a limit outwaits the fault.
    faults.0.lock().unwrap().fails = Some(5);
    let guard = soon("the store", names.try_lock_for(60 * SECOND, Lease::Watched)).await.unwrap();
    assert!(guard.expect("free names").is_held());
    faults.0.lock().unwrap().is_silent = true;
    let wait = Duration::from_millis(10);
    let error = names.try_lock_for(wait, Lease::Watched).await.unwrap_err();
    assert!(matches!(&error, LockError::NoAnswer { name, wait: of } if name.as_str() == "a" && *of == wait));
}

/// The release of `a` fails, and `b` was lost: the loss counts for the work.
#[tokio::test]
async fn unlock_gives_all_back_and_tells_of_a_loss_first() {
    let (faults, ours, _) = faulty();
    let guard = set(&ours, "a b c").lock().await.unwrap();
    lock(&ours, "b").force_unlock().await.unwrap();
    faults.0.lock().unwrap().releases_fail = true;
    let error = guard.unlock().await.unwrap_err();
    assert!(matches!(&error, LockError::Lost { name, .. } if name.as_str() == "b"), "{error:?}");
    assert_eq!(held(&ours), "");
    faults.0.lock().unwrap().releases_fail = false;
    ours.shutdown(60 * SECOND).await.unwrap();
    assert!(set(&ours, "a b").lock().await.unwrap_err().is_shut_down());
}

#[tokio::test]
async fn loss_of_one_name_is_told_and_ends_the_work() {
    let client = LockClient::local();
    let names = set(&client, "a b c");
    assert_eq!(names.run(async { 7 }).await.unwrap(), 7);
    let guard = names.lock().await.unwrap();
    assert!(guard.ensure_held().await.is_ok() && guard.remaining() > SECOND);
    lock(&client, "b").force_unlock().await.unwrap();
    let (name, reason) = soon("the loss", guard.lost()).await;
    assert_eq!((name.as_str(), reason), ("b", LossReason::Gone));
    assert!(!guard.is_held() && guard.remaining().is_zero());
    assert!(guard.ensure_held().await.unwrap_err().is_lost());
    drop(guard);
    // Spawned, as the futures have to be `Send`.
    let work = tokio::spawn(async move {
        names
            .run_with(async |guard| {
                guard.ensure_held().await.unwrap();
                pending::<()>().await
            })
            .await
    });
    eventually("the work", async || held(&client) == "a b c").await;
    lock(&client, "c").force_unlock().await.unwrap();
    let error = soon("the end of the work", work).await.unwrap().unwrap_err();
    assert!(matches!(&error, LockError::Lost { name, .. } if name.as_str() == "c"), "{error:?}");
    assert_eq!(held(&client), "");
}

#[test]
fn lease_that_ends_while_the_set_waits_is_begun_anew() {
    let (clock, ours, theirs) = two_clients();
    let b = ready(lock(&theirs, "b").lock()).unwrap();
    let names = set(&ours, "a b");
    let mut all = begun(names.lock_with_lease(SECOND / 4));
    clock.advance(SECOND / 3);
    drop(b);
    let guard = now(poll(all.as_mut())).unwrap();
    assert!(guard.is_held() && guard.remaining() == SECOND / 4, "{guard:?}");
}

/// The name just had was given back with the name whose lease had ended.
#[test]
fn name_in_hand_outlives_the_end_of_another_names_lease() {
    let (clock, ours, theirs) = two_clients();
    let names = set(&ours, "a b");
    let elsewhere = ready(lock(&theirs, "b").lock()).unwrap();
    let mut waits = begun(names.lock_with_lease(Duration::from_millis(20)));
    clock.advance(Duration::from_millis(21));
    drop(elsewhere);
    let guard = now(poll(waits.as_mut())).unwrap();
    assert!(guard.is_held());
    assert_eq!(lock(&ours, "b").stats().acquisitions, 1);
}

#[test]
fn names_of_a_set_that_is_not_polled_are_given_back() {
    let (clock, ours, theirs) = two_clients();
    let b = ready(lock(&theirs, "b").lock()).unwrap();
    let names = set(&ours, "a b");
    let mut all: Pin<Box<dyn Future<Output = _>>> = Box::pin(names.lock());
    // The set is woken, and not polled.
    let waker = waker(|| {});
    assert!(poll_by(all.as_mut(), &waker).is_pending());
    assert_eq!(held(&ours), "a");
    // The set is woken to give `a` back, then has a second to do so.
    (0..4).for_each(|_| clock.advance(SECOND));
    assert_eq!(held(&ours), "");
    let a = ready(lock(&theirs, "a").try_lock()).unwrap().expect("free");
    assert!(poll_by(all.as_mut(), &waker).is_pending());
    drop((a, b));
    clock.advance(SECOND);
    assert!(now(poll_by(all.as_mut(), &waker)).unwrap().is_held());
}

/// A task whose polls come later than the unpolled limit: each time that the names are given back doubles it.
#[test]
fn set_that_is_polled_late_is_had() {
    let (clock, faults) = (ThreadRuntime::paused(), Faulty::default());
    let client = LockClient::new(over(&Local::with_runtime(clock.clone()), faults));
    let names = set(&client, "a b");
    let mut all = pin!(names.lock());
    let polls = (0..10).find(|_| {
        clock.advance(3 * SECOND);
        poll(all.as_mut()).is_ready()
    });
    assert!(polls.is_some(), "expected the names within ten polls");
}

#[tokio::test]
async fn thousand_names_are_one_lock() {
    let (_, client, other) = faulty();
    let names: Vec<String> = (0..1000).map(|number| number.to_string()).collect();
    let names = names.join(" ");
    let guard = soon("a thousand names", set(&client, &names).lock()).await.unwrap();
    assert!(set(&other, &names).try_lock().await.unwrap().is_none());
    let (at, _) = soon("the loss", async {
        tokio::join!(guard.lost(), async { lock(&client, "500").force_unlock().await.unwrap() }).0
    })
    .await;
    assert_eq!(at.as_str(), "500");
    assert!(soon("the releases", guard.unlock()).await.unwrap_err().is_lost());
    assert!(set(&other, &names).try_lock().await.unwrap().is_some());
}

#[test]
fn threads_take_several_names() {
    let client = blocking::LockClient::local();
    let [a, b] = ["a", "b"].map(|name| client.get_lock(name).unwrap());
    let inside = Mutex::new(());
    thread::scope(|scope| {
        for order in [[&a, &b], [&b, &a]] {
            let (client, inside) = (&client, &inside);
            scope.spawn(move || {
                let both = client.get_multi_lock(order).unwrap();
                for _ in 0..1000 {
                    let guard = both.lock().unwrap();
                    drop(inside.try_lock().expect("one thread at a time"));
                    guard.unlock().unwrap();
                }
            });
        }
    });
    let both = client.get_multi_lock([&a, &b]).unwrap();
    assert!(both.names().eq([a.name(), b.name()]) && client.get_multi_lock([]).is_err());
    let guard = both.lock_with_lease(60 * SECOND).unwrap();
    assert!(both.try_lock().unwrap().is_none() && guard.is_held() && guard.remaining() > SECOND);
    assert!(both.try_lock_for(Duration::from_millis(1), Lease::Watched).unwrap().is_none());
    guard.ensure_held().unwrap();
    b.force_unlock().unwrap();
    assert_eq!(guard.lost().0.as_str(), "b");
    let [has_a, had_b] = guard.into_guards().try_into().unwrap();
    assert!(had_b.unlock().unwrap_err().is_lost());
    has_a.unlock().unwrap();
}

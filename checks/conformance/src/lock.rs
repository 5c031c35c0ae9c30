//! Promises of every lock, whatever its mode and its store; and promises of plain locks beyond those.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::join;
use latchwork::backend::{AcquireOutcome, LeaseKey, LockName, Mode, ReleaseOutcome};
use latchwork::{
    Guard, Lease, LeaseError, LeaseId, Lock, LockClient, LockError, LockOptions, LossReason, NameError,
};

use crate::store::Subject;
use crate::tasks::{SOON, eventually, now, since, soon, spawn, yield_now};

pub(crate) fn fresh_name() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    // Ordering: Relaxed, only the uniqueness of the number matters.
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("conformance:{}:{number}", std::process::id())
}

/// The number of waiters of this client: its local queue, and its queue head if the head waits for the store.
pub(crate) fn waiting(store: &Subject<'_>, client: &LockClient, lock: &Lock) -> usize {
    lock.waiters() + usize::from(client.registry().join(&store.channel(client, lock.name())).is_some())
}

/// True if this client's queue head has asked the store, and sleeps until a message.
pub(crate) fn head_sleeps(store: &Subject<'_>, client: &LockClient, lock: &Lock) -> bool {
    let look = client.registry().join(&store.channel(client, lock.name()));
    look.is_some_and(|look| look.waiters() > 0)
}

/// Lease ids of no client.
pub(crate) fn lease_ids<const N: usize>() -> [LeaseId; N] {
    std::array::from_fn(|number| format!("8743c9c0-0795-4907-87fd-6c719a6b4586:{number}").parse().unwrap())
}

pub(crate) async fn assert_nothing_left(store: &Subject<'_>, client: &LockClient, lock: &Lock) {
    let channel = store.channel(client, lock.name());
    // A multi-threaded runtime may drop the waiter's subscription after `soon` has returned.
    eventually("the end of every interest in a channel", async || client.registry().is_empty()).await;
    eventually("the end of the subscription", async || store.subscribers(&channel).await == 0).await;
    eventually("the lock's becoming free", async || !lock.is_locked().await.unwrap()).await;
}

pub(crate) async fn another_owner_is_kept_out(store: &Subject<'_>) {
    let (one, other) = (store.client().await, store.client().await);
    let name = fresh_name();
    let (mine, theirs) = (store.lock(&one, &name), store.lock(&other, &name));
    assert!(!mine.is_locked().await.unwrap());
    assert_eq!(mine.remaining().await.unwrap(), None);

    let guard = mine.lock().await.unwrap();
    assert!(guard.is_held());
    assert!(theirs.is_locked().await.unwrap());
    assert!(theirs.remaining().await.unwrap().unwrap() > Duration::from_secs(20));
    assert!(mine.is_held_by(guard.owner()).await.unwrap());
    assert!(
        !theirs.is_held_by(guard.owner()).await.unwrap(),
        "expected no knowledge of another client's owners"
    );
    assert!(theirs.try_lock().await.unwrap().is_none());
    assert!(
        mine.try_lock().await.unwrap().is_none(),
        "expected each acquisition without an owner to compete with the others"
    );

    guard.unlock().await.unwrap();
    assert!(!theirs.is_locked().await.unwrap());
    theirs.try_lock().await.unwrap().expect("the lock is free").unlock().await.unwrap();
}

pub(crate) async fn waiter_is_woken_by_release(store: &Subject<'_>) {
    wakes_a_waiter(store, async |guard, _| guard.unlock().await.unwrap()).await;
}

pub(crate) async fn dropped_guard_wakes_a_waiter(store: &Subject<'_>) {
    wakes_a_waiter(store, async |guard, _| drop(guard)).await;
}

pub(crate) async fn force_unlock_wakes_a_waiter(store: &Subject<'_>) {
    wakes_a_waiter(store, async |guard, lock| {
        assert!(lock.force_unlock().await.unwrap());
        guard.forget();
    })
    .await;
}

async fn wakes_a_waiter(store: &Subject<'_>, let_go: impl AsyncFnOnce(Guard, Lock)) {
    let (one, other) = (store.client().await, store.client().await);
    let name = fresh_name();
    let (mine, theirs) = (store.lock(&one, &name), store.lock(&other, &name));
    let guard = mine.lock().await.unwrap();
    let waiter = spawn({
        let theirs = theirs.clone();
        async move { theirs.lock().await.unwrap().unlock().await.unwrap() }
    });
    eventually("waiting", async || head_sleeps(store, &other, &theirs)).await;
    // The lease has half a minute to go: only a message can wake the waiter so early.
    let_go(guard, mine.clone()).await;
    soon("the hand-off", waiter).await.unwrap();
    assert_nothing_left(store, &other, &theirs).await;
}

pub(crate) async fn same_owner_may_enter_again(store: &Subject<'_>) {
    let client = store.client().await;
    let me = client.owner();
    let lock = store.lock(&client, &fresh_name());
    let mine = lock.owned_by(&me);
    let outer = mine.lock().await.unwrap();
    let inner = soon("re-entry", mine.lock()).await.unwrap();
    assert_eq!(lock.hold_count(&me).await.unwrap(), 2);
    inner.unlock().await.unwrap();
    assert_eq!(lock.hold_count(&me).await.unwrap(), 1);
    assert!(
        lock.try_lock().await.unwrap().is_none(),
        "expected the lock held while one of two holds is left"
    );
    outer.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
}

pub(crate) async fn inner_hold_does_not_shorten_the_lease(store: &Subject<'_>) {
    let client = store.client().await;
    let lock = store.lock(&client, &fresh_name()).owned_by(&client.owner());
    let outer = lock.lock_with_lease(Duration::from_secs(60)).await.unwrap();
    let inner = lock.lock_with_lease(Duration::from_secs(20)).await.unwrap();
    assert!(lock.remaining().await.unwrap().unwrap() > Duration::from_secs(50));
    inner.unlock().await.unwrap();
    assert!(lock.remaining().await.unwrap().unwrap() > Duration::from_secs(50));
    outer.unlock().await.unwrap();
}

/// Commands that a backend repeats after a lost reply.
pub(crate) async fn commands_that_run_twice_mean_the_same(store: &Subject<'_>) {
    const LEASE: Duration = Duration::from_secs(30);
    const TAKEN: AcquireOutcome = AcquireOutcome::Acquired { last_token: 0 };
    let client = store.client().await;
    let backend = store.backend(&client);
    let name = LockName::new(&fresh_name()).unwrap();
    let [one, other] = lease_ids();
    let take = async |id, lease, tokens| {
        backend.acquire(Mode::Plain, &name, &backend.request(id, lease).tokens(tokens)).await.unwrap()
    };
    let key = |id: &LeaseId| LeaseKey { name: name.clone(), id: id.clone() };
    let holder = async || backend.holder(Mode::Plain, &name).await.unwrap();

    assert_eq!(holder().await, None);
    for _ in 0..2 {
        assert_eq!(take(&one, LEASE, 0).await, TAKEN);
        assert_eq!(holder().await.unwrap().id, Some(one.clone()));
        let refused = take(&other, LEASE, 1).await;
        assert!(matches!(refused, AcquireOutcome::Held { left } if left <= LEASE), "{refused:?}");
    }
    for _ in 0..2 {
        assert_eq!(
            backend.renew(Mode::Plain, &[key(&one), key(&other)], LEASE * 2).await.unwrap(),
            [true, false]
        );
        assert!(holder().await.unwrap().left > LEASE);
    }
    // Neither a renewal nor another acquisition shortens a lease: both may arrive late.
    assert_eq!(backend.renew(Mode::Plain, &[key(&one)], LEASE / 3).await.unwrap(), [true]);
    assert_eq!(take(&one, LEASE / 3, 0).await, TAKEN);
    assert!(holder().await.unwrap().left > LEASE);
    assert_eq!(take(&one, LEASE * 3, 0).await, TAKEN);
    assert!(holder().await.unwrap().left > LEASE * 2);
    let block = async |id, tokens| match take(id, LEASE, tokens).await {
        AcquireOutcome::Acquired { last_token } => last_token,
        held => panic!("{held:?}"),
    };
    let first = block(&one, 1).await;
    let second = block(&one, 10).await;
    assert!(second >= first + 10);
    for _ in 0..2 {
        assert_eq!(backend.release(Mode::Plain, &name, &other, None).await.unwrap(), ReleaseOutcome::NotHeld);
    }
    assert!(matches!(
        backend.release(Mode::Plain, &name, &one, None).await.unwrap(),
        ReleaseOutcome::Released { .. }
    ));
    for _ in 0..2 {
        assert_eq!(backend.release(Mode::Plain, &name, &one, None).await.unwrap(), ReleaseOutcome::NotHeld);
        assert_eq!(backend.roll_back(Mode::Plain, &name, &one).await.unwrap(), ReleaseOutcome::NotHeld);
    }
    assert_eq!(backend.renew(Mode::Plain, &[key(&one)], LEASE).await.unwrap(), [false]);
    assert!(block(&other, 1).await > second);
    assert!(matches!(
        backend.roll_back(Mode::Plain, &name, &other).await.unwrap(),
        ReleaseOutcome::Released { .. }
    ));
    assert_eq!(holder().await, None);
}

/// No command shortens a lease, so the client releases the lock in between: a waiter of another client that
/// saw a lease of half a minute would otherwise sleep for half a minute.
pub(crate) async fn short_lease_after_a_long_one_ends_in_time_for_other_clients(store: &Subject<'_>) {
    // However slow the machine, the lease stays with this client for its next waiter.
    let options = LockOptions::default().tenure(Duration::from_secs(3600));
    let (client, other) = (store.client_with(&options).await, store.client().await);
    let lock = store.lock(&client, &fresh_name());
    let theirs = store.lock(&other, lock.name().as_str());
    let watched = lock.lock().await.unwrap();
    let short = spawn({
        let lock = lock.clone();
        async move { lock.lock_with_lease(Duration::from_millis(300)).await.unwrap() }
    });
    eventually("the next in line", async || lock.waiters() == 1).await;
    let waits = spawn({
        let theirs = theirs.clone();
        async move { theirs.lock().await.unwrap().unlock().await.unwrap() }
    });
    eventually("sleep", async || head_sleeps(store, &other, &theirs)).await;
    watched.unlock().await.unwrap();
    let short = soon("the short lease", short).await.unwrap();
    // The short lease is neither released nor renewed.
    soon("the end of the short lease", waits).await.unwrap();
    soon("the loss", short.lost()).await;
    soon("the lock", theirs.lock()).await.unwrap().unlock().await.unwrap();
    assert!(short.unlock().await.unwrap_err().is_not_held());
}

pub(crate) async fn tokens_rise_from_one_acquisition_to_the_next(store: &Subject<'_>) {
    let clients = [store.client().await, store.client().await];
    let name = fresh_name();
    let mut last = None;
    for round in 0..4 {
        let client = &clients[round % 2];
        let me = client.owner();
        let lock = store.lock(client, &name).fenced().owned_by(&me);
        let outer = lock.lock().await.unwrap();
        assert!(outer.fencing_token() > last, "{:?} after {last:?}", outer.fencing_token());
        last = outer.fencing_token();
        let inner = lock.lock().await.unwrap();
        assert_eq!(inner.fencing_token(), last, "expected the token of the owner's outer hold");
        let unfenced = store.lock(client, &name).owned_by(&me).lock().await.unwrap();
        assert_eq!(unfenced.fencing_token(), None);
        inner.unlock().await.unwrap();
        unfenced.unlock().await.unwrap();
        if round == 1 {
            // Tokens rise after every kind of end.
            assert!(lock.force_unlock().await.unwrap());
            let next = lock.lock().await.unwrap();
            assert!(next.fencing_token() > last);
            last = next.fencing_token();
            next.unlock().await.unwrap();
        } else {
            outer.unlock().await.unwrap();
        }
    }

    // An owner whose outer hold has no token gets a new token for the inner hold, not another owner's.
    let me = clients[0].owner();
    let lock = store.lock(&clients[0], &name).owned_by(&me);
    let outer = lock.lock().await.unwrap();
    let inner = lock.fenced().lock().await.unwrap();
    assert_eq!(outer.fencing_token(), None);
    assert!(inner.fencing_token() > last);
    inner.unlock().await.unwrap();
    outer.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
}

pub(crate) async fn holds_that_are_lost_are_all_lost(store: &Subject<'_>) {
    let client = store.client().await;
    let me = client.owner();
    let lock = store.lock(&client, &fresh_name()).owned_by(&me);
    let (outer, inner) = (lock.lock().await.unwrap(), lock.lock().await.unwrap());
    assert!(lock.force_unlock().await.unwrap());
    let new = lock.lock().await.unwrap();
    assert_eq!(lock.hold_count(&me).await.unwrap(), 1);
    // The earlier guards report the loss at once, although a renewal would find the owner's new lease.
    assert_eq!((outer.is_held(), inner.is_held(), new.is_held()), (false, false, true));
    assert_eq!(soon("the notice", outer.lost()).await, LossReason::Gone);
    assert!(outer.unlock().await.unwrap_err().is_not_held());
    drop(inner);
    assert!(new.is_held());
    assert_eq!(
        lock.hold_count(&me).await.unwrap(),
        1,
        "expected the lost hold's guard to leave the other hold alone"
    );
    new.unlock().await.unwrap();

    let outer = lock.lock().await.unwrap();
    assert!(lock.force_unlock().await.unwrap());
    let theirs = store.lock(&client, lock.name().as_str()).lock().await.unwrap();
    assert!(lock.try_lock().await.unwrap().is_none());
    assert!(!outer.is_held());
    assert!(outer.unlock().await.unwrap_err().is_not_held());
    assert!(theirs.is_held());
    theirs.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
}

pub(crate) async fn tasks_of_one_owner_count_right(store: &Subject<'_>) {
    let client = store.client().await;
    let me = client.owner();
    let lock = store.lock(&client, &fresh_name()).owned_by(&me);
    let outer = lock.lock().await.unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|task| {
            let lock = lock.clone();
            spawn(async move {
                for round in 0..25 {
                    let guard = lock.lock().await.unwrap();
                    match (task + round) % 3 {
                        0 => drop(guard),
                        1 => guard.unlock().await.unwrap(),
                        _ => {
                            let owner = *guard.owner();
                            guard.forget();
                            lock.unlock(&owner).await.unwrap();
                        }
                    }
                    let lock = lock.clone();
                    let dropped = DropAfter::polls(round % 3, async move { lock.lock().await.unwrap() });
                    drop(spawn(dropped).await.unwrap());
                }
            })
        })
        .collect();
    soon("every task's end", async {
        for task in tasks {
            task.await.unwrap();
        }
    })
    .await;
    eventually("the holds' end", async || lock.hold_count(&me).await.unwrap() == 1).await;
    outer.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
}

/// Both tasks of an owner wait; when one gets in, the other gets in too, without a message.
pub(crate) async fn task_gets_in_when_its_owner_does(store: &Subject<'_>) {
    let client = store.client().await;
    for holder in [client.clone(), store.client().await] {
        let me = client.owner();
        let lock = store.lock(&client, &fresh_name()).owned_by(&me);
        let held = store.lock(&holder, lock.name().as_str()).lock().await.unwrap();
        let both = spawn({
            let lock = lock.clone();
            async move { join(lock.lock(), lock.lock()).await }
        });
        eventually("sleep", async || waiting(store, &client, &lock) == 2).await;
        held.unlock().await.unwrap();
        let (one, other) = soon("both", both).await.unwrap();
        assert_eq!(lock.hold_count(&me).await.unwrap(), 2);
        one.unwrap().unlock().await.unwrap();
        other.unwrap().unlock().await.unwrap();
        assert_nothing_left(store, &client, &lock).await;
    }
}

/// A client may be wrong about the lock: another client has forced it free without the holder's notice.
pub(crate) async fn short_wait_asks_the_store(store: &Subject<'_>) {
    let (client, other) = (store.client().await, store.client().await);
    let lock = store.lock(&client, &fresh_name());
    let guard = lock.lock_with_lease(Duration::from_secs(3600)).await.unwrap();
    assert!(store.lock(&other, lock.name().as_str()).force_unlock().await.unwrap());
    let wait = Duration::from_millis(300);
    let next = lock.try_lock_for(wait, Lease::Watched).await.unwrap().expect("the lock is free");
    next.unlock().await.unwrap();
    assert!(guard.unlock().await.unwrap_err().is_not_held());
}

pub(crate) async fn unpolled_future_keeps_no_task_of_its_owner_waiting(store: &Subject<'_>) {
    let client = store.client().await;
    let lock = store.lock(&client, &fresh_name()).owned_by(&client.owner());
    let guard = lock.lock().await.unwrap();
    let mut rests = Box::pin(lock.lock());
    // The command is in flight now, and its reply is not awaited.
    let _ = rests.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()));
    soon("the unlock", guard.unlock()).await.unwrap();
    drop(rests);
    eventually("the lock's becoming free", async || !lock.is_locked().await.unwrap()).await;
}

pub(crate) async fn owner_of_another_client_is_refused(store: &Subject<'_>) {
    let (one, other) = (store.client().await, store.client().await);
    let lock = store.lock(&one, &fresh_name());
    // Owners get equal numbers, as each is its client's first.
    let (me, stranger) = (one.owner(), other.owner());
    let mine = lock.owned_by(&me).lock().await.unwrap();
    assert!(lock.unlock(&stranger).await.unwrap_err().is_not_held());
    assert_eq!((lock.hold_count(&stranger).await.unwrap(), lock.hold_count(&me).await.unwrap()), (0, 1));
    mine.unlock().await.unwrap();
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| lock.owned_by(&stranger))).is_err());
    let theirs = store.lock(&other, lock.name().as_str()).owned_by(&stranger).lock().await.unwrap();
    // Only its own client knows the hold count of another owner.
    assert!(lock.unlock(&stranger).await.unwrap_err().is_not_held());
    assert!(!lock.is_held_by(&stranger).await.unwrap());
    assert!(theirs.is_held());
    theirs.unlock().await.unwrap();
}

pub(crate) async fn unlock_without_hold_is_an_error(store: &Subject<'_>) {
    let client = store.client().await;
    let lock = store.lock(&client, &fresh_name());
    let stranger = client.owner();
    let error = lock.unlock(&stranger).await.unwrap_err();
    assert!(error.is_not_held(), "{error}");

    let guard = lock.lock().await.unwrap();
    assert!(lock.unlock(&stranger).await.unwrap_err().is_not_held());
    assert!(
        lock.is_held_by(guard.owner()).await.unwrap(),
        "expected a stranger's unlock to leave the hold alone"
    );

    let owner = *guard.owner();
    guard.forget();
    lock.unlock(&owner).await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
}

pub(crate) async fn guard_of_a_lost_hold_frees_no_other_hold(store: &Subject<'_>) {
    let client = store.client().await;
    let lock = store.lock(&client, &fresh_name());
    let (first, second) = (lock.lock().await.unwrap(), lock.clone());
    assert!(lock.force_unlock().await.unwrap());
    let new = second.try_lock().await.unwrap().expect("the lock was forced free");
    let error = first.unlock().await.unwrap_err();
    assert!(matches!(error, LockError::Lost { reason: LossReason::Gone, .. }), "{error:?}");
    assert!(lock.is_held_by(new.owner()).await.unwrap());

    assert!(lock.force_unlock().await.unwrap());
    assert!(
        !lock.force_unlock().await.unwrap(),
        "expected a forced unlock of a free lock to report no holder"
    );
    let third = lock.try_lock().await.unwrap().unwrap();
    drop(new);
    assert!(lock.is_held_by(third.owner()).await.unwrap());
    third.unlock().await.unwrap();
}

pub(crate) async fn lease_ends_by_itself(store: &Subject<'_>) {
    let client = store.client().await;
    let lock = store.lock(&client, &fresh_name());
    // Far longer than an acquisition takes that waits for a replica on a busy machine.
    let lease = Duration::from_millis(600);
    let before = now();
    let expiring = lock.lock_with_lease(lease).await.unwrap();
    let next = soon("the end of the lease", lock.lock()).await.unwrap();
    assert!(
        since(before) >= lease,
        "expected one holder for the whole lease, and the next one came after {:?}",
        since(before)
    );
    assert!(!expiring.is_held());
    assert_eq!(expiring.lost().await, LossReason::Expired);
    assert!(expiring.unlock().await.unwrap_err().is_not_held());
    next.unlock().await.unwrap();
}

pub(crate) async fn watchdog_keeps_the_lease(store: &Subject<'_>) {
    // A machine that stands still for two thirds of this time loses the lock, rightly.
    let lease = Duration::from_secs(3);
    let client = store.client_with(&LockOptions::default().watchdog_timeout(lease)).await;
    let lock = store.lock(&client, &fresh_name());
    let guard = lock.lock().await.unwrap();
    assert!(lock.remaining().await.unwrap().unwrap() <= lease);
    let patience = lease + lease / 3;
    assert!(
        lock.try_lock_for(patience, Lease::Watched).await.unwrap().is_none(),
        "expected a renewed lease, and another client acquired the lock"
    );
    assert!(guard.is_held());
    guard.unlock().await.unwrap();
    assert!(!lock.is_locked().await.unwrap());
}

pub(crate) async fn watchdog_notices_the_loss(store: &Subject<'_>) {
    let options = LockOptions::default().watchdog_timeout(Duration::from_millis(300));
    let client = store.client_with(&options).await;
    let lock = store.lock(&client, &fresh_name());
    let guard = lock.lock().await.unwrap();
    assert!(lock.force_unlock().await.unwrap());
    assert_eq!(soon("the notice", guard.lost()).await, LossReason::Gone);
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Duration::ZERO);
}

pub(crate) async fn asking_tells_the_loss(store: &Subject<'_>) {
    let (client, other) = (store.client().await, store.client().await);
    let lock = store.lock(&client, &fresh_name());
    let mut guard = lock.lock().await.unwrap();
    guard.ensure_held().await.unwrap();
    assert!(store.lock(&other, lock.name().as_str()).force_unlock().await.unwrap());
    assert!(guard.is_held(), "expected the guard to believe in its hold until it asks the store");
    let lost = |error: LockError, expected| match error {
        LockError::Lost { name, reason, .. } => assert_eq!((&name, reason), (lock.name(), expected)),
        other => panic!("not a loss: {other:?}"),
    };
    lost(guard.ensure_held().await.unwrap_err(), LossReason::Gone);
    assert!(!guard.is_held());
    assert_eq!(guard.lost().await, LossReason::Gone);
    lost(guard.unlock().await.unwrap_err(), LossReason::Gone);

    guard = lock.lock().await.unwrap();
    assert!(store.lock(&other, lock.name().as_str()).force_unlock().await.unwrap());
    lost(guard.extend(Duration::from_secs(60)).await.unwrap_err(), LossReason::Gone);
    drop(guard);
    let held = lock.lock().await.unwrap();
    assert!(store.lock(&other, lock.name().as_str()).force_unlock().await.unwrap());
    assert_eq!(lock.hold_count(held.owner()).await.unwrap(), 0);
    assert!(!held.is_held(), "expected the guard to learn of the loss from the count");
    drop(held);

    let guard = lock.lock_with_lease(Duration::from_millis(200)).await.unwrap();
    assert_eq!(soon("the end of the lease", guard.lost()).await, LossReason::Expired);
    lost(guard.ensure_held().await.unwrap_err(), LossReason::Expired);
    // The store's lease began later.
    eventually("the end of the lease in the store", async || !lock.is_locked().await.unwrap()).await;
    lost(guard.unlock().await.unwrap_err(), LossReason::Expired);
}

pub(crate) async fn lock_is_not_held_for_longer_than_allowed(store: &Subject<'_>) {
    let limit = Duration::from_secs(2);
    // The first watchdog has renewed the lease by then, the second has not needed to.
    for watchdog in [Duration::from_millis(1500), Duration::from_secs(30)] {
        let options = LockOptions::default().watchdog_timeout(watchdog).max_hold(limit);
        let client = store.client_with(&options).await;
        let me = client.owner();
        let lock = store.lock(&client, &fresh_name()).owned_by(&me);
        let begun = now();
        let guard = lock.lock().await.unwrap();
        let waits = spawn({
            let lock = store.lock(&client, lock.name().as_str());
            async move { lock.lock().await.unwrap() }
        });
        // An inner hold does not evade the limit.
        let inner = lock.lock().await.unwrap();
        assert_eq!(soon("the limit", guard.lost()).await, LossReason::HeldTooLong);
        let held = since(begun);
        assert!(held >= limit - Duration::from_millis(1) && held < limit * 3, "{held:?}");
        assert_eq!(inner.lost().await, LossReason::HeldTooLong);
        let next = soon("the next one's turn", waits).await.unwrap();
        assert!(guard.unlock().await.unwrap_err().is_not_held());
        next.unlock().await.unwrap();
        drop(inner);
        // The limit does not apply to a guard with its own lease.
        let guard = lock.lock_with_lease(Duration::from_secs(60)).await.unwrap();
        assert!(guard.remaining() > Duration::from_secs(30));
        guard.unlock().await.unwrap();
    }
}

pub(crate) async fn wait_ends_in_time_and_leaves_nothing(store: &Subject<'_>) {
    let client = store.client().await;
    let lock = store.lock(&client, &fresh_name());
    let guard = lock.lock().await.unwrap();
    let wait = Duration::from_millis(100);
    let before = now();
    assert!(lock.try_lock_for(wait, Duration::from_secs(1)).await.unwrap().is_none());
    let waited = since(before);
    assert!((wait..SOON).contains(&waited), "waited {waited:?}");
    guard.unlock().await.unwrap();
    assert_nothing_left(store, &client, &lock).await;
}

fn name_error(got: Result<Lock, LockError>) -> NameError {
    match got {
        Err(LockError::Name(error)) => error,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn bad_names_and_leases_are_refused(store: &Subject<'_>) {
    let client = store.client().await;
    let refused = |name: &str| name_error(client.get_lock(name));
    assert_eq!(refused(""), NameError::Empty);
    assert_eq!(refused(&"x".repeat(513)), NameError::TooLong { bytes: 513 });
    for unbalanced in ["a{b", "a}b", "}a{", "{{a}"] {
        assert_eq!(refused(unbalanced), NameError::UnbalancedBraces, "{unbalanced}");
    }
    assert!(client.get_lock(&"x".repeat(512)).is_ok());

    let lock = store.lock(&client, &fresh_name());
    let too_long = Lease::MAX + Duration::from_millis(1);
    for (lease, why) in [
        (Duration::ZERO, LeaseError::TooShort),
        (Duration::from_micros(999), LeaseError::TooShort),
        (too_long, LeaseError::TooLong),
        (Duration::MAX, LeaseError::TooLong),
    ] {
        let error = lock.lock_with_lease(lease).await.unwrap_err();
        assert!(matches!(error, LockError::Lease(found) if found == why), "{lease:?}: {error:?}");
        assert!(lock.try_lock_for(Duration::ZERO, lease).await.is_err());
    }
    assert!(!lock.is_locked().await.unwrap());
}

pub(crate) async fn names_are_mapped(store: &Subject<'_>) {
    let options = LockOptions::default().name_mapper(|name| format!("{name}:mapped"));
    let (client, plain) = (store.client_with(&options).await, store.client().await);
    let name = fresh_name();
    let lock = client.get_lock(&name).unwrap();
    let theirs = plain.get_lock(&format!("{name}:mapped")).unwrap();
    assert_eq!(lock.name(), theirs.name());
    let guard = lock.lock().await.unwrap();
    assert!(theirs.try_lock().await.unwrap().is_none());
    assert!(!plain.get_lock(&name).unwrap().is_locked().await.unwrap());
    // The channel name is mapped, too.
    let same = theirs.clone();
    let waits = spawn(async move { theirs.lock().await.unwrap() });
    eventually("sleep", async || head_sleeps(store, &plain, &same)).await;
    guard.unlock().await.unwrap();
    soon("the message", waits).await.unwrap().unlock().await.unwrap();
    // The mapped name is checked like any other name.
    let options = LockOptions::default().name_mapper(|_| String::new());
    assert_eq!(name_error(store.client_with(&options).await.get_lock("fine")), NameError::Empty);
}

pub(crate) async fn dropped_unlock_still_unlocks(store: &Subject<'_>) {
    let client = store.client().await;
    for polls in 0..2 {
        let lock = store.lock(&client, &fresh_name());
        let guard = lock.lock().await.unwrap();
        spawn(DropAfter::polls(polls, guard.unlock())).await.unwrap();
        eventually("the unlock", async || !lock.is_locked().await.unwrap()).await;
    }
}

/// Drops a waiter after its n-th poll, for every n until the waiter gets the lock: the waiter leaves no
/// subscription and no lock behind, and passes a message that woke it on to the next waiter.
pub(crate) async fn future_dropped_at_any_poll_leaves_nothing(store: &Subject<'_>) {
    dropped_at_any_poll(store, async |_| store.client().await).await;
}

/// As above, with a holder of the same client, which can hand the lock to the waiter.
pub(crate) async fn successor_dropped_at_any_poll_leaves_nothing(store: &Subject<'_>) {
    dropped_at_any_poll(store, async |client| client.clone()).await;
}

async fn dropped_at_any_poll(store: &Subject<'_>, holder: impl AsyncFn(&LockClient) -> LockClient) {
    for polls in 0..1000 {
        let client = store.client().await;
        let holder = holder(&client).await;
        let name = fresh_name();
        let held = store.lock(&holder, &name).lock().await.unwrap();
        let lock = store.lock(&client, &name);

        let dropped = spawn({
            let lock = lock.clone();
            async move { DropAfter::polls(polls, lock.lock()).await.is_some() }
        });
        eventually("waiting", async || dropped.is_finished() || waiting(store, &client, &lock) == 1).await;
        let behind = spawn({
            let lock = lock.clone();
            async move { lock.lock().await.unwrap().unlock().await.unwrap() }
        });
        eventually("waiting behind", async || {
            waiting(store, &client, &lock) == 2 - usize::from(dropped.is_finished())
        })
        .await;
        held.unlock().await.unwrap();
        soon("the hand-off to the waiter behind", behind).await.unwrap();
        let got_it = soon("the end of the first waiter", dropped).await.unwrap();
        assert_nothing_left(store, &client, &lock).await;
        if got_it {
            assert!(polls >= 2, "expected the waiter to fall asleep, and it acquired by poll {polls}");
            return;
        }
    }
    panic!("the lock was not to be had in a thousand polls");
}

/// Polls a future `polls` times, then drops it; returns `None` if the future was dropped.
pub(crate) struct DropAfter<F: Future> {
    future: Option<Pin<Box<F>>>,
    polls: usize,
}

impl<F: Future> DropAfter<F> {
    pub(crate) fn polls(polls: usize, future: F) -> Self {
        Self { future: Some(Box::pin(future)), polls }
    }
}

impl<F: Future> Future for DropAfter<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.polls > 0 {
            self.polls -= 1;
            let future = self.future.as_mut().expect("not polled after ready");
            if let Poll::Ready(output) = future.as_mut().poll(context) {
                return Poll::Ready(Some(output));
            }
        }
        if self.polls > 0 {
            return Poll::Pending;
        }
        self.future = None;
        Poll::Ready(None)
    }
}

/// A holder and eight waiters of one client take the lock; returns the number of hand-offs in memory.
async fn hand_offs(store: &Subject<'_>, options: LockOptions, some_owned: bool) -> u64 {
    const WAITERS: usize = 8;
    let client = store.client_with(&options).await;
    let lock = store.lock(&client, &fresh_name()).fenced();
    let head = lock.lock().await.unwrap();
    let mut queue = Vec::new();
    for number in 0..=WAITERS {
        let next = if some_owned && number % 3 == 1 { lock.owned_by(&client.owner()) } else { lock.clone() };
        queue.push(spawn(async move { next.lock().await.unwrap() }));
        eventually("waiting", async || waiting(store, &client, &lock) == number + 1).await;
    }
    let mut queue = queue.into_iter();
    // The head acquired without waiters, so its block has one token. The next acquisition reserves more.
    let mut token = head.fencing_token();
    head.unlock().await.unwrap();
    let mut guard = soon("the first", queue.next().unwrap()).await.unwrap();
    for next in queue {
        assert!(guard.fencing_token() > token);
        token = guard.fencing_token();
        guard.unlock().await.unwrap();
        guard = soon("the next one's turn", next).await.unwrap();
        assert_eq!(lock.hold_count(guard.owner()).await.unwrap(), 1);
    }
    assert!(guard.fencing_token() > token);
    guard.unlock().await.unwrap();
    assert_nothing_left(store, &client, &lock).await;
    lock.stats().hand_offs
}

pub(crate) async fn waiters_hand_the_lock_off_in_memory(store: &Subject<'_>) {
    let options = LockOptions::default().tenure(Duration::from_secs(3600));
    assert_eq!(hand_offs(store, options, true).await, 8);
}

pub(crate) async fn tenure_bounds_the_hand_offs(store: &Subject<'_>) {
    let options = LockOptions::default().tenure(Duration::ZERO);
    assert_eq!(hand_offs(store, options, false).await, 0);
}

pub(crate) async fn waiters_are_served_in_the_order_in_which_they_came(store: &Subject<'_>) {
    const WAITERS: usize = 8;
    let client = store.client().await;
    let lock = store.lock(&client, &fresh_name());
    let served = Arc::new(Mutex::new(Vec::new()));
    let waiter = |number| {
        let (lock, served) = (lock.clone(), Arc::clone(&served));
        async move {
            let guard = lock.lock().await.unwrap();
            served.lock().unwrap().push(number);
            guard.unlock().await.unwrap();
        }
    };
    let guard = lock.lock().await.unwrap();
    let mut waiters = Vec::new();
    for number in 0..WAITERS {
        waiters.push(spawn(waiter(number)));
        eventually("waiting", async || waiting(store, &client, &lock) == number + 1).await;
    }
    guard.unlock().await.unwrap();
    // The task that has just released, and asks again at once, is the last.
    waiter(WAITERS).await;
    soon("every waiter's turn", async {
        for waiter in waiters {
            waiter.await.unwrap();
        }
    })
    .await;
    assert_eq!(*served.lock().unwrap(), Vec::from_iter(0..=WAITERS));
    assert_nothing_left(store, &client, &lock).await;
}

/// Many tasks of two clients increment a number by reading it, yielding, and writing it back.
pub(crate) async fn tasks_take_turns(store: &Subject<'_>) {
    const TASKS: u64 = 16;
    const ROUNDS: u64 = 25;
    let clients = [store.client().await, store.client().await];
    let name = fresh_name();
    let number = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let lock = store.lock(&clients[task as usize % 2], &name);
            let number = Arc::clone(&number);
            spawn(async move {
                for _ in 0..ROUNDS {
                    let guard = lock.lock().await.unwrap();
                    // Ordering: Relaxed, because only the lock may keep the number right.
                    let read = number.load(Ordering::Relaxed);
                    yield_now().await;
                    // Ordering: Relaxed, as above.
                    number.store(read + 1, Ordering::Relaxed);
                    guard.unlock().await.unwrap();
                }
            })
        })
        .collect();
    soon("every task's turn", async {
        for task in tasks {
            task.await.unwrap();
        }
    })
    .await;
    // Ordering: Relaxed, the tasks have ended.
    assert_eq!(number.load(Ordering::Relaxed), TASKS * ROUNDS);
    for client in &clients {
        assert_nothing_left(store, client, &store.lock(client, &name)).await;
    }
}

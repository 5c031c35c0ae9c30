//! Promises of a fair lock beyond those of every [lock](crate::lock): the order of all clients' waiters.

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use futures_util::future::join;
use latchwork::{Guard, Lease, Lock, LockClient, LockOptions, LossReason};

use crate::lock::{DropAfter, assert_nothing_left, fresh_name, head_sleeps, waiting};
use crate::store::Subject;
use crate::tasks::{JoinHandle, eventually, now, since, sleep, soon, spawn, timeout};

/// A third of the default watchdog's timeout: the store keeps the position of a silent client for this time.
/// A shorter wait was not held up by a silent client.
const AT_ONCE: Duration = Duration::from_secs(5);

/// Pause between two arrivals: on a busy machine, closer ones could reach the store in either order.
const APART: Duration = Duration::from_millis(100);

struct Clients<'s> {
    store: &'s Subject<'s>,
    clients: Vec<LockClient>,
    locks: Vec<Lock>,
}

impl<'s> Clients<'s> {
    async fn new(store: &'s Subject<'s>, how_many: usize) -> Self {
        Self::with(store, how_many, &LockOptions::default()).await
    }

    async fn with(store: &'s Subject<'s>, how_many: usize, options: &LockOptions) -> Self {
        let name = fresh_name();
        let mut clients = Vec::new();
        for _ in 0..how_many {
            clients.push(store.client_with(options).await);
        }
        let locks = clients.iter().map(|client| store.lock(client, &name)).collect();
        Self { store, clients, locks }
    }

    /// Spawns a task that waits through this client; returns when the task is queued.
    async fn waiter<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        client: usize,
        wait: impl FnOnce(Lock) -> F,
    ) -> JoinHandle<T> {
        let before = self.waiting(client);
        let waiter = spawn(wait(self.locks[client].clone()));
        self.until_waiting(client, before + 1).await;
        waiter
    }

    fn waiting(&self, client: usize) -> usize {
        waiting(self.store, &self.clients[client], &self.locks[client])
    }

    async fn until_waiting(&self, client: usize, how_many: usize) {
        let (store, client, lock) = (self.store, &self.clients[client], &self.locks[client]);
        eventually("waiting", async || {
            waiting(store, client, lock) == how_many && head_sleeps(store, client, lock)
        })
        .await;
        sleep(APART).await;
    }

    async fn assert_nothing_left(&self) {
        for (client, lock) in self.clients.iter().zip(&self.locks) {
            assert_nothing_left(self.store, client, lock).await;
        }
    }
}

/// Waits for the lock, sets `has_it`, and holds the lock until `go_on` is set.
async fn holds(lock: Lock, has_it: Arc<AtomicBool>, go_on: Arc<AtomicBool>) -> Guard {
    let guard = lock.lock().await.unwrap();
    // Ordering: SeqCst, the easiest to reason about in a test.
    has_it.store(true, Ordering::SeqCst);
    // Ordering: as above.
    eventually("being told to go on", async || go_on.load(Ordering::SeqCst)).await;
    guard
}

async fn poll_until<F: Future>(mut future: Pin<&mut F>, what: &str, mut ask: impl FnMut() -> bool) {
    eventually(what, async || {
        std::future::poll_fn(|context| {
            assert!(
                future.as_mut().poll(context).is_pending(),
                "expected the call to wait, and it ended before: {what}"
            );
            Poll::Ready(())
        })
        .await;
        ask()
    })
    .await;
}

pub(crate) async fn waiters_of_several_clients_are_served_in_arrival_order(store: &Subject<'_>) {
    const WAITERS: usize = 12;
    // The head of a client's queue, and a waiter in the middle.
    const LEAVE: [usize; 2] = [1, 6];
    let all = Clients::new(store, 4).await;
    let held = all.locks[3].lock().await.unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..WAITERS {
        let served = Arc::clone(&served);
        let waiter = all.waiter(number % 3, async move |lock| {
            let guard = lock.lock().await.unwrap();
            served.lock().unwrap().push(number);
            match number % 2 {
                0 => drop(guard),
                _ => guard.unlock().await.unwrap(),
            }
        });
        waiters.push(waiter.await);
    }
    for leaves in LEAVE.into_iter().rev() {
        waiters.remove(leaves).abort();
        all.until_waiting(leaves % 3, 3).await;
    }
    held.unlock().await.unwrap();
    soon("every waiter's turn", async {
        for waiter in waiters {
            waiter.await.unwrap();
        }
    })
    .await;
    let expected: Vec<_> = (0..WAITERS).filter(|number| !LEAVE.contains(number)).collect();
    assert_eq!(*served.lock().unwrap(), expected);
    all.assert_nothing_left().await;
}

pub(crate) async fn newcomer_does_not_overtake(store: &Subject<'_>) {
    let all = Clients::new(store, 3).await;
    // Behind a holder of another client; then, where grants suffice, behind a holder of its own client, whose
    // release names this waiter as the next.
    let names_the_next = store.backend(&all.clients[1]).grants_suffice();
    for holder in [0, 1].into_iter().take(if names_the_next { 2 } else { 1 }) {
        let held = all.locks[holder].lock().await.unwrap();
        let (has_it, go_on) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
        // Behind a holder of the same client, the waiter has not asked the store before the release.
        let waiter = spawn(holds(all.locks[1].clone(), Arc::clone(&has_it), Arc::clone(&go_on)));
        eventually("waiting", async || match holder {
            0 => head_sleeps(store, &all.clients[1], &all.locks[1]),
            _ => all.locks[1].waiters() == 1,
        })
        .await;
        held.unlock().await.unwrap();
        for lock in &all.locks {
            assert!(
                lock.try_lock().await.unwrap().is_none(),
                "expected no lock for a newcomer, and it overtook the waiter"
            );
        }
        let mut last = pin!(all.locks[holder].lock());
        poll_until(last.as_mut(), "the next wait", || all.waiting(holder) > 0).await;
        // Ordering: SeqCst, the easiest to reason about in a test.
        eventually("the waiter's turn", async || has_it.load(Ordering::SeqCst)).await;
        // Ordering: as above.
        go_on.store(true, Ordering::SeqCst);
        let guard = soon("its end", waiter).await.unwrap();
        assert!(guard.is_held());
        guard.unlock().await.unwrap();
        soon("the newcomer's turn", last).await.unwrap().unlock().await.unwrap();
    }
    all.assert_nothing_left().await;
}

pub(crate) async fn waiter_that_leaves_costs_the_others_nothing(store: &Subject<'_>) {
    let all = Clients::new(store, 3).await;
    let held = all.locks[0].lock().await.unwrap();
    let leaves = all.waiter(1, async |lock| drop(lock.lock().await.unwrap())).await;
    let next = all.waiter(2, async |lock| lock.lock().await.unwrap().unlock().await.unwrap()).await;
    leaves.abort();
    assert!(leaves.await.unwrap_err().is_cancelled());
    held.unlock().await.unwrap();
    timeout(AT_ONCE, next).await.expect("a waiter that has left holds up the others").unwrap();
    all.assert_nothing_left().await;
}

pub(crate) async fn waiter_that_leaves_when_it_is_granted_the_lock_passes_it_on(store: &Subject<'_>) {
    let all = Clients::new(store, 3).await;
    // Once the head leaves through a message, once through a release of its own client.
    for leaves in [1, 0] {
        let held = all.locks[0].lock().await.unwrap();
        let mut waits = Box::pin(all.locks[leaves].lock());
        poll_until(waits.as_mut(), "waiting", || match leaves {
            0 => all.locks[0].waiters() == 1,
            _ => head_sleeps(store, &all.clients[1], &all.locks[1]),
        })
        .await;
        let next = all.waiter(2, async |lock| lock.lock().await.unwrap().unlock().await.unwrap()).await;
        held.unlock().await.unwrap();
        drop(waits);
        timeout(AT_ONCE, next).await.expect("a waiter that has left holds up the others").unwrap();
    }
    all.assert_nothing_left().await;
}

pub(crate) async fn unpolled_future_costs_the_others_the_life_of_its_position(store: &Subject<'_>) {
    let watchdog = Duration::from_secs(6);
    let position = watchdog / 3;
    let all = Clients::with(store, 3, &LockOptions::default().watchdog_timeout(watchdog)).await;
    let held = all.locks[0].lock().await.unwrap();
    let mut rests = Box::pin(all.locks[1].lock());
    poll_until(rests.as_mut(), "sleep", || head_sleeps(store, &all.clients[1], &all.locks[1])).await;
    let next = all.waiter(2, async |lock| lock.lock().await.unwrap()).await;
    held.unlock().await.unwrap();
    let before = now();
    let next = soon("the next one's turn", next).await.unwrap();
    let waited = since(before);
    assert!(
        waited < position * 2,
        "expected a wait below twice the position's {position:?}, and it took {waited:?}"
    );
    poll_until(rests.as_mut(), "the next wait", || all.waiting(1) == 1).await;
    next.unlock().await.unwrap();
    soon("the turn of the one that rested", rests).await.unwrap().unlock().await.unwrap();
    all.assert_nothing_left().await;
}

pub(crate) async fn hold_that_was_granted_unasked_lasts(store: &Subject<'_>) {
    let watchdog = Duration::from_millis(4500);
    let all = Clients::with(store, 3, &LockOptions::default().watchdog_timeout(watchdog)).await;
    let held = all.locks[0].lock().await.unwrap();
    let waiter = all.waiter(1, async |lock| lock.lock().await.unwrap()).await;
    held.unlock().await.unwrap();
    let guard = soon("the grant", waiter).await.unwrap();
    // Longer than the store keeps a position, and than an unrenewed lease lasts.
    let patience = watchdog + watchdog / 9;
    assert!(all.locks[2].try_lock_for(patience, Lease::Watched).await.unwrap().is_none());
    guard.ensure_held().await.unwrap();
    guard.unlock().await.unwrap();
    all.assert_nothing_left().await;
}

pub(crate) async fn lease_of_its_own_begins_with_the_release(store: &Subject<'_>) {
    const LEASE: Duration = Duration::from_secs(20);
    const SHORT: Duration = Duration::from_millis(300);
    let all = Clients::new(store, 2).await;
    for client in [0, 1] {
        for lease in [LEASE, SHORT] {
            let held = all.locks[0].lock().await.unwrap();
            let takes = |lock: Lock| async move { lock.lock_with_lease(lease).await.unwrap() };
            let waiter = match client {
                0 => {
                    let waiter = spawn(takes(all.locks[0].clone()));
                    eventually("waiting", async || all.locks[0].waiters() == 1).await;
                    waiter
                }
                _ => all.waiter(client, takes).await,
            };
            sleep(SHORT).await;
            held.unlock().await.unwrap();
            let guard = soon("the grant", waiter).await.unwrap();
            let left = guard.remaining();
            assert!(left <= lease, "{left:?}");
            if lease == LEASE {
                let at_store = all.locks[client].remaining().await.unwrap().unwrap();
                assert!(
                    left > LEASE / 2 && at_store > LEASE / 2 && at_store <= LEASE,
                    "{left:?} {at_store:?}"
                );
                guard.unlock().await.unwrap();
            } else {
                assert_eq!(timeout(AT_ONCE, guard.lost()).await.unwrap(), LossReason::Expired);
                timeout(AT_ONCE, all.locks[client].lock()).await.unwrap().unwrap().unlock().await.unwrap();
                assert!(guard.unlock().await.unwrap_err().is_not_held());
            }
        }
    }
    all.assert_nothing_left().await;
}

pub(crate) async fn tokens_rise_however_the_lock_is_granted(store: &Subject<'_>) {
    let all = Clients::new(store, 3).await;
    let first = all.locks[0].fenced().lock().await.unwrap();
    let tokens = Arc::new(Mutex::new(vec![first.fencing_token().unwrap()]));
    let mut waiters = Vec::new();
    // Waiters of this client and others, with and without a lease time and tokens; and a forced release.
    for (number, client) in [0, 0, 1, 2, 2, 2, 0, 1, 1, 0].into_iter().enumerate() {
        let tokens = Arc::clone(&tokens);
        let wait = |lock: Lock| async move {
            let lock = if number % 4 == 1 { lock } else { lock.fenced() };
            let lease = if number % 3 == 0 { Lease::For(Duration::from_secs(30)) } else { Lease::Watched };
            let guard = lock
                .try_lock_for(Duration::from_secs(30), lease)
                .await
                .unwrap()
                .expect("the waiter has its turn");
            tokens.lock().unwrap().extend(guard.fencing_token());
            match number {
                5 => {
                    assert!(lock.force_unlock().await.unwrap());
                    guard.forget();
                }
                _ => guard.unlock().await.unwrap(),
            }
        };
        let before = all.waiting(client);
        waiters.push(spawn(wait(all.locks[client].clone())));
        eventually("waiting", async || all.waiting(client) == before + 1).await;
    }
    first.unlock().await.unwrap();
    for waiter in waiters {
        soon("its turn", waiter).await.unwrap();
    }
    let tokens = tokens.lock().unwrap();
    assert_eq!(tokens.len(), 8);
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

pub(crate) async fn kinds_refuse_each_other(store: &Subject<'_>) {
    let (one, other) = (store.client().await, store.client().await);
    let name = fresh_name();
    for (held, refused) in [
        (store.lock(&one, &name), other.get_lock(&name).unwrap()),
        (one.get_lock(&name).unwrap(), store.lock(&other, &name)),
    ] {
        let guard = held.lock().await.unwrap();
        assert!(refused.try_lock().await.unwrap_err().is_other_kind());
        assert!(soon("the refusal", refused.lock()).await.unwrap_err().is_other_kind());
        assert!(refused.force_unlock().await.unwrap_err().is_other_kind());
        guard.ensure_held().await.unwrap();
        // `is_locked` of the other kind may fail, but never returns false.
        assert!(refused.is_locked().await.unwrap_or_else(|error| error.is_other_kind()));
        guard.unlock().await.unwrap();
        refused.lock().await.unwrap().unlock().await.unwrap();
    }
    assert_nothing_left(store, &one, &store.lock(&one, &name)).await;
    assert_nothing_left(store, &other, &store.lock(&other, &name)).await;
}

pub(crate) async fn forced_unlock_passes_on(store: &Subject<'_>) {
    let all = Clients::new(store, 3).await;
    let mut held = all.locks[0].lock().await.unwrap();
    let first = all.waiter(1, async |lock| lock.lock().await.unwrap()).await;
    let second = all.waiter(2, async |lock| lock.lock().await.unwrap()).await;
    for next in [first, second] {
        assert!(all.locks[0].force_unlock().await.unwrap());
        assert!(
            all.locks[0].try_lock().await.unwrap().is_none(),
            "expected no lock for a newcomer, and it overtook the waiter"
        );
        let new = timeout(AT_ONCE, next).await.expect("the next waiter has its turn").unwrap();
        new.ensure_held().await.unwrap();
        assert!(held.unlock().await.unwrap_err().is_not_held());
        held = new;
    }
    held.unlock().await.unwrap();
    all.assert_nothing_left().await;
}

pub(crate) async fn owner_that_has_the_lock_does_not_queue(store: &Subject<'_>) {
    let all = Clients::new(store, 2).await;
    let lock = all.locks[0].owned_by(&all.clients[0].owner());
    let outer = lock.lock().await.unwrap();
    let theirs = all.waiter(1, async |lock| lock.lock().await.unwrap()).await;
    let ours = spawn({
        let lock = all.locks[0].clone();
        async move { lock.lock().await.unwrap() }
    });
    eventually("waiting", async || all.locks[0].waiters() == 1).await;
    let inner =
        timeout(AT_ONCE, lock.lock()).await.expect("the owner does not wait for its own hold").unwrap();
    let fenced = timeout(AT_ONCE, lock.fenced().lock())
        .await
        .expect("the owner does not wait for its own hold")
        .unwrap();
    assert!(!theirs.is_finished() && !ours.is_finished());
    for guard in [outer, inner, fenced] {
        guard.unlock().await.unwrap();
    }
    soon("their turn", theirs).await.unwrap().unlock().await.unwrap();
    soon("ours", ours).await.unwrap().unlock().await.unwrap();
    all.assert_nothing_left().await;
}

pub(crate) async fn shutdown_tells_the_waiters(store: &Subject<'_>) {
    let all = Clients::new(store, 3).await;
    let held = all.locks[0].lock().await.unwrap();
    let mut told = Vec::new();
    // A waiter in the store's queue, another behind it, and a third behind a holder of its own client.
    for client in [1, 1, 0] {
        let lock = all.locks[client].clone();
        let before = all.waiting(client);
        told.push(spawn(async move { lock.lock().await.unwrap_err() }));
        eventually("waiting", async || all.waiting(client) == before + 1).await;
    }
    let last = all.waiter(2, async |lock| lock.lock().await.unwrap()).await;
    soon("the shutdown", all.clients[1].shutdown(AT_ONCE)).await.unwrap();
    let ends = all.clients[0].shutdown(AT_ONCE);
    let (ended, ()) = join(ends, async {
        for told in told {
            assert!(
                timeout(AT_ONCE, told)
                    .await
                    .expect("expected the notification of the waiter")
                    .unwrap()
                    .is_shut_down()
            );
        }
        held.unlock().await.unwrap();
    })
    .await;
    ended.unwrap();
    timeout(AT_ONCE, last).await.expect("the waiter has its turn").unwrap().unlock().await.unwrap();
    all.assert_nothing_left().await;
}

pub(crate) async fn dropped_unlock_passes_on(store: &Subject<'_>) {
    let all = Clients::new(store, 2).await;
    for polls in 0..3 {
        for client in [0, 1] {
            let guard = all.locks[0].lock().await.unwrap();
            let next = spawn({
                let lock = all.locks[client].clone();
                async move { lock.lock().await.unwrap().unlock().await.unwrap() }
            });
            eventually("waiting", async || all.waiting(client) == 1).await;
            spawn(DropAfter::polls(polls, guard.unlock())).await.unwrap();
            timeout(AT_ONCE, next).await.expect("the next waiter has its turn").unwrap();
        }
    }
    all.assert_nothing_left().await;
}

pub(crate) async fn waiter_dropped_at_any_poll_keeps_no_other_client_waiting(store: &Subject<'_>) {
    for polls in 0..1000 {
        let all = Clients::new(store, 3).await;
        let held = all.locks[0].lock().await.unwrap();
        let lock = all.locks[1].clone();
        let dropped = spawn(async move { DropAfter::polls(polls, lock.lock()).await.is_some() });
        eventually("waiting", async || dropped.is_finished() || all.waiting(1) == 1).await;
        let behind = spawn({
            let lock = all.locks[2].clone();
            async move { lock.lock().await.unwrap().unlock().await.unwrap() }
        });
        eventually("waiting behind", async || all.waiting(2) == 1).await;
        held.unlock().await.unwrap();
        timeout(AT_ONCE, behind).await.expect("the waiter behind has its turn").unwrap();
        let got_it = soon("the end of the first waiter", dropped).await.unwrap();
        all.assert_nothing_left().await;
        if got_it {
            return;
        }
    }
    panic!("the lock was not to be had in a thousand polls");
}

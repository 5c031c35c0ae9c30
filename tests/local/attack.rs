//! Random attacks on fair and read-write locks by several threads, which the simulator lacks: tasks of many
//! clients wait, leave, rest, read beside their own writes, force and release.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use latchwork::local::Local;
use latchwork::{Guard, Lease, Lock, LockClient, LockError, LockOptions};
use tokio::time::{sleep, timeout};

const CLIENTS: usize = 4;
const TASKS: usize = 96;
const ROUNDS: usize = 6;
const HOLD: Duration = Duration::from_millis(2);
/// Far longer than all other holds together, and shorter than the leases.
const LIMIT: Duration = Duration::from_secs(20);
/// An exclusive holder's share in `Inside::now`.
const ALONE: usize = 1 << 20;

// Ordering: SeqCst for simplicity, in all of this file.
#[derive(Default)]
struct Inside {
    now: AtomicUsize,
    served: AtomicUsize,
    /// True if forced unlocks may leave guards that believe in their lease.
    forces: bool,
}

/// One task's locks: its client's exclusive lock, and the shared side if there is one.
struct Task {
    client: LockClient,
    alone: Lock,
    shared: Option<Lock>,
    inside: Arc<Inside>,
    dice: Rng,
}

async fn polled_once<F: Future>(future: &mut std::pin::Pin<Box<F>>) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await
}

impl Inside {
    /// `beside` is true for a reader whose owner also writes.
    fn enters(&self, shared: bool, beside: bool) {
        let before = self.now.fetch_add(if shared { 1 } else { ALONE }, SeqCst);
        let is_alone = beside || before < if shared { ALONE } else { 1 };
        assert!(self.forces || is_alone, "expected no other holder beside an exclusive one");
        self.served.fetch_add(1, SeqCst);
    }

    fn leaves(&self, guard: &Guard, shared: bool) {
        assert!(self.forces || guard.is_held(), "expected the guard to hold the lock");
        self.now.fetch_sub(if shared { 1 } else { ALONE }, SeqCst);
    }
}

impl Task {
    async fn take(&mut self, lock: &Lock) -> Option<Guard> {
        let dice = &mut self.dice;
        let moment = Duration::from_micros(dice.u64(..60_000));
        match dice.u8(..8) {
            // Leaves after a random time, at any stage.
            0 => timeout(moment, lock.lock_with_lease(LIMIT)).await.ok().map(Result::unwrap),
            // Leaves by the lock's own time limit.
            1 => match lock.try_lock_for(moment, Lease::Watched).await {
                // The client's queue head has no answer yet.
                Err(LockError::NoAnswer { .. }) => None,
                tried => tried.unwrap(),
            },
            // Polls a few times, then rests, sometimes longer than the limit for unpolled grants.
            2 => {
                let mut rests = Box::pin(lock.lock());
                for _ in 0..dice.u8(..3) {
                    if let Poll::Ready(got) = polled_once(&mut rests).await {
                        return Some(got.unwrap());
                    }
                    sleep(moment / 3).await;
                }
                if dice.bool() { Some(rests.await.unwrap()) } else { None }
            }
            3 => lock.try_lock().await.unwrap(),
            _ => Some(timeout(LIMIT, lock.lock()).await.expect("asleep beside a free lock").unwrap()),
        }
    }

    async fn give_back(&mut self, guard: Guard, lock: &Lock) {
        let given_back = match self.dice.u8(..4) {
            0 => return drop(guard),
            1 => {
                let owner = *guard.owner();
                guard.forget();
                lock.unlock(&owner).await
            }
            // The future is dropped, perhaps before its end.
            2 => return drop(polled_once(&mut Box::pin(guard.unlock())).await),
            _ => guard.unlock().await,
        };
        assert!(self.inside.forces || given_back.is_ok(), "{given_back:?}");
    }

    /// Takes a side of the lock, as an owner that may enter again or without one.
    async fn turn(&mut self) {
        let shared = self.shared.is_some() && self.dice.u8(..4) > 0;
        let (me, owned) = (self.client.owner(), self.dice.u8(..3) == 0);
        let of = |lock: &Lock| if owned { lock.owned_by(&me) } else { lock.clone() };
        let lock = of(if shared { self.shared.as_ref().expect("a shared side") } else { &self.alone });
        let reads = self.shared.as_ref().filter(|_| owned && !self.inside.forces).map(of);
        let Some(guard) = self.take(&lock).await else { return };
        let inside = Arc::clone(&self.inside);
        inside.enters(shared, false);
        sleep(HOLD).await;
        let mut inner = None;
        if let Some(reads) = &reads {
            let given_up = !shared && self.dice.u8(..3) == 0;
            let wait = if given_up { Duration::from_micros(self.dice.u64(..100)) } else { LIMIT };
            inner = timeout(wait, reads.lock()).await.ok().map(Result::unwrap);
            assert!(given_up || inner.is_some(), "expected no wait of an owner for its own hold");
        }
        if inside.forces && self.dice.u8(..12) == 0 {
            _ = lock.force_unlock().await.unwrap();
        }
        inner.iter().for_each(|_| inside.enters(true, true));
        inside.leaves(&guard, shared);
        self.give_back(guard, &lock).await;
        if let (Some(inner), Some(reads)) = (inner, reads) {
            sleep(HOLD).await;
            inside.leaves(&inner, true);
            self.give_back(inner, &reads).await;
        }
    }
}

async fn attack(seed: u64, locks: fn(&LockClient) -> (Lock, Option<Lock>), forces: bool) {
    let backend = Local::new();
    let tenure = if seed.is_multiple_of(2) { Duration::from_millis(30) } else { Duration::ZERO };
    // Leases are longer than any stall of the machine.
    let options = LockOptions::default().tenure(tenure);
    let clients = [(); CLIENTS].map(|()| LockClient::with_options(backend.clone(), &options).unwrap());
    let inside = Arc::new(Inside { forces, ..Inside::default() });
    let tasks = (0..TASKS).map(|number| {
        let (client, inside) = (clients[number % CLIENTS].clone(), Arc::clone(&inside));
        let (alone, shared) = locks(&client);
        let dice = Rng::with_seed((seed << 16) | number as u64);
        let mut task = Task { client, alone, shared, inside, dice };
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                task.turn().await;
                sleep(Duration::from_micros(task.dice.u64(..4000))).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        timeout(LIMIT * 3, task).await.expect("a task waits for ever").unwrap();
    }
    assert!(inside.served.load(SeqCst) > TASKS * ROUNDS / 2, "{:?}", inside.served);
    for client in &clients {
        let (alone, shared) = locks(client);
        for side in [&alone].into_iter().chain(&shared) {
            let guard = side.try_lock_for(LIMIT / 4, Lease::Watched).await.unwrap();
            guard.expect("nothing is left").unlock().await.unwrap();
            assert_eq!(side.waiters(), 0);
        }
        assert!(client.registry().is_empty(), "{:?}", client.registry());
    }
}

fn fair(client: &LockClient) -> (Lock, Option<Lock>) {
    (client.get_fair_lock("tickets").unwrap(), None)
}

fn both_sides(client: &LockClient) -> (Lock, Option<Lock>) {
    let both = client.get_read_write_lock("prices").unwrap();
    (both.write().clone(), Some(both.read().clone()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiters_that_leave_and_rest_cost_no_other_its_turn() {
    for seed in 1..3 {
        attack(seed, fair, false).await;
        attack(seed, fair, true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn readers_and_writers_under_attack() {
    for seed in 0..4 {
        attack(seed, both_sides, false).await;
        attack(seed, both_sides, true).await;
    }
}

//! Random attacks on fair and read-write locks: tasks of several clients, on several threads, wait, leave,
//! rest, read beside their own writes, force and release.

use std::collections::HashSet;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use fastrand::Rng;
use latchwork::backend::Backend as _;
use latchwork::local::Local;
use latchwork::lock::Mode;
use latchwork::{Guard, Lease, Lock, LockClient, LockError, LockOptions};
use tokio::time::{sleep, timeout};

const CLIENTS: usize = 4;
const TASKS: usize = 96;
const ROUNDS: usize = 6;
const HOLD: Duration = Duration::from_millis(2);
/// Arrivals this far apart must be served in order; far longer than a task waits for a processor.
const SLACK: Duration = Duration::from_millis(100);
/// Far longer than all other holds together, and shorter than the leases.
const LIMIT: Duration = Duration::from_secs(20);

/// Checks each holder, and of fair locks the order of undisturbed tasks.
#[derive(Default)]
struct Judge {
    /// True if forced unlocks may leave guards that believe in their lease.
    forces: bool,
    is_fair: bool,
    inside: Mutex<Inside>,
    /// Times at which undisturbed tasks, still waiting, were in the queue at the latest.
    waiting: Mutex<HashSet<(Instant, usize)>>,
}

#[derive(Default)]
struct Inside {
    writes: bool,
    readers: usize,
    /// Greatest token of a writer, then of any holder.
    written: u64,
    token: u64,
    served: [usize; 2],
}

/// One task's locks: its client's exclusive lock, and the shared side if there is one.
struct Task {
    number: usize,
    client: LockClient,
    alone: Lock,
    shared: Option<Lock>,
    judge: Arc<Judge>,
    dice: Rng,
}

impl Judge {
    /// `beside` is true for a reader whose owner also writes.
    fn enters(&self, guard: &Guard, shared: bool, beside: bool) {
        let mut inside = self.inside.lock().unwrap();
        let is_alone = beside || !inside.writes && (shared || inside.readers == 0);
        assert!(self.forces || is_alone, "expected no other holder beside an exclusive one");
        if let Some(token) = guard.fencing_token() {
            let last = if shared { inside.written } else { inside.token };
            assert!(self.forces || token > last, "expected a token above {last}, and got {token}");
            inside.token = inside.token.max(token);
            inside.written = if shared { inside.written } else { inside.written.max(token) };
        }
        if shared {
            inside.readers += 1
        } else {
            inside.writes = true
        }
        inside.served[usize::from(shared)] += 1;
    }

    fn leaves(&self, guard: &Guard, shared: bool) {
        assert!(self.forces || guard.is_held(), "expected the guard to hold the lock");
        let mut inside = self.inside.lock().unwrap();
        if shared { inside.readers -= 1 } else { inside.writes = false }
    }

    /// Awaits the guard of an undisturbed task. The queue is joined between two readings of the clock, as the
    /// machine may suspend this thread in between.
    async fn serves(&self, task: usize, wait: impl Future<Output = Guard>) -> Guard {
        let (mut wait, began) = (pin!(wait), Instant::now());
        let first = poll_fn(|context| Poll::Ready(wait.as_mut().poll(context))).await;
        let queued = (Instant::now(), task);
        let guard = match first {
            Poll::Ready(guard) => guard,
            Poll::Pending => {
                self.waiting.lock().unwrap().insert(queued);
                wait.await
            }
        };
        let mut waiting = self.waiting.lock().unwrap();
        waiting.remove(&queued);
        let overtaken = waiting.iter().find(|(other, _)| self.is_fair && *other + SLACK < began);
        assert!(overtaken.is_none(), "expected {overtaken:?} before {task}, which came at {began:?}");
        guard
    }
}

impl Task {
    async fn take(&mut self, lock: &Lock) -> Option<Guard> {
        let dice = &mut self.dice;
        let lock = if dice.u8(..3) == 0 { lock.fenced() } else { lock.clone() };
        let lease = if dice.u8(..4) == 0 { Lease::For(LIMIT * 2) } else { Lease::Watched };
        match dice.u8(..8) {
            // Leaves after a random time, at any stage.
            0 => {
                let wait = Duration::from_micros(dice.u64(..60_000));
                timeout(wait, lock.lock_with_lease(LIMIT)).await.ok().map(Result::unwrap)
            }
            // Leaves by the lock's own time limit.
            1 => match lock.try_lock_for(Duration::from_micros(dice.u64(..60_000)), lease).await {
                // The client's queue head has no answer yet.
                Err(LockError::NoAnswer { .. }) => None,
                tried => tried.unwrap(),
            },
            // Polls a few times, then rests, sometimes longer than the limit for unpolled grants.
            2 => {
                let mut rests = Box::pin(lock.lock());
                for _ in 0..dice.u8(..3) {
                    let polled = poll_fn(|context| Poll::Ready(rests.as_mut().poll(context))).await;
                    if let Poll::Ready(got) = polled {
                        return Some(got.unwrap());
                    }
                    sleep(Duration::from_micros(dice.u64(..20_000))).await;
                }
                if dice.bool() { Some(rests.await.unwrap()) } else { None }
            }
            3 => lock.try_lock().await.unwrap(),
            _ => {
                let wait = timeout(LIMIT, lock.try_lock_for(LIMIT * 2, lease));
                let wait =
                    async { wait.await.expect("asleep beside a free lock").unwrap().expect("its turn") };
                Some(self.judge.serves(self.number, wait).await)
            }
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
            2 => {
                // The future may be dropped before its end.
                let mut unlocks = Box::pin(guard.unlock());
                _ = poll_fn(|context| Poll::Ready(unlocks.as_mut().poll(context))).await;
                return;
            }
            _ => guard.unlock().await,
        };
        assert!(self.judge.forces || given_back.is_ok(), "{given_back:?}");
    }

    /// Takes a side of the lock, as an owner that may enter again or without one.
    async fn turn(&mut self, shared: bool) {
        let (me, owned) = (self.client.owner(), self.dice.u8(..3) == 0);
        let of = |lock: &Lock| if owned { lock.owned_by(&me) } else { lock.clone() };
        let lock = of(if shared { self.shared.as_ref().expect("a shared side") } else { &self.alone });
        let reads = self.shared.as_ref().filter(|_| owned && !self.judge.forces).map(of);
        let Some(guard) = self.take(&lock).await else { return };
        let judge = Arc::clone(&self.judge);
        judge.enters(&guard, shared, false);
        sleep(HOLD).await;
        let mut inner = None;
        if let Some(reads) = &reads {
            if shared {
                assert!(of(&self.alone).try_lock().await.unwrap_err().is_upgrade());
            }
            let given_up = !shared && self.dice.u8(..3) == 0;
            let wait = if given_up { Duration::from_micros(self.dice.u64(..100)) } else { LIMIT };
            inner = timeout(wait, reads.lock()).await.ok().map(Result::unwrap);
            assert!(given_up || inner.is_some(), "expected no wait of an owner for its own hold");
        }
        if judge.forces && self.dice.u8(..12) == 0 {
            _ = lock.force_unlock().await.unwrap();
        }
        if let Some(inner) = inner.as_ref() {
            judge.enters(inner, true, true);
        }
        judge.leaves(&guard, shared);
        self.give_back(guard, &lock).await;
        if let (Some(inner), Some(reads)) = (inner, reads) {
            sleep(HOLD).await;
            judge.leaves(&inner, true);
            self.give_back(inner, &reads).await;
        }
    }
}

async fn attack(seed: u64, locks: fn(&LockClient) -> (Lock, Option<Lock>), forces: bool) {
    let backend = Local::new();
    let tenure = if seed.is_multiple_of(2) { Duration::from_millis(30) } else { Duration::ZERO };
    // Leases are longer than any stall of the machine.
    let options = LockOptions::default().tenure(tenure);
    let clients: Vec<_> =
        (0..CLIENTS).map(|_| LockClient::with_options(backend.clone(), &options).unwrap()).collect();
    let is_fair = locks(&clients[0]).1.is_none();
    let judge = Arc::new(Judge { forces, is_fair, ..Judge::default() });
    let tasks = (0..TASKS).map(|number| {
        let (client, judge) = (clients[number % CLIENTS].clone(), Arc::clone(&judge));
        let (alone, shared) = locks(&client);
        let dice = Rng::with_seed((seed << 16) | number as u64);
        let mut task = Task { number, client, alone, shared, judge, dice };
        tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let shared = task.shared.is_some() && task.dice.u8(..4) > 0;
                task.turn(shared).await;
                sleep(Duration::from_micros(task.dice.u64(..4000))).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        timeout(LIMIT * 3, task).await.expect("a task waits for ever").unwrap();
    }
    let served = judge.inside.lock().unwrap().served;
    assert!(served.iter().sum::<usize>() > TASKS * ROUNDS / 2, "{served:?}");
    for client in &clients {
        let (alone, shared) = locks(client);
        for side in [&alone].into_iter().chain(&shared) {
            let guard = side.try_lock_for(LIMIT / 4, Lease::Watched).await.unwrap();
            guard.expect("nothing is left").unlock().await.unwrap();
            assert_eq!(side.waiters(), 0);
        }
        assert!(client.registry().is_empty(), "{:?}", client.registry());
        let modes = [Mode::Fair, Mode::Write, Mode::Read];
        for mode in modes {
            let channel = backend.channels(mode, alone.name(), client.id()).own;
            assert!(client.registry().join(&channel).is_none(), "expected the end of interest, {mode}");
        }
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
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn forced_unlocks_leave_no_task_waiting_for_ever() {
    for seed in 1..3 {
        attack(seed, fair, true).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn readers_and_writers_under_attack() {
    for seed in 0..4 {
        attack(seed, both_sides, false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn readers_and_writers_under_attack_and_force() {
    for seed in 10..12 {
        attack(seed, both_sides, true).await;
    }
}

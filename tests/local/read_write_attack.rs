//! Random attacks on read-write locks: tasks of several clients read, write, do both, leave, rest and force.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use fastrand::Rng;
use latchwork::backend::Backend as _;
use latchwork::local::Local;
use latchwork::lock::Mode;
use latchwork::{Guard, Lease, Lock, LockClient, LockError, LockOptions, ReadWriteLock};
use tokio::time::{sleep, timeout};

const CLIENTS: usize = 4;
const TASKS: usize = 96;
const ROUNDS: usize = 6;
const HOLD: Duration = Duration::from_millis(2);
/// Far longer than all other holds together, and shorter than the leases.
const LIMIT: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Judge {
    inside: Mutex<Inside>,
    /// True if forced unlocks may leave stale guards that believe in their lease.
    forces: bool,
}

#[derive(Default)]
struct Inside {
    writes: bool,
    readers: usize,
    /// Greatest token of a writer, then of any holder.
    written: u64,
    token: u64,
    times: (usize, usize),
}

impl Judge {
    fn writes(&self, guard: &Guard) {
        let mut inside = self.inside.lock().unwrap();
        assert!(
            self.forces || !inside.writes && inside.readers == 0,
            "expected the writer alone, and found another holder"
        );
        if let Some(token) = guard.fencing_token() {
            assert!(
                self.forces || token > inside.token,
                "expected a token above {}, and got {token}",
                inside.token
            );
            inside.token = inside.token.max(token);
            inside.written = inside.written.max(token);
        }
        inside.writes = true;
        inside.times.0 += 1;
    }

    fn writes_no_more(&self, guard: &Guard) {
        assert!(self.forces || guard.is_held(), "expected the guard to hold the lock");
        self.inside.lock().unwrap().writes = false;
    }

    /// Counts a reader; `beside` is true if the reader's owner also writes.
    fn reads(&self, guard: &Guard, beside: bool) {
        let mut inside = self.inside.lock().unwrap();
        assert!(self.forces || beside || !inside.writes, "expected no reader beside another owner's writer");
        if let Some(token) = guard.fencing_token() {
            assert!(
                self.forces || token > inside.written,
                "expected a token above {}, and got {token}",
                inside.written
            );
            inside.token = inside.token.max(token);
        }
        inside.readers += 1;
        inside.times.1 += 1;
    }

    fn reads_no_more(&self, guard: &Guard) {
        assert!(self.forces || guard.is_held(), "expected the guard to hold the lock");
        self.inside.lock().unwrap().readers -= 1;
    }
}

async fn attack(lock: &Lock, dice: &mut Rng) -> Option<Guard> {
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
        2 => {
            let mut rests = Box::pin(lock.lock());
            for _ in 0..dice.u8(..3) {
                let got = poll_fn(|context| {
                    Poll::Ready(match rests.as_mut().poll(context) {
                        Poll::Ready(got) => Some(got.unwrap()),
                        Poll::Pending => None,
                    })
                });
                if let Some(guard) = got.await {
                    return Some(guard);
                }
                sleep(Duration::from_micros(dice.u64(..20_000))).await;
            }
            if dice.bool() { Some(rests.await.unwrap()) } else { None }
        }
        3 => lock.try_lock().await.unwrap(),
        _ => {
            let got = timeout(LIMIT, lock.try_lock_for(LIMIT * 2, lease)).await;
            Some(got.expect("the call ends").unwrap().expect("the waiter gets the lock within its limit"))
        }
    }
}

async fn gives_back(guard: Guard, lock: &Lock, judge: &Judge, dice: &mut Rng) {
    match dice.u8(..4) {
        0 => drop(guard),
        1 => {
            let owner = *guard.owner();
            guard.forget();
            let unlocked = lock.unlock(&owner).await;
            assert!(judge.forces || unlocked.is_ok(), "{unlocked:?}");
        }
        2 => {
            let mut unlocks = Box::pin(guard.unlock());
            _ = poll_fn(|context| Poll::Ready(unlocks.as_mut().poll(context))).await;
        }
        _ => {
            let unlocked = guard.unlock().await;
            assert!(judge.forces || unlocked.is_ok(), "{unlocked:?}");
        }
    }
}

async fn reads(judge: &Judge, client: &LockClient, lock: &ReadWriteLock, dice: &mut Rng) {
    let me = client.owner();
    let owned = dice.u8(..4) == 0;
    let read = if owned { lock.read().owned_by(&me) } else { lock.read().clone() };
    let Some(guard) = attack(&read, dice).await else { return };
    judge.reads(&guard, false);
    sleep(HOLD).await;
    if owned && !judge.forces {
        let inner =
            timeout(LIMIT, read.lock()).await.expect("the owner does not wait for its own hold").unwrap();
        let write = lock.write().owned_by(&me);
        assert!(write.try_lock().await.unwrap_err().is_upgrade());
        sleep(HOLD / 2).await;
        gives_back(inner, &read, judge, dice).await;
    }
    if judge.forces && dice.u8(..16) == 0 {
        _ = lock.read().force_unlock().await.unwrap();
    }
    judge.reads_no_more(&guard);
    gives_back(guard, &read, judge, dice).await;
}

async fn writes(judge: &Judge, client: &LockClient, lock: &ReadWriteLock, dice: &mut Rng) {
    let me = client.owner();
    let owned = dice.u8(..2) == 0;
    let write = if owned { lock.write().owned_by(&me) } else { lock.write().clone() };
    let Some(guard) = attack(&write, dice).await else { return };
    judge.writes(&guard);
    sleep(HOLD).await;
    if judge.forces && dice.u8(..16) == 0 {
        _ = lock.write().force_unlock().await.unwrap();
    }
    let mut reads = None;
    if owned && !judge.forces {
        let read = lock.read().owned_by(&me);
        reads = match dice.u8(..3) {
            0 => timeout(Duration::from_micros(dice.u64(..100)), read.lock()).await.ok().map(Result::unwrap),
            _ => Some(
                timeout(LIMIT, read.lock()).await.expect("the owner does not wait for its own hold").unwrap(),
            ),
        };
    }
    if let Some(reads) = &reads {
        judge.reads(reads, true);
    }
    judge.writes_no_more(&guard);
    gives_back(guard, &write, judge, dice).await;
    if let Some(reads) = reads {
        sleep(HOLD).await;
        judge.reads_no_more(&reads);
        gives_back(reads, lock.read(), judge, dice).await;
    }
}

async fn under_attack(seed: u64, forces: bool, options: LockOptions) {
    let backend = Local::new();
    let judge = Arc::new(Judge { forces, ..Judge::default() });
    let clients: Vec<_> =
        (0..CLIENTS).map(|_| LockClient::with_options(backend.clone(), &options).unwrap()).collect();
    let tasks = (0..TASKS).map(|task| {
        let (client, judge) = (clients[task % CLIENTS].clone(), Arc::clone(&judge));
        let mut dice = Rng::with_seed(seed.wrapping_mul(1000) + task as u64);
        tokio::spawn(async move {
            let lock = client.get_read_write_lock("prices").unwrap();
            for _ in 0..ROUNDS {
                match dice.u8(..4) {
                    0 => writes(&judge, &client, &lock, &mut dice).await,
                    _ => reads(&judge, &client, &lock, &mut dice).await,
                }
                sleep(Duration::from_micros(dice.u64(..4000))).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    let (written, read) = judge.inside.lock().unwrap().times;
    assert!(
        written > TASKS / 2 && read > TASKS,
        "expected more than {TASKS} reads and half as many writes, and saw {read} and {written}"
    );
    let name = clients[0].get_read_write_lock("prices").unwrap().name().clone();
    timeout(LIMIT, async {
        for side in [Mode::Write, Mode::Read] {
            while !backend.holders(side, &name).await.unwrap().is_empty() {
                sleep(HOLD).await;
            }
        }
    })
    .await
    .expect("a lease is left");
    for client in &clients {
        let lock = client.get_read_write_lock("prices").unwrap();
        for side in [lock.read(), lock.write()] {
            assert_eq!(side.waiters(), 0);
            side.try_lock().await.unwrap().expect("the lock is free").unlock().await.unwrap();
        }
        assert_eq!(client.registry().len(), 0, "{:?}", client.registry());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn readers_and_writers_under_attack() {
    for seed in 0..4 {
        let tenure = if seed % 2 == 0 { Duration::from_millis(30) } else { Duration::ZERO };
        under_attack(seed, false, LockOptions::default().tenure(tenure)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn readers_and_writers_under_attack_and_force() {
    for seed in 10..12 {
        under_attack(seed, true, LockOptions::default()).await;
    }
}

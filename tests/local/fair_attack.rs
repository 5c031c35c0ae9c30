//! Random attacks on fair locks: tasks of several clients wait, leave, rest, force and release.

use std::collections::HashSet;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
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
const HOLD: Duration = Duration::from_millis(3);
/// Arrivals this far apart must be served in order; far longer than a task waits for a processor.
const SLACK: Duration = Duration::from_millis(100);
/// Far longer than all other holds together, and shorter than the leases.
const LIMIT: Duration = Duration::from_secs(20);

/// Records arrivals and checks each holder.
#[derive(Default)]
struct Judge {
    inside: AtomicBool,
    token: AtomicU64,
    /// True if forced unlocks may leave two guards that believe in their lease.
    forces: bool,
    /// Times at which undisturbed tasks, still waiting, were in the queue at the latest.
    waiting: Mutex<HashSet<(Instant, usize)>>,
    served: AtomicU64,
}

impl Judge {
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
        let overtaken = waiting.iter().find(|(other, _)| *other + SLACK < began);
        assert!(
            overtaken.is_none(),
            "expected waiters in the order of their arrival, and {task} of {began:?} before {overtaken:?}"
        );
        guard
    }

    async fn holds(&self, guard: &Guard) {
        // Ordering: Relaxed, as only the lock may order the holders.
        let was_inside = self.inside.swap(true, Ordering::Relaxed);
        assert!(!was_inside || self.forces, "expected one holder, and found two");
        if let Some(token) = guard.fencing_token() {
            // Ordering: Relaxed, as above.
            let last = self.token.fetch_max(token, Ordering::Relaxed);
            assert!(last < token || self.forces, "expected a token above {last}, and got {token}");
        }
        sleep(HOLD).await;
        assert!(guard.is_held() || self.forces, "expected the guard to hold the lock");
        // Ordering: Relaxed, as above.
        self.inside.store(false, Ordering::Relaxed);
        self.served.fetch_add(1, Ordering::Relaxed);
    }
}

async fn attack(judge: &Judge, client: &LockClient, lock: &Lock, task: usize, dice: &mut Rng) {
    let lock = if dice.u8(..3) == 0 { lock.fenced() } else { lock.clone() };
    let lease = if dice.u8(..4) == 0 { Lease::For(LIMIT * 2) } else { Lease::Watched };
    let owned = dice.u8(..5) == 0;
    let guard = match dice.u8(..8) {
        // Leaves after a random time, at any stage.
        0 => {
            let wait = Duration::from_micros(dice.u64(..60_000));
            timeout(wait, lock.lock_with_lease(LIMIT)).await.ok().map(Result::unwrap)
        }
        // Leaves by the lock's own time limit.
        1 => {
            match lock.try_lock_for(Duration::from_micros(dice.u64(..60_000)), lease).await {
                // The client's queue head has no answer yet.
                Err(LockError::NoAnswer { .. }) => None,
                tried => tried.unwrap(),
            }
        }
        // Polls a few times, then rests, sometimes longer than the limit for unpolled grants.
        2 => {
            let mut rests = Box::pin(lock.lock());
            let mut got = None;
            for _ in 0..dice.u8(..3) {
                got = poll_fn(|context| {
                    Poll::Ready(match rests.as_mut().poll(context) {
                        Poll::Ready(got) => Some(got.unwrap()),
                        Poll::Pending => None,
                    })
                })
                .await;
                if got.is_some() {
                    break;
                }
                sleep(Duration::from_micros(dice.u64(..20_000))).await;
            }
            match (got, dice.u8(..2)) {
                (Some(got), _) => Some(got),
                (None, 0) => Some(rests.await.unwrap()),
                (None, _) => None,
            }
        }
        3 => lock.try_lock().await.unwrap(),
        _ => {
            let lock = if owned { lock.owned_by(&client.owner()) } else { lock.clone() };
            let wait = lock.try_lock_for(LIMIT, lease);
            let wait = async { wait.await.unwrap().expect("the waiter sleeps beside a free lock") };
            Some(judge.serves(task, wait).await)
        }
    };
    let Some(guard) = guard else { return };
    judge.holds(&guard).await;
    if judge.forces && dice.u8(..6) == 0 {
        let _ = lock.force_unlock().await.unwrap();
    }
    match dice.u8(..3) {
        0 => drop(guard),
        // May drop the future before the first poll.
        1 => drop(timeout(Duration::from_micros(dice.u64(..2)), guard.unlock()).await),
        _ => assert!(
            guard.unlock().await.is_ok() || judge.forces,
            "expected an unlock of a held lock, and the hold was lost"
        ),
    }
}

async fn run(seed: u64, forces: bool) {
    let backend = Local::new();
    // Longer than any stall of the machine.
    let options = LockOptions::default().watchdog_timeout(Duration::from_secs(15));
    let clients: Vec<_> =
        (0..CLIENTS).map(|_| LockClient::with_options(backend.clone(), &options).unwrap()).collect();
    let judge = Arc::new(Judge { forces, ..Judge::default() });
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (client, judge) = (clients[task % CLIENTS].clone(), Arc::clone(&judge));
            let lock = client.get_fair_lock("tickets").unwrap();
            tokio::spawn(async move {
                let mut dice = Rng::with_seed((seed << 16) | task as u64);
                for _ in 0..ROUNDS {
                    attack(&judge, &client, &lock, task, &mut dice).await;
                }
            })
        })
        .collect();
    for task in tasks {
        timeout(LIMIT * 3, task).await.expect("a task waits for ever").unwrap();
    }
    let lock = LockClient::new(backend.clone()).get_fair_lock("tickets").unwrap();
    let guard = lock.try_lock_for(LIMIT / 4, Lease::Watched).await.unwrap().expect("something is left");
    guard.unlock().await.unwrap();
    for client in &clients {
        assert!(
            client.registry().is_empty(),
            "expected a registry without subscriptions, and got {:?}",
            client.registry()
        );
        assert_eq!(client.get_fair_lock("tickets").unwrap().waiters(), 0);
        let channel = backend.channels(Mode::Fair, lock.name(), client.id()).own;
        assert!(client.registry().join(&channel).is_none());
    }
    // Ordering: Relaxed, the tasks have ended.
    assert!(judge.served.load(Ordering::Relaxed) > (TASKS * ROUNDS / 2) as u64);
}

/// Returns the seeds of a run; `LATCHWORK_SEED` sets the first, `LATCHWORK_SEEDS` the number.
fn seeds() -> impl Iterator<Item = u64> {
    let first = std::env::var("LATCHWORK_SEED").map_or(1, |seed| seed.parse().expect("a seed is a number"));
    let many = std::env::var("LATCHWORK_SEEDS").map_or(2, |many| many.parse().expect("a number of seeds"));
    (first..).take(many)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn waiters_that_leave_and_rest_cost_no_other_its_turn() {
    for seed in seeds() {
        eprintln!("seed {seed}");
        run(seed, false).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn forced_unlocks_leave_no_task_waiting_for_ever() {
    for seed in seeds() {
        eprintln!("seed {seed}");
        run(seed, true).await;
    }
}

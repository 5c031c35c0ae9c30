//! Owners that believe they hold the lock, while links are silent for longer than leases last.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fastrand::Rng;
use latchwork::{Guard, Lease, LockClient};
use latchwork_testkit::{ChaosProxy, Way};
use tokio::task::JoinHandle;

use super::kind::sides;
use super::stage::{LIFE, LITTLE, Side, end, proxied_for, within};
use crate::day::{Day, NAME};

/// Long enough for a renewal with a lost answer, and one more.
const LEASE: Duration = Duration::from_secs(9);

/// All live guards, each with true if it shares the lock.
#[derive(Default)]
struct Beliefs(Mutex<Vec<(Arc<Guard>, bool)>>);

impl Beliefs {
    fn check(&self) {
        let guards = self.0.lock().unwrap();
        for (alone, _) in guards.iter().filter(|(_, is_shared)| !is_shared) {
            for (other, _) in guards.iter().filter(|(other, _)| !Arc::ptr_eq(alone, other)) {
                // Ask `alone` last: if held now, it was also held when `other` answered.
                assert!(
                    !(other.is_held() && alone.is_held()),
                    "expected one client that believes in the lock, and found two"
                );
            }
        }
    }

    /// Holds the lock for `how_long`, or until it is lost, and then releases.
    async fn hold(&self, guard: Guard, is_shared: bool, how_long: Duration) {
        let guard = Arc::new(guard);
        self.0.lock().unwrap().push((Arc::clone(&guard), is_shared));
        guard.lost_timeout(how_long).await;
        self.0.lock().unwrap().retain(|(other, _)| !Arc::ptr_eq(other, &guard));
        // The lock may be lost, or the release repeated in the background.
        let _ = Arc::into_inner(guard).expect("no other task has the guard").unlock().await;
    }
}

struct Stage {
    beliefs: Beliefs,
    /// True for clients with a silent link; they keep their locks.
    silent: [AtomicBool; 3],
    ends: AtomicBool,
}

impl Stage {
    fn is_silent(&self, client: usize) -> bool {
        // Ordering: Relaxed, the flag only lengthens holds.
        self.silent[client].load(Ordering::Relaxed)
    }

    fn has_ended(&self) -> bool {
        // Ordering: Relaxed, the tasks are joined.
        self.ends.load(Ordering::Relaxed)
    }

    fn takes_turns(self: &Arc<Self>, number: usize, client: &LockClient, seed: u64) -> JoinHandle<usize> {
        let (stage, sides, mut random) = (Arc::clone(self), sides(client, NAME), Rng::with_seed(seed));
        tokio::spawn(async move {
            let mut turns = 0;
            for Side { lock, is_shared } in sides.into_iter().cycle().skip(seed as usize) {
                if stage.has_ended() {
                    break;
                }
                let Ok(Some(guard)) = lock.try_lock_for(LIFE, Lease::Watched).await else { continue };
                let silent = stage.is_silent(number);
                let how_long = if silent { LEASE * 2 } else { Duration::from_millis(random.u64(..20)) };
                stage.beliefs.hold(guard, is_shared, how_long).await;
                turns += 1;
            }
            turns
        })
    }

    async fn silence(&self, number: usize, proxy: &ChaosProxy, ways: &[Way], how_long: Duration) {
        // Ordering: as above. First, so the client keeps a lock held at the start of the silence.
        self.silent[number].store(true, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(200)).await;
        ways.iter().for_each(|way| proxy.silence(*way));
        tokio::time::sleep(how_long).await;
        // Ordering: as above.
        self.silent[number].store(false, Ordering::Relaxed);
        proxy.heal();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_holder_believes_in_the_lock_beside_a_writer() {
    let day = Day::begin();
    let stage = Arc::new(Stage {
        beliefs: Beliefs::default(),
        silent: Default::default(),
        ends: AtomicBool::new(false),
    });
    let (mut proxies, mut clients, mut tasks) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..3 {
        let (proxy, client) = proxied_for(&day.server, LEASE).await;
        for task in 0..3 {
            tasks.push(stage.takes_turns(number, &client, (number * 3 + task) as u64));
        }
        proxies.push(proxy);
        clients.push(client);
    }
    let checks = tokio::spawn({
        let stage = Arc::clone(&stage);
        async move {
            while !stage.has_ended() {
                stage.beliefs.check();
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    // One after the other, repeatedly: the holder at the start keeps the lock until it learns of the loss.
    for (number, ways) in
        [&[Way::ToServer, Way::ToClient][..], &[Way::ToServer], &[Way::ToClient]].into_iter().enumerate()
    {
        stage.silence(number, &proxies[number], ways, LEASE * 2 / 5).await;
        tokio::time::sleep(LITTLE).await;
    }
    let both = [&[Way::ToServer][..], &[Way::ToClient]];
    tokio::join!(
        stage.silence(0, &proxies[0], both[0], LEASE + LITTLE),
        stage.silence(1, &proxies[1], both[1], LEASE + LITTLE),
    );
    // Ordering: as above.
    stage.ends.store(true, Ordering::Relaxed);
    checks.await.unwrap();
    for task in tasks {
        let turns = within(LEASE + LIFE, "a task's end", task).await.unwrap();
        assert!(turns > 0, "expected a turn of each task");
    }
    end(day, &clients.iter().collect::<Vec<_>>()).await;
}

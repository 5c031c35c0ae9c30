//! The watchdog, over a backend whose renewals the test controls.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::foreign::told::events_of;
use crate::over_local::{Back, Between, Command, Fate, Renewals, There, Way, goes, over, over_when};
use crate::polled::ready;
use crate::runtimes::{Differently, Differs};
use crate::stage::begun;
use latchwork::backend::{Backend as _, Failure, LockName, Runtime};
use latchwork::local::{Local, ThreadRuntime};
use latchwork::{Lease, LockClient, LockOptions};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::Level;

const LEASE: Duration = Duration::from_secs(3);
const SOON: Duration = Duration::from_secs(10);

/// Records each renewal call and determines its outcome.
struct Watched {
    runtime: ThreadRuntime,
    calls: Mutex<Vec<(Instant, Vec<String>)>>,
    /// Number of next calls that fail.
    failing: Mutex<u32>,
    /// Number of calls that panic afterwards.
    panicking: Mutex<u32>,
    /// Permits for renewals of names that begin with `slow`.
    go: Semaphore,
}

#[derive(Clone)]
struct Shared(Arc<Watched>);

fn slow(name: &str) -> bool {
    name.starts_with("slow")
}

/// Takes one off `next`; true if any was left.
fn is_one_of(next: &Mutex<u32>) -> bool {
    let mut next = next.lock().unwrap();
    let is_one = *next > 0;
    *next = next.saturating_sub(1);
    is_one
}

impl Shared {
    fn client() -> (Self, LockClient) {
        let (calls, failing, panicking) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (locks, go) = (Local::new(), Semaphore::new(0));
        let runtime = locks.runtime().clone();
        let backend = over(&locks, Self(Arc::new(Watched { runtime, calls, failing, panicking, go })));
        let options = LockOptions::default().watchdog_timeout(LEASE);
        ((*backend.interceptor().0).clone(), LockClient::with_options(backend, &options).unwrap())
    }

    fn calls(&self, prefix: &str) -> Vec<(Instant, Vec<String>)> {
        let calls = self.0.calls.lock().unwrap();
        calls.iter().filter(|(_, names)| names[0].starts_with(prefix)).cloned().collect()
    }

    async fn renews(self, names: Vec<String>) -> Result<(), Failure> {
        let is_slow = slow(&names[0]);
        assert!(
            names.iter().all(|name| slow(name) == is_slow),
            "expected one group of names in a call, and got {names:?}"
        );
        let runtime = &self.0.runtime;
        self.0.calls.lock().unwrap().push((runtime.now(), names));
        if is_slow {
            self.0.go.acquire().await.unwrap().forget();
        }
        let fails = is_one_of(&self.0.failing);
        assert!(!is_one_of(&self.0.panicking), "on purpose");
        if fails {
            // Fail later, with the watchdog asleep again.
            runtime.sleep_until(runtime.now() + Duration::from_millis(20)).await;
            return Err(Failure::Indeterminate);
        }
        Ok(())
    }

    async fn until_calls(&self, prefix: &str, count: usize) {
        let there = async {
            while self.calls(prefix).len() < count {
                tokio::task::yield_now().await;
            }
        };
        timeout(SOON, there).await.unwrap_or_else(|_| panic!("{count} calls for {prefix}"));
    }
}

impl Between for Shared {
    fn renewal_group(&self, name: &LockName) -> u64 {
        u64::from(slow(name.as_str()))
    }

    fn fate(&self, way: Way, command: Command<'_>) -> Fate {
        let (There, Command::Renew(leases, _)) = (way, command) else { return goes() };
        let names = leases.iter().map(|key| key.name.to_string()).collect();
        Box::pin(self.clone().renews(names))
    }
}

#[tokio::test]
async fn renewal_that_fails_is_tried_again_soon() {
    let (backend, client) = Shared::client();
    let guard = client.get_lock("a").unwrap().lock().await.unwrap();
    *backend.0.failing.lock().unwrap() = 1;
    backend.until_calls("a", 2).await;
    let calls = backend.calls("a");
    // The interval is a thirtieth of the lease, not a third.
    assert!(calls[1].0 - calls[0].0 < LEASE / 6, "{:?}", calls[1].0 - calls[0].0);
    assert!(guard.is_held());
    guard.unlock().await.unwrap();
}

/// A panic in the backend delays the renewal by a third of the lease.
#[tokio::test]
async fn renewal_that_panics_is_not_the_last_one() {
    let (backend, client) = Shared::client();
    let guard = client.get_lock("a").unwrap().lock().await.unwrap();
    *backend.0.panicking.lock().unwrap() = 1;
    backend.until_calls("a", 2).await;
    assert!(guard.is_held());
    guard.unlock().await.unwrap();
}

/// The store renews at once, and answers 20 s later.
fn answers_late() -> (ThreadRuntime, LockClient) {
    let clock = ThreadRuntime::paused();
    let backend = over_when(&Local::with_runtime(clock.clone()), {
        let clock = clock.clone();
        move |way, command| {
            let sleep = clock.sleep_until(clock.now() + Duration::from_secs(20));
            match way == Back && command.renews() {
                true => Box::pin(async {
                    sleep.await;
                    Ok(())
                }),
                false => goes(),
            }
        }
    });
    (clock, LockClient::new(backend))
}

#[test]
fn renewal_answered_after_its_lease_is_late_and_the_lock_lost() {
    let (clock, client) = answers_late();
    let lock = client.get_lock("orders").unwrap();
    let held = ready(lock.lock()).unwrap();
    clock.advance(Duration::from_secs(29));
    assert_eq!((client.metrics().renewals_sent, client.metrics().renewals_late), (1, 0));
    assert!(held.is_held());
    clock.advance(Duration::from_secs(1));
    assert_eq!((client.metrics().renewals_late, client.metrics().leases_lost), (1, 1));
    assert!(!held.is_held());
}

#[test]
fn renewal_answered_after_the_release_is_not_late() {
    let (clock, client) = answers_late();
    let held = ready(client.get_lock("orders").unwrap().lock()).unwrap();
    clock.advance(Duration::from_secs(11));
    ready(held.unlock()).unwrap();
    clock.advance(Duration::from_secs(30));
    assert_eq!((client.metrics().renewals_sent, client.metrics().renewals_late), (1, 0));
}

#[test]
fn renewal_is_told_of_if_the_store_has_the_lease() {
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(clock.clone());
    let (client, other) = (LockClient::new(local.clone()), LockClient::new(local));
    let _held = ready(client.get_lock("orders").unwrap().lock()).unwrap();
    let told = |seconds| {
        let advance = || clock.advance(Duration::from_secs(seconds));
        events_of(Level::TRACE, "latchwork::lock::watchdog", advance)
    };
    assert_eq!(told(11), 1);
    ready(other.get_lock("orders").unwrap().force_unlock()).unwrap();
    assert_eq!(told(10), 0);
    assert_eq!(client.metrics().renewals_sent, 2);
}

#[test]
fn lease_that_is_only_looked_after_is_made_no_longer() {
    let (clock, renewals) = (ThreadRuntime::paused(), Renewals::default());
    let client = LockClient::new(over(&Local::with_runtime(clock.clone()), renewals.clone()));
    let lock = client.get_lock("orders").unwrap();
    let _held = ready(lock.lock_with_lease(Duration::from_secs(10))).unwrap();
    let _waits = begun(lock.lock());
    clock.advance(Duration::from_millis(1500));
    assert_eq!(*renewals.0.lock().unwrap(), [(1, Lease::MIN)]);
}

/// An unresponsive part of the store costs only its own locks, with one renewal each under way.
#[tokio::test]
async fn groups_do_not_wait_for_each_other() {
    let (backend, client) = Shared::client();
    let lock = async |name: &str| client.get_lock(name).unwrap().lock().await.unwrap();
    let slow = lock("slow:0").await;
    let quick = lock("quick").await;
    backend.until_calls("slow", 1).await;
    let late = lock("slow:1").await;
    // Three quick renewals outlast the unanswered lease.
    backend.until_calls("quick", 3).await;
    let calls = backend.calls("slow");
    assert_eq!(calls.iter().map(|(_, names)| names.len()).sum::<usize>(), 2, "{calls:?}");
    assert!(quick.is_held() && !slow.is_held());
    backend.0.go.add_permits(100);
    backend.until_calls("slow", 3).await;
    assert_eq!(backend.calls("slow")[2].1, ["slow:1"]);
    assert!(late.is_held());
    for guard in [quick, late] {
        guard.unlock().await.unwrap();
    }
}

/// Fires no timer before a time, as on a busy thread.
#[derive(Clone)]
struct BusyUntil(Instant);

impl Differs for BusyUntil {
    fn fires(&self, deadline: Instant) -> Instant {
        deadline.max(self.0)
    }
}

/// More holds than one pass of the watchdog releases; the rest shares a lease with a live hold.
#[test]
fn watchdog_releases_thousands_of_ended_holds() {
    const MANY: usize = 5000;
    let second = Duration::from_secs(1);
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(Differently(clock.clone(), BusyUntil(clock.now() + second * 16)));
    let options = LockOptions::default().max_hold(second * 15);
    let client = LockClient::with_options(local.clone(), &options).unwrap();
    let prices = client.get_read_write_lock("prices").unwrap();
    let _reads = ready(prices.read().lock()).unwrap();
    let names: Vec<_> = (0..MANY).map(|number| format!("orders:{number}")).collect();
    let take = |name: &String| ready(client.get_lock(name).unwrap().lock()).unwrap();
    let _held: Vec<_> = names.iter().map(take).collect();
    clock.advance(second * 3);
    // Shares the lease, which is due first but lasts longer.
    let reads_on = ready(prices.read().lock()).unwrap();
    clock.advance(second * 14);
    assert!(reads_on.is_held());
    let theirs = LockClient::new(local);
    let kept =
        names.iter().filter(|name| ready(theirs.get_lock(name).unwrap().try_lock()).unwrap().is_none());
    assert_eq!(kept.count(), 0, "of {MANY}");
}

use std::task::Poll;
use std::time::Duration;

use latchwork::local::{Local, ThreadRuntime};
use latchwork::redis::Redis;
use latchwork::{Lease, LockClient, LockOptions, Metrics};
use latchwork_testkit::RedisServer;

use crate::over_local::{Back, Command, Gate, There, goes, over_when};
use crate::polled::{poll, ready};
use crate::stage::begun;
use crate::stores::{Store, on_each_store};

const SOON: Duration = Duration::from_secs(10);
/// Interval between renewals, a third of the lease.
const THIRD: Duration = Duration::from_secs(1);

async fn eventually(client: &LockClient, what: &str, ask: impl Fn(&Metrics) -> bool) {
    let asked = async {
        while !ask(&client.metrics()) {
            tokio::task::yield_now().await;
        }
    };
    if tokio::time::timeout(SOON, asked).await.is_err() {
        panic!("expected within {SOON:?}: {what}; saw {:#?}", client.metrics());
    }
}

fn waiter(client: &LockClient) -> tokio::task::JoinHandle<latchwork::Guard> {
    let lock = client.get_lock("metrics").unwrap();
    tokio::spawn(async move { lock.lock().await.unwrap() })
}

on_each_store! { metrics_of_locks_count_each_event_once }

async fn metrics_of_locks_count_each_event_once(store: &Store) {
    let [here, there] = &[store.client_with(&options()).await, store.client_with(&options()).await];
    let lock = here.get_lock("metrics").unwrap();
    let theirs = there.get_lock("metrics").unwrap();
    let is_quiet = |metrics: &Metrics| metrics.subscriptions == 0;
    assert_eq!(here.metrics(), Metrics::default());

    let guard = lock.lock().await.unwrap();
    assert!(theirs.try_lock().await.unwrap().is_none());
    assert!(lock.try_lock_for(Duration::from_millis(20), Lease::Watched).await.unwrap().is_none());
    assert_eq!((here.metrics().given_up, there.metrics().given_up), (1, 1));
    // The try did not wait.
    let abandoned = |client: &LockClient| client.metrics().waits_abandoned.count();
    assert_eq!((abandoned(here), abandoned(there)), (1, 0));
    let next = waiter(here);
    while lock.waiters() == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(here.metrics().subscriptions, 0, "expected no subscription of a client without waiters");
    guard.unlock().await.unwrap();
    let guard = next.await.unwrap();
    eventually(here, "the end of waiting", is_quiet).await;
    let metrics = here.metrics();
    assert_eq!((metrics.hand_offs_local, metrics.hand_offs_remote), (1, 0));
    assert_eq!((metrics.waits.count(), metrics.holds.count()), (2, 1));
    assert_eq!((metrics.waits_local.count(), metrics.waits_remote.count()), (1, 0));

    let next = waiter(there);
    eventually(there, "the other's waiting", |metrics| metrics.subscriptions == 1).await;
    guard.unlock().await.unwrap();
    let guard = next.await.unwrap();
    let metrics = there.metrics();
    assert_eq!((metrics.hand_offs_local, metrics.hand_offs_remote), (0, 1));
    assert_eq!((metrics.waits.count(), metrics.holds.count()), (1, 0));
    assert_eq!((metrics.waits_local.count(), metrics.waits_remote.count()), (0, 1));

    assert!(lock.force_unlock().await.unwrap());
    assert!(guard.ensure_held().await.unwrap_err().is_not_held());
    assert!(guard.unlock().await.unwrap_err().is_not_held());
    let metrics = there.metrics();
    assert_eq!((metrics.leases_lost, metrics.holds.count()), (1, 1), "{metrics:?}");

    let guard = theirs.lock().await.unwrap();
    eventually(there, "renewals", |metrics| metrics.renewals_sent >= 2).await;
    drop(guard);
    let metrics = there.metrics();
    assert_eq!((metrics.renewals_late, metrics.renewals_failed, metrics.leases_lost), (0, 0, 1));
    assert_eq!((metrics.holds.count(), metrics.reconnects), (2, 0));
    // A lease counts from the request, a hold from the answer.
    let two_renewals = THIRD * 2 - THIRD / 4;
    assert!(metrics.holds.quantile(1.0) >= two_renewals, "{metrics:?}");
    assert!(metrics.holds.sum() >= two_renewals, "{metrics:?}");
}

/// The tenure outlasts the test; hand-offs end after two thirds of the lease, too late only on a dead
/// machine.
fn options() -> LockOptions {
    LockOptions::default().watchdog_timeout(THIRD * 3).tenure(Duration::from_secs(3600))
}

#[tokio::test]
async fn each_reader_is_counted_of_those_that_are_lost_together() {
    let client = LockClient::local();
    let lock = client.get_read_write_lock("metrics").unwrap();
    let readers = [lock.read().lock().await.unwrap(), lock.read().lock().await.unwrap()];
    assert_eq!(client.metrics().held, 2);
    assert!(lock.read().force_unlock().await.unwrap());
    assert!(readers.iter().all(|reader| !reader.is_held()));
    assert_eq!((client.metrics().held, client.metrics().leases_lost), (0, 2));
}

/// The store's clock times a waiter at the store and a waiter in the queue.
#[test]
fn waits_and_holds_take_as_long_as_they_are_said_to() {
    const WAIT: Duration = Duration::from_secs(5);
    const HOLD: Duration = Duration::from_secs(2);
    let clock = ThreadRuntime::paused();
    let local = Local::with_runtime(clock.clone());
    let client = LockClient::with_options(local.clone(), &LockOptions::default().tenure(HOLD * 2)).unwrap();
    let (lock, theirs) = (client.get_lock("a").unwrap(), LockClient::new(local).get_lock("a").unwrap());
    let held = ready(theirs.lock()).unwrap();
    let [mut head, mut behind, mut dropped] = [(); 3].map(|()| Box::pin(lock.lock()));
    for wait in [&mut head, &mut behind, &mut dropped] {
        assert!(poll(wait.as_mut()).is_pending());
    }
    clock.advance(WAIT);
    drop(dropped);
    drop(held);
    let held = ready(head).unwrap();
    assert_eq!(client.metrics().waits.sum(), WAIT);
    clock.advance(HOLD);
    drop(held);
    assert!(poll(behind.as_mut()).is_ready());
    let metrics = client.metrics();
    assert_eq!((metrics.waits.sum(), metrics.holds.sum()), (WAIT * 2 + HOLD, HOLD));
    let by_end = [metrics.waits_remote, metrics.waits_local, metrics.waits_abandoned];
    assert_eq!(by_end.map(|waits| (waits.count(), waits.sum())), [(1, WAIT), (1, WAIT + HOLD), (1, WAIT)]);
}

mod needs_a_server {
    use super::*;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn metrics_count_an_outages_failures_and_reconnects() {
        let mut server = RedisServer::start();
        let client =
            LockClient::with_options(Redis::connect(&server.url()).await.unwrap(), &options()).unwrap();
        let guard = client.get_lock("metrics").unwrap().lock().await.unwrap();
        let lock = client.get_lock("metrics").unwrap();
        let waits = waiter(&client);
        eventually(&client, "waiting", |_| lock.waiters() == 1).await;
        server.kill_9();
        eventually(&client, "a renewal that fails", |metrics| metrics.renewals_failed > 0).await;
        assert_eq!(client.metrics().reconnects, 0);
        server.restart();
        let _lost = guard.lost().await;
        eventually(&client, "a loss", |metrics| metrics.leases_lost == 1).await;
        let next = tokio::time::timeout(SOON, waits).await.expect("the lock is free").unwrap();
        eventually(&client, "new connections", |metrics| metrics.reconnects >= 2).await;
        next.unlock().await.unwrap();
        drop(guard);
    }
}

/// Two forced unlocks surround a token request that begins the lease anew, within one tick of a coarse clock.
#[test]
fn loss_seen_by_an_extension_counts_beside_a_lease_begun_anew() {
    let local = Local::with_runtime(ThreadRuntime::paused());
    let (attempts, renewals) = (Gate::default(), Gate::default());
    let theirs = LockClient::new(local.clone()).get_lock("orders").unwrap();
    let backend = over_when(&local, {
        let (attempts, renewals) = (attempts.clone(), renewals.clone());
        move |way, command| match (way, command) {
            (There, Command::Acquire(_)) => attempts.passes(),
            (Back, Command::Renew(..)) => renewals.passes(),
            _ => goes(),
        }
    });
    let client = LockClient::new(backend);
    let lock = client.get_lock("orders").unwrap().owned_by(&client.owner());
    let mut outer = ready(lock.lock()).unwrap();
    attempts.close();
    let fenced = lock.fenced();
    let mut inner = begun(fenced.lock());
    assert!(ready(theirs.force_unlock()).unwrap());
    renewals.close();
    let mut extends = begun(outer.extend(THIRD));
    attempts.open();
    let inner = ready(inner.as_mut()).unwrap();
    assert!(inner.is_held() && ready(theirs.force_unlock()).unwrap());
    renewals.open();
    let Poll::Ready(Err(error)) = poll(extends.as_mut()) else {
        panic!("expected the notification of the waiter")
    };
    assert!(error.is_lost(), "{error}");
    assert_eq!((client.metrics().leases_lost, inner.is_held()), (1, false));
}

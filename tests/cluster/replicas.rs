//! Acquisitions that count only if replicas confirm them.

use std::time::{Duration, Instant};

use crate::by_hand::{calls, companion, connection, run, subscribers};
use crate::errors::cause;
use crate::kinds::lock_of;
use latchwork::backend::Backend as _;
use latchwork::lock::Mode;
use latchwork::redis::{ErrorKind, Redis};
use latchwork::{Lease, LockClient, LockError};
use latchwork_testkit::RedisServer;
use redis::cmd;
use tokio::time::timeout;

const SOON: Duration = Duration::from_secs(10);
crate::waiting::waiting_for!(SOON);
const NAME: &str = "replicated";
/// Time limit of the replicas; far more than a healthy replica takes.
const WAIT: Duration = Duration::from_secs(1);

async fn pair() -> (RedisServer, RedisServer) {
    let master = RedisServer::start_with(&["--repl-diskless-sync-delay", "0"]);
    let replica = RedisServer::start_with(&["--replicaof", "127.0.0.1", &master.port().to_string()]);
    let mut raw = connection(&master).await;
    timeout(SOON, async {
        loop {
            // The replica has to confirm a write, and not an empty log.
            let () = cmd("PUBLISH").arg("nothing").arg("").query_async(&mut raw).await.unwrap();
            let replicas: usize = cmd("WAIT").arg(1).arg(100).query_async(&mut raw).await.unwrap();
            if replicas == 1 {
                return;
            }
        }
    })
    .await
    .expect("the replica does not follow");
    (master, replica)
}

async fn client(master: &RedisServer, replicas: usize) -> LockClient {
    client_that_waits(master, replicas, WAIT).await
}

async fn client_that_waits(master: &RedisServer, replicas: usize, wait: Duration) -> LockClient {
    let builder = Redis::builder().wait_for_replicas(replicas, wait);
    LockClient::new(builder.connect(&master.url()).await.unwrap())
}

#[track_caller]
fn assert_not_replicated(error: &LockError, says: &str) {
    let cause = cause(error);
    assert_eq!(cause.kind(), ErrorKind::NotReplicated, "{error:?}");
    assert!(cause.to_string().contains(says), "{cause}");
}

#[tokio::test]
async fn replica_has_what_was_acquired() {
    for mode in [Mode::Plain, Mode::Fair] {
        let (master, replica) = pair().await;
        let client = client_that_waits(&master, 1, SOON).await;
        let mut raw = connection(&replica).await;
        let lock = lock_of(&client, mode, NAME).fenced();
        let mut token = None;
        for _ in 0..20 {
            let guard = lock.lock().await.unwrap();
            // Ask the replica at once: a late write would go unnoticed otherwise.
            let ids: Vec<String> = cmd("HKEYS").arg(NAME).query_async(&mut raw).await.unwrap();
            assert!(ids.len() == 2 && ids.iter().any(|id| id.starts_with(client.id())), "{ids:?}");
            assert!(guard.fencing_token() > token);
            token = guard.fencing_token();
            guard.unlock().await.unwrap();
        }
        // As many scripts as without replicas.
        assert_eq!(calls(&master, "evalsha").await, 40);
    }
}

/// A release granted the lock, and possibly only the master knows.
#[tokio::test]
async fn granted_lock_counts_only_when_the_replica_has_it() {
    let (master, replica) = pair().await;
    let (releases, waits) = (client_that_waits(&master, 1, SOON).await, client(&master, 1).await);
    let mut raw = connection(&replica).await;
    for paused in [false, true] {
        let guard = lock_of(&releases, Mode::Fair, NAME).lock().await.unwrap();
        let lock = lock_of(&waits, Mode::Fair, NAME);
        let channel = waits.backend::<Redis>().unwrap().channels(Mode::Fair, lock.name(), waits.id()).own;
        let mut waiter = tokio::spawn(async move { lock.lock().await });
        let queue = format!("ZCARD {}", companion(NAME, "fair_queue"));
        eventually("the subscription", async || {
            run::<usize>(&master, &queue).await == 1 && subscribers(&master, &channel).await == 1
        })
        .await;
        if paused {
            replica.pause();
        }
        guard.unlock().await.unwrap();
        if paused {
            // The waiter asks again and again, as the replica may return.
            assert!(timeout(WAIT * 2, &mut waiter).await.is_err(), "expected a wait for the replica");
            replica.resume();
        }
        let granted = timeout(SOON, waiter).await.expect("the lock is granted").unwrap().unwrap();
        let ids: Vec<String> = cmd("HKEYS").arg(NAME).query_async(&mut raw).await.unwrap();
        assert!(ids.iter().any(|id| id.starts_with(waits.id())), "{ids:?}");
        granted.unlock().await.unwrap();
    }
}

#[tokio::test]
async fn lock_that_too_few_replicas_have_is_given_back() {
    for mode in [Mode::Plain, Mode::Fair] {
        let (master, replica) = pair().await;
        // One replica is missing, and not waited for.
        let error = lock_of(&client(&master, 2).await, mode, NAME).lock().await.unwrap_err();
        assert_not_replicated(&error, "only 1 of 2 replicas");
        eventually("giving back", async || run::<usize>(&master, "DBSIZE").await == 0).await;
        let client = client(&master, 1).await;
        let lock = lock_of(&client, mode, NAME);
        // The connection stays up, and confirms nothing.
        replica.pause();
        let begin = Instant::now();
        let error = lock.lock().await.unwrap_err();
        assert!((WAIT..WAIT * 5).contains(&begin.elapsed()), "{:?}", begin.elapsed());
        assert_not_replicated(&error, "only 0 of 1 replicas had the lock in time");
        eventually("giving back", async || !lock.is_locked().await.unwrap()).await;
        let waited = lock.try_lock_for(SOON, Lease::Watched).await.unwrap_err();
        assert_not_replicated(&waited, "0 of 1");
        eventually("giving back", async || run::<usize>(&master, "DBSIZE").await == 0).await;
        assert!(client.registry().is_empty());

        replica.resume();
        eventually("the replica", async || match lock.lock().await {
            Ok(guard) => guard.unlock().await.is_ok(),
            Err(error) => {
                assert_not_replicated(&error, "0 of 1");
                false
            }
        })
        .await;
    }
}

#[tokio::test]
async fn wait_for_a_replica_keeps_no_other_command_waiting() {
    let (master, replica) = pair().await;
    // Longer than a release takes on the busiest machine.
    let client = client_that_waits(&master, 1, Duration::from_secs(4)).await;
    let held = client.get_lock("held").unwrap().lock().await.unwrap();
    replica.pause();
    let lock = client.get_lock(NAME).unwrap();
    let mut waiting = tokio::spawn(async move { lock.lock().await });
    eventually("the lock", async || run::<usize>(&master, &format!("EXISTS {NAME}")).await == 1).await;
    tokio::select! {
        biased;
        _ = &mut waiting => panic!("a release waits for the replica as well"),
        released = held.unlock() => released.unwrap(),
    }
    assert_not_replicated(&waiting.await.unwrap().unwrap_err(), "0 of 1");
}

#[test]
#[should_panic = "wait for one replica at least"]
fn no_replicas_are_no_wait() {
    let _ = Redis::builder().wait_for_replicas(0, WAIT);
}

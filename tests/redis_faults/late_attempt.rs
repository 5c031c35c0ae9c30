//! Commands that arrive after their callers have gone, mostly at a server whose clients cannot kill
//! connections: managed servers, and ACLs with `-@dangerous`.

use std::time::{Duration, Instant};

use crate::by_hand::{calls, client as client_of, run};
use crate::kinds::{MODES, lock_of};
use futures_util::future::join_all;
use latchwork::backend::{Backend as _, LockName, Mode, NextWaiter, QueuePosition, ReleaseOutcome};
use latchwork::redis::Redis;
use latchwork::{Lease, LeaseId, LockClient};
use latchwork_testkit::{ChaosProxy, Link, RedisServer, Way};
use tokio::time::{sleep, timeout};

use latchwork_conformance::commands::Commands as _;

const SOON: Duration = Duration::from_secs(10);
crate::waiting::waiting_for!(SOON);
const NAME: &str = "late";

async fn start(rules: &str) -> (RedisServer, ChaosProxy, LockClient) {
    let server = RedisServer::start();
    let () = run(&server, &format!("ACL SETUSER user on >secret ~* &* +@all {rules}")).await;
    let proxy = ChaosProxy::start(server.port());
    let client = client_of(&proxy.url().replace("redis://", "redis://user:secret@")).await;
    // From now on the server knows the scripts.
    for mode in MODES {
        lock_of(&client, mode, NAME).lock().await.unwrap().unlock().await.unwrap();
    }
    (server, proxy, client)
}

/// Rules of a user that cannot end a connection.
const UNENDABLE: &str = "-client +client|info";

fn silenced(proxy: &ChaosProxy) -> Link {
    let link = proxy.wait_for_link_of("EVAL");
    link.silence(Way::ToServer);
    link.silence(Way::ToClient);
    link
}

async fn attempt_that_comes_late_leaves_the_lock_free(rules: &str, mode: Mode) {
    let (server, proxy, client) = start(rules).await;
    let lock = lock_of(&client, mode, NAME);
    let taken = calls(&server, "hset").await;
    silenced(&proxy);
    let begins = lock.try_lock_for(Duration::from_millis(300), Lease::Watched).await;
    assert!(!matches!(begins, Ok(Some(_))), "{begins:?}");
    eventually("the rollback", async || client.metrics().releases_pending == 0).await;
    assert_eq!(calls(&server, "hset").await, taken);
    proxy.heal();
    eventually("its coming", async || calls(&server, "hset").await == taken + 1).await;
    let begun = Instant::now();
    eventually("its being undone", async || run::<usize>(&server, "DBSIZE").await == 0).await;
    assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_attempt_is_undone_over_unendable_connections() {
    let each = MODES.map(|mode| attempt_that_comes_late_leaves_the_lock_free(UNENDABLE, mode));
    tokio::join!(join_all(each), attempt_that_comes_late_leaves_the_lock_free("-@dangerous", Mode::Plain));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_release_grants_no_waiter_over_unendable_connections() {
    release_that_comes_late_grants_the_lock_to_no_waiter(Mode::Fair).await;
    release_that_comes_late_grants_the_lock_to_no_waiter(Mode::Write).await;
}

/// A release is also an attempt by the next waiter, which has given up by then.
async fn release_that_comes_late_grants_the_lock_to_no_waiter(mode: Mode) {
    let (server, proxy, client) = start(UNENDABLE).await;
    let (redis, name) = (client.backend::<Redis>().unwrap(), LockName::new(NAME).unwrap());
    let id = |number: u64| -> LeaseId {
        format!("8743c9c0-0795-4907-87fd-6c719a6b4586:{number}").parse().unwrap()
    };
    let lease = Duration::from_secs(60);
    let position = QueuePosition { waited: Duration::ZERO, kept: lease };
    let next = NextWaiter { id: id(2), lease, tokens: 0, position };
    redis.acquire(mode, &name, &redis.request(&id(1), lease)).await.unwrap();
    silenced(&proxy);
    let released = timeout(Duration::from_millis(300), redis.release(mode, &name, &id(1), Some(&next))).await;
    assert!(released.is_err(), "{released:?}");
    redis.roll_back(mode, &name, &next.id).await.unwrap();
    let taken = calls(&server, "hset").await;
    proxy.heal();
    eventually("its coming", async || calls(&server, "hset").await == taken + 1).await;
    eventually("its being undone", async || run::<usize>(&server, &format!("EXISTS {NAME}")).await == 0)
        .await;
    assert_eq!(redis.release(mode, &name, &id(1), None).await.unwrap(), ReleaseOutcome::NotHeld);
}

async fn attempt_that_was_sent_again_and_comes_late_is_undone(mode: Mode) {
    let (server, proxy, client) = start(UNENDABLE).await;
    let lock = lock_of(&client, mode, NAME);
    silenced(&proxy);
    // Over another link.
    lock.lock().await.unwrap().unlock().await.unwrap();
    let taken = calls(&server, "hset").await;
    proxy.heal();
    eventually("its coming", async || calls(&server, "hset").await == taken + 1).await;
    eventually("its being undone", async || run::<usize>(&server, "DBSIZE").await == 0).await;
    // A later hold of the owner stays.
    let guard = lock.lock().await.unwrap();
    sleep(Duration::from_millis(2500)).await;
    guard.ensure_held().await.unwrap();
    guard.unlock().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_resent_attempt_is_undone_after_its_release() {
    join_all(MODES.map(attempt_that_was_sent_again_and_comes_late_is_undone)).await;
}

/// The first sending arrives after the other owner has left.
async fn attempt_that_is_refused_when_it_is_sent_again_is_undone(held: Mode, asked: Mode) {
    let (server, proxy, client) = start(UNENDABLE).await;
    let other = client_of(&server.url()).await;
    let guard = lock_of(&other, held, NAME).lock().await.unwrap();
    silenced(&proxy);
    // The attempt is also sent over another link.
    let begins = lock_of(&client, asked, NAME).try_lock().await;
    assert!(!matches!(begins, Ok(Some(_))), "{begins:?}");
    guard.unlock().await.unwrap();
    eventually("its end", async || run::<usize>(&server, "DBSIZE").await == 0).await;
    let taken = calls(&server, "hset").await;
    proxy.heal();
    eventually("its coming", async || calls(&server, "hset").await == taken + 1).await;
    eventually("its being undone", async || run::<usize>(&server, "DBSIZE").await == 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_attempt_refused_when_resent_is_undone() {
    let [plain, fair, read, write] = MODES;
    let pairs = [(plain, plain), (fair, fair), (write, read), (read, write), (read, plain)];
    join_all(pairs.map(|(held, asked)| attempt_that_is_refused_when_it_is_sent_again_is_undone(held, asked)))
        .await;
}

/// The release's caller has gone, and its owner holds the lock again. If clients may kill connections, the
/// release does not arrive at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn release_that_comes_late_does_not_free_the_owners_next_hold() {
    for rules in ["", UNENDABLE] {
        let (_server, proxy, client) = start(rules).await;
        let me = client.owner();
        let lock = client.get_lock(NAME).unwrap().owned_by(&me);
        let first = lock.lock().await.unwrap();
        // The network holds the release back, and the client sends it over another link.
        let link = proxy.wait_for_link_of("EVAL");
        link.silence(Way::ToServer);
        first.unlock().await.unwrap();
        let second = lock.lock().await.unwrap();
        assert!(lock.is_held_by(&me).await.unwrap());
        // The release arrives, over a connection that its client closed long ago.
        proxy.heal();
        link.wait_for_end();
        assert!(second.is_held());
        assert!(lock.is_held_by(&me).await.unwrap(), "expected the owner's second lease");
        second.unlock().await.unwrap();
    }
}

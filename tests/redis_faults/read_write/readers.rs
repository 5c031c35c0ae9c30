//! Readers: helpers of their stage, and the fate of a read lease when replies are lost or its process dies.

use std::time::Duration;

use latchwork::{Guard, Lease, Lock, LockClient, LockError};
use latchwork_testkit::{Afterwards, RedisServer, Way};
use tokio::task::JoinHandle;

use super::queued::stage::{
    AT_ONCE, LIFE, LITTLE, LONG, Waiter, end, lock, proxied, serve, taker, waiter, waiter_of, within,
};
use crate::by_hand::run;
use crate::day::{Day, EVAL, NAME, eventually};

pub(crate) const EACH: [Afterwards; 2] = [Afterwards::Reset, Afterwards::Silence];

/// The default. A later reader asks the server, though others of its client read.
pub(crate) const TENURE: Duration = Duration::from_millis(30);

pub(crate) fn read(client: &LockClient) -> Lock {
    client.get_read_write_lock(NAME).unwrap().read().clone()
}

/// Starts to read, and waits through errors from the first attempt on.
pub(crate) fn patient_reader(client: &LockClient) -> Waiter {
    let read = read(client);
    tokio::spawn(async move {
        read.try_lock_for(LONG, Lease::Watched).await.map(|guard| guard.expect("the waiter has its turn"))
    })
}

pub(crate) async fn leases(server: &RedisServer) -> usize {
    run::<Vec<String>>(server, "KEYS *:rwlock_timeout:*").await.len()
}

pub(crate) async fn until_leases(server: &RedisServer, how_many: usize) {
    eventually("leases", async || leases(server).await == how_many).await;
}

/// Asserts that a writer is refused, and a reader is not.
pub(crate) async fn assert_only_read(client: &LockClient) {
    assert!(lock(client).try_lock().await.unwrap().is_none(), "expected no writer beside the reader");
    read(client).try_lock().await.unwrap().expect("readers may").unlock().await.unwrap();
}

/// Asserts that no reader is left: a writer is served at once, and no key remains.
pub(crate) async fn end_free(day: Day, client: &LockClient, other: &LockClient) {
    serve(AT_ONCE, "the writer's turn", taker(other)).await;
    end(day, &[client, other]).await;
}

/// A renewing reader of Redisson up to 3.x sets the leases of all readers to its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_lease_to_read_that_strangers_cut_is_mended() {
    let day = Day::begin();
    let (client, other) = (day.bystander().await, day.bystander().await);
    let long = Duration::from_secs(3600);
    let guard = read(&client).lock_with_lease(long).await.unwrap();
    let keys = run::<Vec<String>>(&day.server, "KEYS *:rwlock_timeout:*").await;
    let [own] = &*keys else { panic!("{keys:?}") };
    let left = async |key: &str| run::<u64>(&day.server, &format!("PTTL {key}")).await;
    for key in [NAME, own] {
        let () = day.run(&format!("PEXPIRE {key} 30000")).await;
    }
    within(LIFE + LITTLE, "the whole lease", async {
        while left(own).await < 3_500_000 || left(NAME).await < 3_500_000 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    // The lease is no longer than requested.
    assert!(left(own).await <= 3_600_000 && guard.remaining() <= long);
    assert_only_read(&other).await;
    guard.unlock().await.unwrap();
    end(day, &[&client, &other]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_of_the_release_of_the_last_reader() {
    for afterwards in EACH {
        let day = Day::begin();
        let (client, other) = (day.client().await, day.bystander().await);
        let guard = read(&client).lock().await.unwrap();
        let writer = waiter(&other).await;
        day.proxy.lose_reply(EVAL, afterwards);
        let release = tokio::spawn(guard.unlock());
        day.proxy.wait_until_replies_are_lost();
        serve(AT_ONCE, "the writer's turn", writer).await;
        if let Err(error) = within(AT_ONCE, "the release", release).await.unwrap() {
            assert!(error.is_release_pending(), "{error:?}");
        }
        end(day, &[&client, &other]).await;
    }
}

/// Loses the replies of a waiting reader's first command, and of a later one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_replies_of_the_commands_that_a_reader_waits_by() {
    for afterwards in EACH {
        let day = Day::begin();
        let (client, holder, behind) = (day.client().await, day.bystander().await, day.bystander().await);
        let held = lock(&holder).lock().await.unwrap();
        day.proxy.lose_reply(EVAL, afterwards);
        day.proxy.lose_reply("EVALSHA", afterwards);
        let reader = patient_reader(&client);
        day.proxy.wait_until_replies_are_lost();
        let writer = waiter(&behind).await;
        held.unlock().await.unwrap();
        tokio::join!(
            serve(LIFE + LITTLE, "the reader's turn", reader),
            serve(LIFE + LITTLE, "the writer's turn", writer),
        );
        end(day, &[&client, &holder, &behind]).await;
    }
}

/// Readers wait behind a writer that leaves and cannot say so: its link is dead, its task is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reader_behind_a_vanished_waiting_writer_reads_within_a_life() {
    let day = Day::begin();
    let (proxy, client) = proxied(&day.server).await;
    let (holder, other) = (day.bystander().await, day.bystander().await);
    let held = read(&holder).lock().await.unwrap();
    let writer = waiter(&client).await;
    let reader = waiter_of(&other, &read(&other)).await;
    proxy.silence(Way::ToServer);
    writer.abort();
    drop(writer.await);
    let guard = within(LIFE + LITTLE, "the reader's turn", reader).await.unwrap().unwrap();
    held.ensure_held().await.unwrap();
    proxy.heal();
    held.unlock().await.unwrap();
    guard.unlock().await.unwrap();
    end(day, &[&holder, &client, &other]).await;
}

/// Tries share the answer to one common attempt.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tries_to_read_share_an_answer_though_its_reply_is_lost() {
    for afterwards in EACH {
        let day = Day::begin();
        let (client, other) = (day.client().await, day.bystander().await);
        day.proxy.lose_reply(EVAL, afterwards);
        let tries = tries(&client, 5);
        day.proxy.wait_until_replies_are_lost();
        let mut guards = Vec::new();
        for one in tries {
            match within(AT_ONCE, "an answer", one).await.unwrap() {
                Ok(guard) => guards.push(guard.expect("no writer is there")),
                // The answer took longer than a try waits.
                Err(error) => assert!(error.is_retryable(), "{error:?}"),
            }
        }
        assert!(!guards.is_empty(), "expected a guard of a try that was sent again");
        assert_only_read(&other).await;
        for guard in guards {
            guard.ensure_held().await.unwrap();
            drop(guard);
        }
        end_free(day, &client, &other).await;
    }
}

type Try = JoinHandle<Result<Option<Guard>, LockError>>;

fn tries(client: &LockClient, how_many: usize) -> Vec<Try> {
    let one = || {
        let read = read(client);
        tokio::spawn(async move { read.try_lock().await })
    };
    (0..how_many).map(|_| one()).collect()
}

//! Readers: helpers of their stage, and the fate of a read lease when replies are lost or its process dies.

use std::time::Duration;

use latchwork::{Lock, LockClient};
use latchwork_testkit::Way;

use super::queued::stage::{LIFE, LITTLE, end, lock, poll_within, proxied, waiter, waiter_of, within};
use crate::by_hand::run;
use crate::day::{Day, NAME};

pub(crate) fn read(client: &LockClient) -> Lock {
    client.get_read_write_lock(NAME).unwrap().read().clone()
}

/// Asserts that a writer is refused, and a reader is not.
pub(crate) async fn assert_only_read(client: &LockClient) {
    assert!(lock(client).try_lock().await.unwrap().is_none(), "expected no writer beside the reader");
    read(client).try_lock().await.unwrap().expect("readers may").unlock().await.unwrap();
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
    let is_whole = async || left(own).await > 3_500_000 && left(NAME).await > 3_500_000;
    poll_within(LIFE + LITTLE, "the whole lease", is_whole).await;
    // The lease is no longer than requested.
    assert!(left(own).await <= 3_600_000 && guard.remaining() <= long);
    assert_only_read(&other).await;
    guard.unlock().await.unwrap();
    end(day, &[&client, &other]).await;
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

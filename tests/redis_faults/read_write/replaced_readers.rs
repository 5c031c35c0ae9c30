//! Readers whose master is replaced, by Sentinels or in a Cluster.

use std::time::Duration;

use latchwork::{Guard, LockClient};
use latchwork_testkit::SentinelSet;
use tokio::time::sleep;

use super::queued::replaced::{assert_clean, clients};
use super::queued::stage::{LIFE, LITTLE, queued, serve, until_listening, waiter, waiter_of, within};
use super::readers::{leases, read};

/// The readers read on, and the writer waits until all have left. The reader behind keeps its place only
/// while the writer's client listens: at the next master either client may subscribe first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_their_turns_go_on_at_the_next_master() {
    let mut set = SentinelSet::start();
    let all: [LockClient; 4] = clients(&set).await;
    let [one, two, writes, behind] = &all;
    let mut held: Vec<Guard> = Vec::new();
    for client in [one, one, two] {
        held.push(read(client).lock().await.unwrap());
    }
    let writer = waiter(writes).await;
    let reader = waiter_of(behind, &read(behind)).await;
    within(LIFE, "the replica's knowing", async {
        while queued(&set.servers[1]).await < 2 || leases(&set.servers[1]).await < 2 {
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    set.servers[0].kill_9();
    set.wait_for_master(1);
    until_listening(&set.servers[1], &[writes]).await;
    for guard in held {
        assert!(!writer.is_finished(), "expected no writer beside the readers");
        guard.ensure_held().await.unwrap();
        guard.unlock().await.unwrap();
    }
    tokio::join!(
        serve(LIFE + LITTLE, "the writer's turn", writer),
        serve(LIFE + LITTLE, "the reader's turn", reader),
    );
    assert_clean(&all, &set.servers[1]).await;
}

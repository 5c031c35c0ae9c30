//! Those who read while their master is replaced, as the Sentinels say, or as the Cluster does.

use latchwork::redis::Redis;
use latchwork::{Guard, LockClient};
use latchwork_testkit::SentinelSet;

use crate::by_hand::run;
use crate::readers::{leases, read};
use crate::replaced::{assert_clean, clients};
use crate::stage::{LIFE, LITTLE, serve, until_listening, until_queued, waiter, waiter_of, within};

/// They read on, the writer that waits waits on, and the reader behind it as well.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_their_turns_go_on_at_the_next_master() {
    let mut set = SentinelSet::start();
    let all: [LockClient<Redis>; 4] = clients(&set).await;
    let [one, two, writes, behind] = &all;
    let mut held: Vec<Guard<Redis>> = Vec::new();
    for client in [one, one, two] {
        held.push(read(client).lock().await.unwrap());
    }
    let writer = waiter(writes).await;
    let reader = waiter_of(behind, &read(behind)).await;
    within(LIFE, "the replica's knowing", async {
        while run::<usize>(&set.servers[1], "DBSIZE").await < run::<usize>(&set.servers[0], "DBSIZE").await {
            tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        }
    })
    .await;
    set.servers[0].kill_9();
    set.wait_for_master(1);
    until_queued(&set.servers[1], 2).await;
    until_listening(&set.servers[1], &[writes]).await;
    assert_eq!(leases(&set.servers[1]).await, 2);
    for guard in held {
        assert!(!writer.is_finished() && !reader.is_finished());
        guard.ensure_held().await.unwrap();
        guard.unlock().await.unwrap();
    }
    serve(LIFE + LITTLE, "the writer's turn", writer).await;
    serve(LIFE + LITTLE, "the reader's turn", reader).await;
    assert_clean(&all, &set.servers[1]).await;
}

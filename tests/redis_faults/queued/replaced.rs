//! The Sentinels replace a master while some clients wait.

use futures_util::future::join_all;
use latchwork::{LockClient, LossReason};
use latchwork_testkit::{RedisServer, SentinelSet};

use super::stage::{
    Convoy, LIFE, LITTLE, assert_all_wait, lock, poll_within, queued, serve, until_listening, until_queued,
    waiter, within,
};
use crate::by_hand::{client, run};

pub(crate) async fn clients<const N: usize>(set: &SentinelSet) -> [LockClient; N] {
    join_all([(); N].map(async |()| client(&set.url()).await)).await.try_into().unwrap()
}

/// Asserts that neither this process nor the server keeps anything of ours.
pub(crate) async fn assert_clean(clients: &[LockClient], master: &RedisServer) {
    poll_within(LIFE + LITTLE, "a clean server", async || {
        // The Sentinels' own channels stay.
        let channels: Vec<String> = run(master, "PUBSUB CHANNELS *latchwork*").await;
        let is_empty = channels.is_empty() && run::<usize>(master, "DBSIZE").await == 0;
        is_empty && clients.iter().all(|client| client.registry().is_empty())
    })
    .await;
}

/// `knows`: the next master has the lock and its queue.
async fn waiters_go_on_at_the_next_master(knows: bool) {
    let mut set = SentinelSet::start();
    let all: [_; 4] = clients(&set).await;
    let [holder, first, second, third] = &all;
    if !knows {
        // The replica cannot log in to the master, so replication stops.
        let () = run(&set.servers[1], "CONFIG SET masteruser nobody").await;
        let () = run(&set.servers[1], "CONFIG SET masterauth nothing").await;
        let () = run(&set.servers[0], "CLIENT KILL TYPE replica").await;
    }
    let held = lock(holder).lock().await.unwrap();
    let mut waiters = Vec::new();
    for client in [first, second, third] {
        waiters.push(waiter(client).await);
    }
    if knows {
        poll_within(LIFE, "the replica's knowing", async || queued(&set.servers[1]).await == 3).await;
    }
    set.servers[0].kill_9();
    set.wait_for_master(1);
    if knows {
        until_queued(&set.servers[1], 3).await;
        until_listening(&set.servers[1], &[first, second, third]).await;
        held.ensure_held().await.unwrap();
        assert_all_wait(&waiters);
        held.unlock().await.unwrap();
        for next in waiters {
            let guard =
                within(LIFE + LITTLE, "the next turn, by when they came", next).await.unwrap().unwrap();
            guard.ensure_held().await.unwrap();
            guard.unlock().await.unwrap();
        }
    } else {
        let turns = waiters.into_iter().map(|next| serve(LIFE + LITTLE, "each waiter's turn", next));
        join_all(turns).await;
        assert_eq!(within(LIFE + LITTLE, "notice of the loss", held.lost()).await, LossReason::Gone);
        assert!(held.unlock().await.unwrap_err().is_not_held());
    }
    assert_clean(&all, &set.servers[1]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn order_stays_with_what_was_replicated() {
    waiters_go_on_at_the_next_master(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_queue_anew_without_what_was_not_replicated() {
    waiters_go_on_at_the_next_master(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn convoy_goes_on_over_a_failover_in_good_order() {
    let set = SentinelSet::start();
    let all: [_; 3] = clients(&set).await;
    set.wait_until_in_sync(1);
    // The lock is free during the failover: writes not yet replicated would let two in.
    let convoy = Convoy::start(&all, 2, 30);
    convoy.ends().await;
    set.fail_over();
    set.wait_for_master(1);
    Convoy::start(&all, 2, 30).ends().await;
    assert_clean(&all, &set.servers[1]).await;
}

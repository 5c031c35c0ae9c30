//! A writer that also reads and then stops writing; and a reader whose request to write is refused.

use futures_util::future::join_all;
use latchwork::{Guard, Lock, LockClient, Owner};
use latchwork_testkit::{Cut, Way};

use super::queued::stage::{
    AT_ONCE, LIFE, LITTLE, end, lock, proxied, serve, taker, waiter, waiter_of, within,
};
use super::readers::{EACH, leases, read, until_leases};
use crate::day::{Day, EVAL, soon};

/// Takes a lock, once more if the first answer is lost.
async fn take(lock: &Lock) -> Guard {
    loop {
        match soon("an answer", lock.lock()).await {
            Ok(guard) => return guard,
            Err(error) => assert!(error.is_retryable(), "{error:?}"),
        }
    }
}

async fn writer(client: &LockClient) -> (Owner, Guard) {
    let me = client.owner();
    let writes = lock(client).owned_by(&me).lock().await.unwrap();
    (me, writes)
}

/// `at`: loses the reply of the command that begins to read, or of the one that ends the write.
async fn downgrade_though_a_reply_is_lost(at: usize) {
    for (afterwards, others_wait_to_read) in EACH.into_iter().flat_map(|each| [(each, false), (each, true)]) {
        let day = Day::begin();
        let (client, other, last) = (day.client().await, day.bystander().await, day.bystander().await);
        let (me, writes) = writer(&client).await;
        let theirs = if others_wait_to_read { Some(waiter_of(&other, &read(&other)).await) } else { None };
        if at == 0 {
            day.proxy.lose_reply(EVAL, afterwards);
        }
        let reads = take(&read(&client).owned_by(&me)).await;
        writes.ensure_held().await.unwrap();
        reads.ensure_held().await.unwrap();
        assert!(
            !theirs.as_ref().is_some_and(|theirs| theirs.is_finished()),
            "expected no reader beside the writer"
        );
        if at == 1 {
            day.proxy.lose_reply(EVAL, afterwards);
        }
        let next = waiter(&last).await;
        let release = tokio::spawn(writes.unlock());
        if let Some(theirs) = theirs {
            serve(AT_ONCE, "their turn to read", theirs).await;
        }
        if let Err(error) = within(AT_ONCE, "the release", release).await.unwrap() {
            assert!(error.is_release_pending(), "{error:?}");
        }
        day.proxy.wait_until_replies_are_lost();
        reads.ensure_held().await.unwrap();
        assert!(!next.is_finished(), "expected no writer beside the reader");
        until_leases(&day.server, 1).await;
        reads.unlock().await.unwrap();
        serve(AT_ONCE, "the next writer's turn", next).await;
        end(day, &[&client, &other, &last]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_of_the_command_that_reads_beside_itself() {
    downgrade_though_a_reply_is_lost(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_of_the_release_of_a_writer_that_reads_on() {
    downgrade_though_a_reply_is_lost(1).await;
}

/// Both guards are dropped while the link is down.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_that_reads_leaves_nothing_over_a_cut_link() {
    for reads_go_first in [false, true] {
        for silent in [false, true] {
            let day = Day::begin();
            let (proxy, client) = proxied(&day.server).await;
            let (other, last) = (day.bystander().await, day.bystander().await);
            let (me, writes) = writer(&client).await;
            let reads = take(&read(&client).owned_by(&me)).await;
            let theirs = waiter_of(&other, &read(&other)).await;
            let next = waiter(&last).await;
            if silent {
                proxy.silence(Way::ToServer);
            } else {
                proxy.lead_to(1);
                proxy.cut(Cut::Reset);
            }
            let mut guards = [Some(writes), Some(reads)];
            for at in if reads_go_first { [1, 0] } else { [0, 1] } {
                drop(guards[at].take());
            }
            tokio::time::sleep(LIFE / 10).await;
            assert!(
                !theirs.is_finished() && !next.is_finished(),
                "expected the others to wait, as no release reached the server"
            );
            proxy.lead_to(day.server.port());
            proxy.heal();
            tokio::join!(
                serve(AT_ONCE, "their turn to read", theirs),
                serve(AT_ONCE, "the next writer's turn", next),
            );
            assert_eq!(leases(&day.server).await, 0);
            end(day, &[&client, &other, &last]).await;
        }
    }
}

/// For longer than either lease, while replies of both renewals are lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writer_that_reads_is_renewed_in_both_though_replies_are_lost() {
    join_all(EACH.map(|afterwards| async move {
        let day = Day::begin();
        let (client, other) = (day.client().await, day.bystander().await);
        let (me, writes) = writer(&client).await;
        let reads = take(&read(&client).owned_by(&me)).await;
        // One script renews both, and its first call is sent in full.
        day.proxy.lose_reply(EVAL, afterwards);
        let (one, both) =
            tokio::join!(writes.lost_timeout(LIFE * 3 + LITTLE), reads.lost_timeout(LIFE * 3 + LITTLE));
        assert_eq!((one, both), (None, None));
        day.proxy.wait_until_replies_are_lost();
        writes.ensure_held().await.unwrap();
        reads.ensure_held().await.unwrap();
        assert!(read(&other).try_lock().await.unwrap().is_none(), "expected no reader beside the writer");
        reads.unlock().await.unwrap();
        writes.ensure_held().await.unwrap();
        assert!(read(&other).try_lock().await.unwrap().is_none(), "expected no reader beside the writer");
        writes.unlock().await.unwrap();
        serve(AT_ONCE, "the next turn", taker(&other)).await;
        end(day, &[&client, &other]).await;
    }))
    .await;
}

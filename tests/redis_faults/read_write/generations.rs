//! Two leases of one client's readers: one for the earlier readers, one requested by a newcomer.

use std::time::Duration;

use latchwork::{Guard, Lease, LossReason};
use latchwork_testkit::{Afterwards, Cut, Way};

use super::queued::stage::{AT_ONCE, LIFE, LITTLE, end, lock, proxied, serve, until_queued, waiter, within};
use super::readers::{EACH, TENURE, assert_only_read, end_free, leases, patient_reader, read, until_leases};
use crate::day::{Day, EVAL};

async fn tenure_is_over() {
    tokio::time::sleep(TENURE * 2).await;
}

/// The link is down when the newcomer asks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn present_readers_go_on_while_a_newcomer_asks_in_vain() {
    for silent in [None, Some(Way::ToServer), Some(Way::ToClient)] {
        let day = Day::begin();
        let (proxy, client) = proxied(&day.server).await;
        let other = day.bystander().await;
        let stays = read(&client).lock().await.unwrap();
        tenure_is_over().await;
        match silent {
            Some(way) => proxy.silence(way),
            None => {
                proxy.lead_to(1);
                proxy.cut(Cut::Reset);
            }
        }
        let newcomer = patient_reader(&client);
        tokio::time::sleep(LIFE / 5).await;
        assert!(!newcomer.is_finished(), "expected no answer to the newcomer");
        assert!(stays.is_held());
        assert_only_read(&other).await;
        proxy.lead_to(day.server.port());
        proxy.heal();
        let newcomer = within(AT_ONCE, "the newcomer's turn", newcomer).await.unwrap().unwrap();
        stays.ensure_held().await.unwrap();
        newcomer.ensure_held().await.unwrap();
        until_leases(&day.server, 1).await;
        stays.unlock().await.unwrap();
        newcomer.ensure_held().await.unwrap();
        assert_only_read(&other).await;
        newcomer.unlock().await.unwrap();
        end_free(day, &client, &other).await;
    }
}

/// The newcomer also leaves before the answer: only its own lease is released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newcomer_that_gives_up_unheard_takes_nothing_along() {
    for afterwards in EACH {
        let day = Day::begin();
        let (client, other) = (day.client().await, day.bystander().await);
        let stays = read(&client).lock().await.unwrap();
        tenure_is_over().await;
        day.proxy.lose_reply("EVALSHA", afterwards);
        let newcomer = patient_reader(&client);
        day.proxy.wait_until_replies_are_lost();
        newcomer.abort();
        drop(newcomer.await);
        until_leases(&day.server, 1).await;
        stays.ensure_held().await.unwrap();
        assert_only_read(&other).await;
        stays.unlock().await.unwrap();
        end_free(day, &client, &other).await;
    }
}

/// The reply to the newcomer's attempt is lost, and then the reply to the release of the other lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_leases_become_one_though_replies_are_lost() {
    for afterwards in EACH {
        let day = Day::begin();
        let (client, other) = (day.client().await, day.bystander().await);
        let stays = read(&client).lock().await.unwrap();
        tenure_is_over().await;
        day.proxy.lose_reply("EVALSHA", afterwards);
        // The release is the first call of its script.
        day.proxy.lose_reply(EVAL, Afterwards::Reset);
        let newcomer = patient_reader(&client);
        let newcomer = within(LIFE, "the newcomer's turn", newcomer).await.unwrap().unwrap();
        day.proxy.wait_until_replies_are_lost();
        until_leases(&day.server, 1).await;
        stays.ensure_held().await.unwrap();
        newcomer.unlock().await.unwrap();
        stays.ensure_held().await.unwrap();
        assert_only_read(&other).await;
        stays.unlock().await.unwrap();
        assert_eq!(leases(&day.server).await, 0);
        end_free(day, &client, &other).await;
    }
}

/// The longer lease stays beside the other one. Both are renewed, and each ends with its own readers.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_leases_are_renewed_though_replies_are_lost() {
    for afterwards in EACH {
        let day = Day::begin();
        let (client, other) = (day.client().await, day.bystander().await);
        let long = read(&client).lock_with_lease(LIFE * 3 + LITTLE).await.unwrap();
        let first = read(&client).lock().await.unwrap();
        tenure_is_over().await;
        let second = patient_reader(&client);
        let second = within(LIFE, "the newcomer's turn", second).await.unwrap().unwrap();
        until_leases(&day.server, 2).await;
        let writer = waiter(&other).await;
        day.proxy.lose_reply(EVAL, afterwards);
        within(LIFE * 2, "both renewals", async {
            tokio::join!(until_renewed_by_and_by(&first), until_renewed_by_and_by(&second))
        })
        .await;
        day.proxy.wait_until_replies_are_lost();
        for guard in [&long, &first, &second] {
            guard.ensure_held().await.unwrap();
        }
        long.unlock().await.unwrap();
        second.unlock().await.unwrap();
        until_leases(&day.server, 1).await;
        first.ensure_held().await.unwrap();
        assert!(!writer.is_finished(), "expected no writer beside the reader");
        first.unlock().await.unwrap();
        serve(AT_ONCE, "the writer's turn", writer).await;
        end(day, &[&client, &other]).await;
    }
}

async fn until_renewed_by_and_by(guard: &Guard) {
    let mut left = guard.remaining();
    loop {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let before = std::mem::replace(&mut left, guard.remaining());
        if left > before {
            return;
        }
    }
}

/// The newcomer waits behind another client's writer. The readers leave over a cut link.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn newcomer_behind_a_writer_is_served_over_a_cut_link() {
    for how in [Cut::Close, Cut::Reset] {
        let day = Day::begin();
        let (proxy, client) = proxied(&day.server).await;
        let other = day.bystander().await;
        let stays = read(&client).lock().await.unwrap();
        let writer = waiter(&other).await;
        tenure_is_over().await;
        let newcomer = patient_reader(&client);
        until_queued(&day.server, 2).await;
        assert!(!newcomer.is_finished());
        proxy.cut(how);
        let release = tokio::spawn(stays.unlock());
        proxy.cut(how);
        let guard = within(AT_ONCE, "the writer's turn", writer).await.unwrap().unwrap();
        assert!(!newcomer.is_finished(), "expected no reader beside the writer");
        if let Err(error) = within(AT_ONCE, "the release", release).await.unwrap() {
            assert!(error.is_release_pending(), "{error:?}");
        }
        guard.ensure_held().await.unwrap();
        guard.unlock().await.unwrap();
        serve(AT_ONCE, "the newcomer's turn", newcomer).await;
        end(day, &[&client, &other]).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_readers_of_a_client_are_told_when_the_server_forgets() {
    let day = Day::begin();
    let (client, other) = (day.bystander().await, day.bystander().await);
    let mut guards = vec![read(&client).lock_with_lease(LIFE * 3 + LITTLE).await.unwrap()];
    guards.push(read(&client).lock().await.unwrap());
    tenure_is_over().await;
    guards.push(read(&client).lock().await.unwrap());
    guards.push(read(&client).lock().await.unwrap());
    assert_eq!(leases(&day.server).await, 2);
    let () = day.run("FLUSHALL").await;
    for guard in &guards {
        let told = within(LIFE + LITTLE, "notice of the loss", guard.lost()).await;
        assert_eq!(told, LossReason::Gone);
    }
    for guard in guards {
        assert!(guard.unlock().await.unwrap_err().is_not_held());
    }
    let guard = lock(&other).try_lock_for(AT_ONCE, Lease::Watched).await.unwrap().expect("the lock is free");
    guard.unlock().await.unwrap();
    end(day, &[&client, &other]).await;
}

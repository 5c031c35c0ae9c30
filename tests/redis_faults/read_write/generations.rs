//! Two leases of one client's readers: one for the earlier readers, one requested by a newcomer.

use std::time::Duration;

use latchwork::Guard;
use latchwork_testkit::{Cut, Way};

use super::queued::stage::{AT_ONCE, LIFE, LITTLE, end, proxied, serve, waiter, within};
use super::readers::{EACH, TENURE, assert_only_read, end_free, patient_reader, read, until_leases};
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

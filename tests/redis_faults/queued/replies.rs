//! The server ran a command, and the reply is lost.

use std::time::{Duration, Instant};

use latchwork::backend::{AcquireRequest, Backend as _, LockName, NextWaiter, QueuePosition};
use latchwork::redis::Redis;
use latchwork::{Lease, LeaseId, LockClient};
use latchwork_testkit::{Afterwards, Cut, Link, Way};
use tokio::time::timeout;

use super::kind::{MODE, QUEUE, WAYS, sides};
use super::stage::{
    AT_ONCE, LIFE, LITTLE, end, lock, now, queued, serve, taker, until_queued, waiter, waiter_of,
};
use crate::day::{Day, EVAL, NAME, eventually, refusing_server, soon};

const EACH: [Afterwards; 2] = [Afterwards::Reset, Afterwards::Silence];

async fn try_acquire(redis: &Redis, name: &LockName, id: &LeaseId, position: Option<QueuePosition>) {
    let request = AcquireRequest::new(id.clone(), LIFE, Instant::now().into()).position(position);
    let _ = redis.acquire(MODE, name, &request).await.unwrap();
}

async fn release(redis: &Redis, name: &LockName, id: &LeaseId, next: Option<&NextWaiter>) {
    let _ = redis.release(MODE, name, id, next).await.unwrap();
}

/// Three clients; the first one is behind the day's proxy.
async fn three(day: &Day) -> (LockClient, LockClient, LockClient) {
    (day.client().await, day.bystander().await, day.bystander().await)
}

/// Loses the replies of the command that enqueues the waiter, and of one that renews its position.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_replies_of_a_waiters_commands_cost_no_turn() {
    for afterwards in EACH {
        let day = Day::begin();
        let (client, holder, behind) = three(&day).await;
        let held = lock(&holder).lock().await.unwrap();
        // The server knows the script already.
        day.proxy.lose_reply("EVALSHA", afterwards);
        day.proxy.lose_reply("EVALSHA", afterwards);
        let first = tokio::spawn({
            let lock = lock(&client);
            async move {
                lock.try_lock_for(LIFE * 4, Lease::Watched)
                    .await
                    .map(|guard| guard.expect("the waiter has its turn"))
            }
        });
        day.proxy.wait_until_replies_are_lost();
        let second = waiter(&behind).await;
        held.unlock().await.unwrap();
        // The waiter is passed over if not yet subscribed.
        tokio::join!(
            serve(LIFE + LITTLE, "the first turn", first),
            serve(LIFE + LITTLE, "the second turn", second),
        );
        assert_eq!(queued(&day.server).await, 0);
        end(day, &[&client, &holder, &behind]).await;
    }
}

/// The release grants the lock to the same client's next waiter, or enqueues this waiter behind another's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_reply_of_a_release_to_a_next_waiter_costs_no_turn() {
    for afterwards in EACH {
        for another_first in 0..=WAYS {
            let day = Day::begin();
            let (client, other, _) = three(&day).await;
            let held = lock(&client).lock().await.unwrap();
            // On either side, or without another waiter.
            let theirs = match sides(&other, NAME).get(another_first) {
                Some(side) => Some(waiter_of(&other, &side.lock).await),
                None => None,
            };
            let ours = taker(&client);
            eventually("waiting", async || lock(&client).waiters() == 1).await;
            day.proxy.lose_reply(EVAL, afterwards);
            held.unlock().await.unwrap();
            day.proxy.wait_until_replies_are_lost();
            if let Some(theirs) = theirs {
                serve(AT_ONCE, "the other client's turn", theirs).await;
            }
            serve(LIFE + LITTLE, "the next one's turn", ours).await;
            assert_eq!(queued(&day.server).await, 0);
            end(day, &[&client, &other]).await;
        }
    }
}

/// The waiter was granted the lock, and leaves before it knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_rollback_reply_of_an_unaware_holder_costs_no_turn() {
    for afterwards in EACH {
        let day = Day::begin();
        let (client, holder, behind) = three(&day).await;
        let held = lock(&holder).lock().await.unwrap();
        let leaves = waiter(&client).await;
        let next = waiter(&behind).await;
        day.subscriptions().silence(Way::ToClient);
        held.unlock().await.unwrap();
        until_queued(&day.server, 1).await;
        day.proxy.lose_reply("EVALSHA", afterwards);
        leaves.abort();
        assert!(leaves.await.unwrap_err().is_cancelled());
        day.proxy.wait_until_replies_are_lost();
        serve(AT_ONCE, "the turn of the one behind", next).await;
        day.proxy.heal();
        end(day, &[&client, &holder, &behind]).await;
    }
}

/// A position counts from the start of the wait, even if its command is slow or is sent twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_that_is_on_its_way_for_long_loses_no_place() {
    const ON_ITS_WAY: Duration = Duration::from_secs(1);
    let ids: [LeaseId; 2] =
        ["1", "2"].map(|number| format!("8743c9c0-0795-4907-87fd-6c719a6b4586:{number}").parse().unwrap());
    for is_sent_again in [false, true] {
        for by_a_release in [false, true] {
            let day = Day::begin();
            let (client, holder) = (day.client().await, day.bystander().await);
            let (redis, name) = (client.backend::<Redis>().unwrap(), LockName::new(NAME).unwrap());
            // A release that names a next waiter meets a waiter that came earlier.
            let position = QueuePosition { waited: Duration::ZERO, kept: LIFE };
            let (first, next) =
                (&ids[0], NextWaiter { id: ids[1].clone(), lease: LIFE, tokens: 0, position });
            let mut theirs = None;
            let held = if by_a_release {
                try_acquire(redis, &name, first, None).await;
                theirs = Some(waiter(&holder).await);
                None
            } else {
                Some(lock(&holder).lock().await.unwrap())
            };
            let (port, gone) = (day.server.port(), refusing_server());
            day.proxy.lead_to(gone.port());
            if is_sent_again {
                day.proxy.silence(Way::ToServer);
            } else {
                let links = day.proxy.links();
                day.proxy.cut(Cut::Reset);
                links.iter().for_each(Link::wait_for_end);
            }
            let mut asks = Box::pin(async {
                if by_a_release {
                    release(redis, &name, first, Some(&next)).await;
                } else {
                    try_acquire(redis, &name, &next.id, Some(position)).await;
                }
            });
            assert!(timeout(Duration::ZERO, asks.as_mut()).await.is_err(), "expected no answer");
            let begun = now(&day.server).await;
            if is_sent_again {
                day.proxy.cut(Cut::Reset);
                day.proxy.heal();
            }
            assert!(timeout(ON_ITS_WAY, asks.as_mut()).await.is_err(), "expected no answer");
            day.proxy.lead_to(port);
            soon("an answer", asks).await;
            let score: f64 = day.run(&format!("ZSCORE {NAME}:latchwork:{{{NAME}}}:{QUEUE} {}", ids[1])).await;
            let later = Duration::from_micros(score as u64).saturating_sub(begun);
            assert!(later < ON_ITS_WAY / 2, "its position is {later:?} too late");
            release(redis, &name, &ids[1], None).await;
            match (held, theirs) {
                (Some(held), _) => held.unlock().await.unwrap(),
                (None, theirs) => serve(AT_ONCE, "their turn", theirs.expect("a task waits")).await,
            }
            end(day, &[&client, &holder]).await;
        }
    }
}

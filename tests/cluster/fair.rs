//! Fair locks: which waiters hear of their grant, and by which kind of messages.

use std::time::Duration;

use latchwork::LeaseId;
use latchwork::backend::{AcquireOutcome, Backend as _, LockName, Mode, QueuePosition};
use latchwork::redis::{Redis, ShardedMessages};
use latchwork_testkit::RedisCluster;

use crate::nodes::{keys, name_at, redis, soon};
use latchwork_conformance::commands::{Commands as _, RELEASED};

const LEASE: Duration = Duration::from_secs(60);

fn id(client: u32) -> LeaseId {
    format!("{client:08x}-0795-4907-87fd-6c719a6b4586:{client}").parse().unwrap()
}

/// The first id holds the lock and two ids wait; only the second waiter listens.
async fn two_wait(redis: &Redis, name: &LockName) {
    for (number, waited) in [(1, 0), (2, 2000), (3, 1000)] {
        let position = QueuePosition { waited: Duration::from_secs(waited), kept: LEASE };
        let asked = redis
            .acquire(Mode::Fair, name, &redis.request(&id(number), LEASE).position(position))
            .await
            .unwrap();
        assert_eq!(matches!(asked, AcquireOutcome::Acquired { .. }), number == 1, "{asked:?}");
    }
}

async fn holder(redis: &Redis, name: &LockName) -> Option<LeaseId> {
    redis.holder(Mode::Plain, name).await.unwrap().and_then(|holder| holder.id)
}

/// `passed_by`: the releasing node knows that the first waiter has no listener.
async fn grant_is_told_to_its_waiter(sharded: ShardedMessages, passed_by: bool) {
    let cluster = RedisCluster::start_with(&[]);
    let (releases, waits) = (redis(&cluster, sharded).await, redis(&cluster, sharded).await);
    for node in 0..3 {
        let name = LockName::new(&name_at(&cluster, node, "fair")).unwrap();
        two_wait(&releases, &name).await;
        let subscription =
            waits.registry().subscribe(&waits.channels(Mode::Fair, &name, &id(3).client_id()).own);
        soon("the subscription", subscription.subscribed()).await.unwrap();
        assert_eq!(releases.release(Mode::Fair, &name, &id(1), None).await.unwrap(), RELEASED);
        if !passed_by {
            // The first waiter may listen at another node, so the release grants to the first waiter.
            assert_eq!(holder(&releases, &name).await, Some(id(2)));
            assert_eq!(releases.release(Mode::Fair, &name, &id(2), None).await.unwrap(), RELEASED);
        }
        soon("the grant", subscription.wait()).await.consume();
        assert_eq!(holder(&releases, &name).await, Some(id(3)));
        for number in [3, 2] {
            releases.release(Mode::Fair, &name, &id(number), None).await.unwrap();
        }
    }
    assert_eq!(keys(&cluster), [""; 0]);
}

#[tokio::test]
async fn grant_is_a_sharded_message_and_deaf_clients_are_passed_over() {
    grant_is_told_to_its_waiter(ShardedMessages::Auto, true).await;
}

#[tokio::test]
async fn grant_is_a_plain_message_and_no_waiter_is_passed_over() {
    grant_is_told_to_its_waiter(ShardedMessages::Off, false).await;
}

//! Other kinds of locks on the same name, and Redisson's fair lock.

use std::time::Duration;

use latchwork::LockKind;
use latchwork::backend::{AcquireOutcome, Backend as _, Failure, ReleaseOutcome};
use latchwork::redis::{Error, ErrorKind};

use super::super::stage::{KEPT, Stage, fields, id, position};

#[track_caller]
fn assert_other_kind<T: std::fmt::Debug>(stage: &Stage, answer: Result<T, Error>, expected: LockKind) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OtherKind(expected));
    assert_eq!(stage.redis.failure(&error), Failure::OtherKind(expected));
}

/// Redisson's plain and fair locks have no mode, and need not publish to us.
#[tokio::test]
async fn redissons_lock_is_waited_for_and_looked_at_each_second() {
    let mut stage = Stage::fair("fair:redisson").await;
    let waits = id(2, 1);
    let () = stage.run("HSET {} 8743c9c0-0795-4907-87fd-6c719a6b4586:7 2").await;
    assert!(stage.wait(&waits, 0).await <= Duration::from_secs(1), "without an end");
    for (millis, expected) in [(600_000, 1000), (500, 500)] {
        let () = stage.run(&format!("PEXPIRE {{}} {millis}")).await;
        assert!(stage.wait(&waits, 0).await <= Duration::from_millis(expected));
    }
    let () = stage.run("PEXPIRE {} 600000").await;
    let tried = stage.ask(&id(3, 1), None).await.unwrap();
    assert_eq!(tried, AcquireOutcome::Held { left: Duration::from_secs(1) });
    stage.assert_queue(&[&waits]).await;
    assert_eq!(stage.run::<u64>("HGET {} 8743c9c0-0795-4907-87fd-6c719a6b4586:7").await, 2);
    stage.listen(&waits).await;
    assert!(stage.force_release().await);
    stage.assert_granted(&[&waits]).await;
    stage.assert_holder(&waits, KEPT).await;
    stage.release(&waits, None).await;
    stage.assert_heard(&["0"]).await;
    stage.end().await;
}

#[tokio::test]
async fn head_of_redissons_fair_queue_is_told_that_the_lock_is_free() {
    let mut stage = Stage::fair("fair:foreign").await;
    let (holder, waits) = (id(1, 1), id(2, 1));
    let them = id(9, 7);
    let () = stage.run(&format!("RPUSH redisson_lock_queue:{{{{}}}} {them} {}", id(9, 8))).await;
    let () = stage.run("PEXPIRE redisson_lock_queue:{{}} 600000").await;
    stage.listen_to(&format!("redisson_lock__channel:{{{{}}}}:{them}")).await;
    stage.take(&holder).await;
    stage.wait(&waits, 0).await;
    stage.listen(&waits).await;
    stage.release(&holder, None).await;
    stage.assert_granted(&[&waits]).await;
    stage.release(&waits, None).await;
    stage.assert_heard(&["0", &format!("redisson_lock__channel:{{fair:foreign}}:{them} 0")]).await;
    assert_eq!(stage.run::<usize>("LLEN redisson_lock_queue:{{}}").await, 2);
    let () = stage.run("DEL redisson_lock_queue:{{}}").await;
    stage.end().await;
}

/// A fair lock has one holder and perhaps a few former ones; a hash with more fields is no lock.
#[tokio::test]
async fn hash_of_many_fields_is_another_kind() {
    // A dozen fields fit into a script's first page. With hundreds, the page has more than ten, or fewer: the
    // server's hash function decides.
    for more in [11].into_iter().chain(600..608) {
        let mut stage = Stage::fair(&format!("fair:crowd:{more}")).await;
        let crowd = fields((0..more).map(|number| id(9, number)), 1);
        stage.put(&format!("mode fair{crowd}")).await;
        for wants in [&id(2, 1), &id(9, 0)] {
            assert_other_kind(&stage, stage.ask(wants, Some(position(0))).await, LockKind::Unknown);
            assert_eq!(stage.release(wants, None).await, ReleaseOutcome::NotHeld);
        }
        assert_eq!(stage.run::<u64>("HLEN {}").await, more + 1);
        let () = stage.run("DEL {}").await;
        stage.end().await;
    }
}

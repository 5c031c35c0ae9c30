//! The outcomes of acquiring a plain lock.

use std::time::Duration;

use latchwork::backend::{Backend as _, LeaseKey, LockName, Mode};
use latchwork_conformance::commands::{Commands as _, left};

use super::stage::{LEASE, Stage, id};

/// Redisson's fair and spin locks look the same, and do not publish to our waiters.
#[tokio::test]
async fn lock_without_a_mode_is_asked_about_again_within_a_second() {
    const SECOND: Option<Duration> = Some(Duration::from_secs(1));
    let mut stage = Stage::fair("plain:without:mode").await;
    let request = stage.redis.request(&id(1, 1), LEASE);
    let asks =
        async |stage: &Stage| left(stage.redis.acquire(Mode::Plain, &stage.name, &request).await.unwrap());
    let () = stage.run(&format!("HSET {{}} {} 1", id(2, 1))).await;
    assert_eq!(asks(&stage).await, SECOND, "without an end");
    let () = stage.run("PEXPIRE {} 600000").await;
    assert_eq!(asks(&stage).await, SECOND);
    let holder = stage.redis.holder(Mode::Plain, &stage.name).await.unwrap().expect("the lock is held");
    assert_eq!((holder.id, holder.mode), (Some(id(2, 1)), None));
    let soon = loop {
        let () = stage.run(&format!("HSET {{}} {} 1", id(2, 1))).await;
        let () = stage.run("PEXPIRE {} 900").await;
        // On a busy machine the lease may be over by now.
        match asks(&stage).await {
            Some(left) => break left,
            None => stage.run("DEL {}").await,
        }
    };
    assert!(soon <= Duration::from_millis(900), "{soon:?}");
    let () = stage.run("DEL {}").await;
    stage.end().await;
}

/// The key's name cannot be leased; other locks of the same renewal are unaffected.
#[tokio::test]
async fn key_of_another_type_counts_as_held_and_hinders_no_other_lock() {
    let mut stage = Stage::fair("plain:text").await;
    let () = stage.run("SET {} text").await;
    let holder = stage.redis.holder(Mode::Plain, &stage.name).await.unwrap().expect("the lock is held");
    assert_eq!((holder.id, holder.mode, holder.left), (None, None, Duration::MAX));
    let () = stage.run(&format!("HSET {{}}:held mode lock {} 1", id(1, 1))).await;
    let () = stage.run("PEXPIRE {}:held 60000").await;
    let held = LockName::new("plain:text:held").unwrap();
    let leases = [&stage.name, &held].map(|name| LeaseKey { name: name.clone(), id: id(1, 1) });
    assert_eq!(stage.redis.renew(Mode::Plain, &leases, LEASE).await.unwrap(), [false, true]);
    stage.assert_lasts("{}:held", LEASE).await;
    let () = stage.run("DEL {} {}:held").await;
    stage.end().await;
}

//! Leases, tokens and releases.

use std::time::Duration;

use latchwork::LeaseId;
use latchwork::backend::{AcquireOutcome, Backend as _, Mode, NextWaiter, ReleaseOutcome};

use super::super::stage::{KEPT, LEASE, Stage, id, next, position};
use latchwork_conformance::commands::{Commands as _, RELEASED};

const PASSED: ReleaseOutcome = ReleaseOutcome::GrantedToNext { last_token: 0 };

#[tokio::test]
async fn next_waiter_has_the_lock_at_once_if_none_comes_before_it() {
    let mut stage = Stage::fair("fair:next").await;
    let (holder, before, after, ours) = (id(1, 1), id(2, 1), id(3, 1), id(1, 2));
    stage.take(&holder).await;
    for (id, steps) in [(&before, 3), (&after, 1)] {
        stage.wait(id, steps).await;
        stage.listen(id).await;
    }
    assert_eq!(stage.release(&holder, Some(&next(&ours, 2, 0))).await, RELEASED);
    stage.assert_granted(&[&before]).await;
    stage.assert_queue(&[&ours, &after]).await;
    // Its own client, which was told of it, is not: it knows by the reply.
    stage.listen(&ours).await;
    let second = id(2, 2);
    assert_eq!(stage.release(&before, Some(&next(&second, 4, 0))).await, PASSED);
    stage.assert_granted(&[]).await;
    stage.assert_holder(&second, LEASE).await;
    assert_eq!(stage.release(&second, None).await, RELEASED);
    stage.assert_granted(&[&ours]).await;
    // Those before it that do not listen are passed over.
    stage.listen_no_more(&after).await;
    let last = id(1, 3);
    assert_eq!(stage.release(&ours, Some(&next(&last, 0, 0))).await, PASSED);
    stage.assert_holder(&last, LEASE).await;
    stage.assert_queue(&[&after]).await;
    stage.release(&last, None).await;
    stage.release(&after, None).await;
    stage.assert_heard(&["0"]).await;
    stage.end().await;
}

#[tokio::test]
async fn release_means_the_same_when_it_runs_twice() {
    let mut stage = Stage::fair("fair:twice").await;
    let (holder, other, ours) = (id(1, 1), id(2, 1), id(1, 2));
    // To the next waiter.
    stage.take(&holder).await;
    let wanted = next(&ours, 0, 2);
    let mut last = 0;
    for _ in 0..3 {
        match stage.release(&holder, Some(&wanted)).await {
            ReleaseOutcome::GrantedToNext { last_token } => {
                assert!(last_token >= last + 2, "{last_token} after {last}");
                last = last_token;
            }
            outcome => panic!("{outcome:?}"),
        }
        stage.assert_holder(&ours, LEASE).await;
    }
    assert_eq!(stage.release(&ours, None).await, RELEASED);
    stage.assert_heard(&["0"]).await;
    for _ in 0..2 {
        assert_eq!(stage.release(&holder, Some(&wanted)).await, ReleaseOutcome::NotHeld);
        assert_eq!(stage.release(&ours, None).await, ReleaseOutcome::NotHeld);
    }
    stage.assert_queue(&[]).await;
    // To another one: the next waiter is in the queue, whichever run has put it there.
    stage.take(&holder).await;
    stage.wait(&other, 1).await;
    stage.listen(&other).await;
    for _ in 0..2 {
        assert_eq!(stage.release(&holder, Some(&wanted)).await, RELEASED);
        stage.assert_holder(&other, KEPT).await;
        stage.assert_queue(&[&ours]).await;
    }
    stage.assert_granted(&[&other]).await;
    // A waiter that leaves.
    for _ in 0..2 {
        assert_eq!(stage.release(&ours, None).await, ReleaseOutcome::NotHeld);
        stage.assert_queue(&[]).await;
        stage.assert_holder(&other, KEPT).await;
    }
    stage.release(&other, None).await;
    stage.assert_heard(&["0"]).await;
    stage.end().await;
}

/// A release comes once more, late, when its next waiter has a longer lease.
#[tokio::test]
async fn late_release_does_not_cut_the_next_waiters_lease() {
    let mut stage = Stage::fair("fair:late").await;
    let (holder, ours) = (id(1, 1), id(1, 2));
    stage.take(&holder).await;
    let short = NextWaiter { lease: LEASE / 10, ..next(&ours, 0, 0) };
    assert_eq!(stage.release(&holder, Some(&short)).await, PASSED);
    stage.assert_holder(&ours, LEASE / 10).await;
    stage.take(&ours).await;
    assert_eq!(stage.release(&holder, Some(&short)).await, PASSED);
    stage.assert_holder(&ours, LEASE).await;
    stage.release(&ours, None).await;
    stage.end().await;
}

#[tokio::test]
async fn waiter_that_leaves_harms_no_other() {
    let mut stage = Stage::fair("fair:leaves").await;
    let (holder, leaves, stays) = (id(1, 1), id(2, 1), id(2, 2));
    stage.take(&holder).await;
    stage.wait(&leaves, 1).await;
    stage.wait(&stays, 0).await;
    stage.listen(&stays).await;
    assert_eq!(stage.release(&leaves, None).await, ReleaseOutcome::NotHeld);
    stage.assert_holder(&holder, LEASE).await;
    stage.assert_queue(&[&stays]).await;
    // One that leaves with another in mind has not put that one anywhere.
    assert_eq!(stage.release(&leaves, Some(&next(&id(2, 3), 5, 0))).await, ReleaseOutcome::NotHeld);
    stage.assert_queue(&[&stays]).await;
    stage.release(&holder, None).await;
    stage.assert_granted(&[&stays]).await;
    // Granted, and not wanted any more.
    assert_eq!(stage.redis.roll_back(Mode::Fair, &stage.name, &stays).await.unwrap(), RELEASED);
    stage.assert_heard(&["0"]).await;
    stage.end().await;
}

async fn tokens(stage: &Stage, id: &LeaseId, tokens: u64) -> u64 {
    let taken = stage
        .redis
        .acquire(
            Mode::Fair,
            &stage.name,
            &stage.redis.request(id, LEASE).tokens(tokens).position(Some(position(0))),
        )
        .await;
    match taken.unwrap() {
        AcquireOutcome::Acquired { last_token } => last_token,
        outcome => panic!("{id}: {outcome:?}"),
    }
}

#[tokio::test]
async fn tokens_rise_and_are_reserved_as_many_as_are_asked_for() {
    let mut stage = Stage::fair("fair:tokens").await;
    let (holder, granted, ours) = (id(1, 1), id(2, 1), id(2, 2));
    assert_eq!(tokens(&stage, &holder, 0).await, 0);
    assert_eq!(tokens(&stage, &holder, 1).await, 1);
    assert_eq!(tokens(&stage, &holder, 10).await, 11);
    // A grant brings none; an owner that wants one asks again.
    stage.wait(&granted, 0).await;
    stage.listen(&granted).await;
    stage.release(&holder, None).await;
    stage.assert_granted(&[&granted]).await;
    assert_eq!(stage.run::<u64>("GET redisson_lock_token:{{}}").await, 11);
    assert_eq!(tokens(&stage, &granted, 5).await, 16);
    let passed = stage.release(&granted, Some(&next(&ours, 0, 3))).await;
    assert_eq!(passed, ReleaseOutcome::GrantedToNext { last_token: 19 });
    stage.release(&ours, None).await;
    // Nor does a waiter get any.
    stage.take(&holder).await;
    let waits = stage
        .redis
        .acquire(
            Mode::Fair,
            &stage.name,
            &stage.redis.request(&ours, LEASE).tokens(7).position(Some(position(0))),
        )
        .await;
    assert!(matches!(waits, Ok(AcquireOutcome::Held { .. })), "{waits:?}");
    assert_eq!(stage.run::<u64>("GET redisson_lock_token:{{}}").await, 19);
    // A plain lock goes on from there.
    stage.release(&ours, None).await;
    stage.release(&holder, None).await;
    let plain = stage
        .redis
        .acquire(Mode::Plain, &stage.name, &stage.redis.request(&holder, LEASE).tokens(1))
        .await
        .unwrap();
    assert_eq!(plain, AcquireOutcome::Acquired { last_token: 20 });
    stage.redis.release(Mode::Plain, &stage.name, &holder, None).await.unwrap();
    stage.end().await;
}

#[tokio::test]
async fn holder_that_asks_again_has_the_longer_lease() {
    let mut stage = Stage::fair("fair:exact").await;
    let (holder, waits) = (id(1, 1), id(2, 1));
    stage.take(&holder).await;
    stage.wait(&waits, 0).await;
    stage.listen(&waits).await;
    // It may be an attempt that comes late, when its client counts on a longer lease.
    for (lease, has) in [(LEASE * 2, LEASE * 2), (LEASE / 2, LEASE * 2), (LEASE * 3, LEASE * 3)] {
        let again =
            stage.redis.acquire(Mode::Fair, &stage.name, &stage.redis.request(&holder, lease)).await.unwrap();
        assert_eq!(again, AcquireOutcome::Acquired { last_token: 0 });
        stage.assert_holder(&holder, has).await;
        stage.assert_heard(&[]).await;
    }
    // A grant lasts as long as the position did, and is extended as any lease.
    stage.release(&holder, None).await;
    stage.assert_granted(&[&waits]).await;
    stage.assert_holder(&waits, KEPT).await;
    stage.renew(Mode::Plain, &waits, LEASE).await;
    stage.assert_holder(&waits, LEASE).await;
    let shown = stage.redis.holder(Mode::Plain, &stage.name).await.unwrap().expect("it is held");
    assert_eq!(shown.id.as_ref(), Some(&waits));
    assert!(shown.left > LEASE - Duration::from_secs(30) && shown.left <= LEASE);
    stage.release(&waits, None).await;
    stage.end().await;
}

#[tokio::test]
async fn forced_lock_goes_to_the_first_of_the_queue() {
    let mut stage = Stage::fair("fair:force").await;
    let (holder, waits) = (id(1, 1), id(2, 1));
    let force = async |stage: &Stage| stage.force_release().await;
    assert!(!force(&stage).await);
    stage.take(&holder).await;
    stage.wait(&waits, 0).await;
    stage.listen(&waits).await;
    assert!(force(&stage).await);
    stage.assert_granted(&[&waits]).await;
    stage.assert_holder(&waits, KEPT).await;
    assert_eq!(stage.release(&holder, None).await, ReleaseOutcome::NotHeld);
    assert!(force(&stage).await);
    stage.assert_heard(&["0"]).await;
    assert!(!force(&stage).await);
    stage.assert_heard(&[]).await;
    stage.end().await;
}

#[tokio::test]
async fn forced_unlock_of_a_lock_that_is_free_takes_out_positions_that_are_over() {
    let mut stage = Stage::fair("fair:free:over").await;
    let (holder, over) = (id(1, 1), id(2, 1));
    stage.take(&holder).await;
    stage.wait(&over, 0).await;
    stage.listen(&over).await;
    stage.end_position(&over).await;
    let () = stage.run("DEL {}").await;
    assert!(!stage.force_release().await);
    stage.assert_granted(&[]).await;
    stage.end().await;
}

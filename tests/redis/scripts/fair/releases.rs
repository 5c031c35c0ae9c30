//! Leases, tokens and releases.

use latchwork::backend::{NextWaiter, ReleaseOutcome};

use super::super::stage::{LEASE, Stage, id, next};

const PASSED: ReleaseOutcome = ReleaseOutcome::GrantedToNext { last_token: 0 };

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

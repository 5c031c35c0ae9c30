//! The waiters in a queue, their order, and the life of their positions.

use std::time::Duration;

use latchwork::backend::{AcquireOutcome, QueuePosition};

use super::super::stage::{KEPT, Stage, id, position};

/// A server short of memory evicts single keys. The remaining ones must not stay for ever.
#[tokio::test]
async fn queue_of_which_a_key_was_evicted_has_an_end() {
    let mut stage = Stage::fair("fair:evicted").await;
    let (holder, first, second) = (id(1, 1), id(2, 1), id(3, 1));
    stage.take(&holder).await;
    for evicted in ["fair_queue", "fair_positions"] {
        stage.wait(&first, 0).await;
        let () = stage.run(&format!("DEL {{}}:latchwork:{{{{}}}}:{evicted}")).await;
        let shorter = QueuePosition { waited: Duration::ZERO, kept: KEPT / 2 };
        stage.ask(&second, Some(shorter)).await.unwrap();
        // The lock and both keys of the queue, each with a time to live.
        assert_eq!(stage.keys().await.len(), 3);
        stage.release(&first, None).await;
        stage.release(&second, None).await;
    }
    stage.release(&holder, None).await;
    stage.assert_heard(&["0"]).await;
    stage.end().await;
}

/// A script looks at a hundred waiters.
#[tokio::test]
async fn deaf_clients_keep_positions_if_one_script_reads_them_all() {
    let mut stage = Stage::fair("fair:all:deaf").await;
    let holder = id(1, 1);
    let deaf: Vec<_> = (2..97).map(|client| id(client, 1)).collect();
    stage.take(&holder).await;
    for id in &deaf {
        stage.wait(id, 0).await;
    }
    stage.release(&holder, None).await;
    stage.assert_heard(&["0"]).await;
    stage.assert_queue(&deaf.iter().collect::<Vec<_>>()).await;
    for id in &deaf {
        stage.release(id, None).await;
    }
    stage.end().await;
}

/// All expired positions, and the asking waiter's own.
#[tokio::test]
async fn expired_positions_go_at_an_attempt_on_a_lock_free_by_itself() {
    let mut stage = Stage::fair("fair:stale").await;
    let [holder, one, two, three, waits, asks] = [1, 2, 3, 4, 5, 6].map(|client| id(client, 1));
    for position in [None, Some(position(0))] {
        stage.take(&holder).await;
        for (id, steps) in [(&one, 5), (&two, 4), (&three, 3), (&waits, 2), (&asks, 1)] {
            stage.wait(id, steps).await;
            stage.listen(id).await;
        }
        for id in [&one, &two, &three, &asks] {
            stage.end_position(id).await;
        }
        let () = stage.run("DEL {}").await;
        let asked = stage.ask(&asks, position).await.unwrap();
        assert!(matches!(asked, AcquireOutcome::Held { .. }), "{asked:?}");
        stage.assert_granted(&[&waits]).await;
        let stays = position.map(|_| &asks);
        stage.assert_queue(stays.as_slice()).await;
        stage.release(&asks, None).await;
        stage.release(&waits, None).await;
        stage.assert_heard(&["0"]).await;
    }
    stage.end().await;
}

#[tokio::test]
async fn forced_unlock_of_a_free_lock_removes_expired_positions() {
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

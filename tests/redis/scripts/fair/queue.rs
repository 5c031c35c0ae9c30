//! Which waiters are in the queue, in which order, and for how long.

use std::time::Duration;

use latchwork::LeaseId;
use latchwork::backend::{AcquireOutcome, QueuePosition, ReleaseOutcome};

use super::super::stage::{KEPT, LEASE, Stage, id, position};
use latchwork_conformance::commands::RELEASED;

#[tokio::test]
async fn queue_is_in_the_order_in_which_its_waiters_began_to_wait() {
    let mut stage = Stage::fair("fair:order").await;
    let (holder, late, early, middle) = (id(1, 1), id(2, 1), id(3, 1), id(2, 2));
    stage.take(&holder).await;
    for (id, steps) in [(&late, 0), (&early, 2), (&middle, 1)] {
        assert!(stage.wait(id, steps).await > KEPT);
        stage.listen(id).await;
    }
    stage.assert_queue(&[&early, &middle, &late]).await;
    let mut leaves = &holder;
    for granted in [&early, &middle, &late] {
        assert_eq!(stage.release(leaves, None).await, RELEASED);
        stage.assert_granted(&[granted]).await;
        stage.assert_holder(granted, KEPT).await;
        leaves = granted;
    }
    assert_eq!(stage.release(&late, None).await, RELEASED);
    stage.assert_heard(&["0"]).await;
    stage.end().await;
}

#[tokio::test]
async fn position_is_kept_by_asking_again_and_not_moved_by_it() {
    let mut stage = Stage::fair("fair:kept").await;
    let (holder, first, second) = (id(1, 1), id(2, 1), id(3, 1));
    stage.take(&holder).await;
    stage.wait(&first, 1).await;
    stage.wait(&second, 0).await;
    let before = stage.kept_until(&first).await.unwrap();
    // Older than it was, though it came between the two.
    let older = QueuePosition { waited: Duration::ZERO, kept: KEPT * 2 };
    stage.ask(&first, Some(older)).await.unwrap();
    assert!(u128::from(stage.kept_until(&first).await.unwrap() - before) > KEPT.as_micros() / 2);
    stage.assert_queue(&[&first, &second]).await;
    // The queue lives as long as the last of its positions, even if that is not the last that was asked for.
    stage.wait(&second, 0).await;
    for key in ["fair_queue", "fair_positions"] {
        let left: u64 = stage.run(&format!("PTTL {{}}:latchwork:{{{{}}}}:{key}")).await;
        assert!(u128::from(left) > KEPT.as_millis(), "{key}: {left}");
    }
    for id in [&first, &second, &holder] {
        stage.release(id, None).await;
    }
    stage.end().await;
}

/// What waits keeps its place with its next question. Newcomers would overtake it until the clock is where it
/// was.
#[tokio::test]
async fn position_is_not_overtaken_when_the_clock_of_the_server_is_set_back() {
    let mut stage = Stage::fair("fair:setback").await;
    let (holder, first, second) = (id(1, 1), id(2, 1), id(3, 1));
    stage.take(&holder).await;
    stage.wait(&first, 1).await;
    stage.listen(&first).await;
    let hour = 3_600_000_000;
    let () = stage.run(&format!("ZINCRBY {{}}:latchwork:{{{{}}}}:fair_queue {hour} {first}")).await;
    let until = stage.kept_until(&first).await.unwrap();
    stage.keep_until(&first, until + hour).await;
    stage.wait(&second, 0).await;
    stage.assert_queue(&[&second, &first]).await;
    stage.wait(&first, 1).await;
    stage.assert_queue(&[&first, &second]).await;
    stage.release(&holder, None).await;
    stage.assert_granted(&[&first]).await;
    stage.assert_holder(&first, KEPT).await;
    stage.release(&second, None).await;
    stage.release(&first, None).await;
    stage.assert_heard(&["0"]).await;
    stage.end().await;
}

/// A server that is short of memory forgets keys one by one. What is left must not stay when all are gone.
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
        // The lock, and all of the queue. None of them stays for ever.
        assert_eq!(stage.keys().await.len(), 3);
        stage.release(&first, None).await;
        stage.release(&second, None).await;
    }
    stage.release(&holder, None).await;
    stage.assert_heard(&["0"]).await;
    stage.end().await;
}

#[tokio::test]
async fn position_that_is_over_is_forgotten() {
    let mut stage = Stage::fair("fair:over").await;
    let (holder, first, second, third) = (id(1, 1), id(2, 1), id(3, 1), id(4, 1));
    stage.take(&holder).await;
    for (id, steps) in [(&first, 3), (&second, 2), (&third, 1)] {
        stage.wait(id, steps).await;
        stage.listen(id).await;
    }
    stage.end_position(&first).await;
    stage.end_position(&second).await;
    // It comes again, and its new position is by its new age.
    stage.wait(&second, 0).await;
    stage.assert_queue(&[&first, &third, &second]).await;
    stage.release(&holder, None).await;
    stage.assert_granted(&[&third]).await;
    stage.assert_queue(&[&second]).await;
    stage.release(&third, None).await;
    stage.assert_granted(&[&second]).await;
    stage.release(&second, None).await;
    stage.assert_heard(&["0"]).await;
    stage.end().await;
}

/// By the server's clock.
#[tokio::test]
async fn position_ends_by_itself() {
    let mut stage = Stage::fair("fair:ends").await;
    let (holder, silent, patient) = (id(1, 1), id(2, 1), id(3, 1));
    stage.take(&holder).await;
    let short = QueuePosition { kept: Duration::from_millis(20), ..position(2) };
    stage.ask(&silent, Some(short)).await.unwrap();
    stage.wait(&patient, 1).await;
    for id in [&silent, &patient] {
        stage.listen(id).await;
    }
    tokio::time::sleep(Duration::from_millis(40)).await;
    stage.release(&holder, None).await;
    stage.assert_granted(&[&patient]).await;
    stage.release(&patient, None).await;
    stage.assert_heard(&["0"]).await;
    // Alone, it takes the queue along.
    stage.take(&holder).await;
    stage.ask(&silent, Some(short)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(40)).await;
    assert_eq!(stage.keys().await, ["fair:ends"]);
    stage.release(&holder, None).await;
    stage.assert_heard(&["0"]).await;
    stage.end().await;
}

#[tokio::test]
async fn client_that_does_not_listen_is_passed_over_and_keeps_its_position() {
    let mut stage = Stage::fair("fair:deaf").await;
    let (holder, dead, deaf, hears) = (id(1, 1), id(2, 1), id(3, 1), id(4, 1));
    stage.take(&holder).await;
    for (id, steps) in [(&dead, 3), (&deaf, 2), (&hears, 1)] {
        stage.wait(id, steps).await;
    }
    stage.listen(&hears).await;
    stage.release(&holder, None).await;
    stage.assert_granted(&[&hears]).await;
    stage.assert_queue(&[&dead, &deaf]).await;
    // It is back, and one that came after it is still behind it.
    let again = id(4, 2);
    stage.wait(&again, 0).await;
    stage.listen(&deaf).await;
    stage.release(&hears, None).await;
    stage.assert_granted(&[&deaf]).await;
    // There are no listeners, so the next one that asks finds it free.
    stage.listen_no_more(&again).await;
    stage.release(&deaf, None).await;
    stage.assert_heard(&["0"]).await;
    stage.assert_queue(&[&dead, &again]).await;
    stage.take(&again).await;
    stage.release(&again, None).await;
    stage.assert_heard(&["0"]).await;
    stage.release(&dead, None).await;
    stage.end().await;
}

/// A script looks at a hundred.
#[tokio::test]
async fn clients_that_do_not_listen_keep_their_positions_if_one_script_looks_at_all_of_them() {
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

/// A lease is over, and was not given back.
#[tokio::test]
async fn lock_that_became_free_by_itself_goes_to_the_first_whichever_client_asks() {
    let mut stage = Stage::fair("fair:expired").await;
    let (first, second, third, leaves) = (id(2, 1), id(3, 1), id(4, 1), id(5, 1));
    let scene = async |stage: &mut Stage| {
        let holder = id(1, 1);
        stage.take(&holder).await;
        for (id, steps) in [(&first, 3), (&second, 2)] {
            stage.wait(id, steps).await;
            stage.listen(id).await;
        }
        let () = stage.run("DEL {}").await;
    };
    let clear = async |stage: &mut Stage, ids: &[&LeaseId]| {
        for id in ids {
            stage.release(id, None).await;
        }
        let _ = stage.heard().await;
    };
    // One that waits for less long, and how long the other one has it.
    scene(&mut stage).await;
    let left = stage.wait(&third, 1).await;
    assert!(left <= KEPT && left > KEPT / 2, "{left:?}");
    stage.assert_granted(&[&first]).await;
    stage.assert_holder(&first, KEPT).await;
    stage.assert_queue(&[&second, &third]).await;
    clear(&mut stage, &[&first, &second, &third]).await;
    // One that does not wait.
    scene(&mut stage).await;
    let tried = stage.ask(&third, None).await.unwrap();
    assert!(matches!(tried, AcquireOutcome::Held { .. }), "{tried:?}");
    stage.assert_granted(&[&first]).await;
    stage.assert_queue(&[&second]).await;
    clear(&mut stage, &[&first, &second]).await;
    // One that leaves, and one that had it.
    for gone in [&leaves, &id(1, 1)] {
        scene(&mut stage).await;
        assert_eq!(stage.release(gone, None).await, ReleaseOutcome::NotHeld);
        stage.assert_granted(&[&first]).await;
        clear(&mut stage, &[&first, &second]).await;
    }
    // The first itself, and one that came before it.
    for (asks, queue) in [(&first, vec![&second]), (&third, vec![&first, &second])] {
        scene(&mut stage).await;
        let taken = stage.ask(asks, Some(position(4))).await.unwrap();
        assert!(matches!(taken, AcquireOutcome::Acquired { .. }), "{taken:?}");
        stage.assert_holder(asks, LEASE).await;
        stage.assert_queue(&queue).await;
        stage.assert_heard(&[]).await;
        clear(&mut stage, &[asks, &first, &second]).await;
    }
    stage.end().await;
}

/// As many as there are, and that of the one that asks.
#[tokio::test]
async fn positions_that_are_over_go_when_one_asks_for_a_lock_that_became_free_by_itself() {
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
async fn attempt_without_a_position_takes_a_free_lock_only_if_none_waits() {
    let mut stage = Stage::fair("fair:try").await;
    let (holder, other) = (id(1, 1), id(2, 1));
    assert_eq!(stage.ask(&holder, None).await.unwrap(), AcquireOutcome::Acquired { last_token: 0 });
    stage.assert_holder(&holder, LEASE).await;
    let tried = stage.ask(&other, None).await.unwrap();
    assert!(matches!(tried, AcquireOutcome::Held { left } if left > LEASE / 2), "{tried:?}");
    stage.assert_queue(&[]).await;
    stage.release(&holder, None).await;
    stage.assert_heard(&["0"]).await;
    stage.end().await;
}

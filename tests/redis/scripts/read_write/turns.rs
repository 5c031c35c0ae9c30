//! Order of waiters.

use latchwork::backend::Backend as _;
use latchwork::lock::{LockName, Mode};

use super::super::stage::{LEASE, Stage, id, position};
use latchwork_conformance::commands::{Commands as _, RELEASED, left};

/// Otherwise dead readers would keep their turn, before all writers, until the clock is back at its old time.
#[tokio::test]
async fn turn_of_readers_ends_when_the_servers_clock_is_set_back() {
    let mut stage = Stage::read_write("rw:setback").await;
    let [holder, writer, late, dies] = [1, 2, 3, 4].map(|client| id(client, 1));
    stage.take(&holder).await;
    stage.wait(&writer, 1).await;
    stage.listen(&writer).await;
    stage.wait_to_read(&dies, 0).await;
    stage.release(&holder, None).await;
    stage.assert_heard(&["1"]).await;
    for member in ["phase".to_owned(), dies.to_string()] {
        let () = stage.run(&format!("ZINCRBY {{}}:latchwork:{{{{}}}}:rw_turn 3600000000 {member}")).await;
    }
    // The late reader comes after the writer, which is granted the lock.
    stage.wait_to_read(&late, 0).await;
    stage.assert_granted(&[&writer]).await;
    stage.release(&writer, None).await;
    stage.assert_heard(&["1"]).await;
    stage.read(&late).await;
    assert!(stage.release_read(&late).await);
    stage.assert_heard(&["0"]).await;
    stage.end().await;
}

/// Every 32nd release with a next waiter frees the lock: otherwise Redisson's clients would hear of no
/// release as long as ours wait. Releases of another name do not count.
#[tokio::test]
async fn every_32nd_release_frees_the_name_and_no_waiter_is_overtaken() {
    let mut stage = Stage::read_write("rw:strangers:write").await;
    let quiet = LockName::new("rw:strangers:quiet").unwrap();
    let mut holder = id(1, 1);
    stage.take(&holder).await;
    let mut left_to_strangers = 0;
    for number in 2..=66 {
        let alone = id(10, number);
        let alone_at = stage.redis.acquire(Mode::Write, &quiet, &stage.redis.request(&alone, LEASE)).await;
        assert_eq!(left(alone_at.unwrap()), None, "expected the free lock of the quiet name");
        let released = stage.redis.release(Mode::Write, &quiet, &alone, None).await.unwrap();
        assert_eq!(released, RELEASED);
        let waits = id(2 + (number % 2) as u32, number);
        stage.wait(&waits, 5).await;
        stage.listen(&waits).await;
        let later = id(9, number);
        stage.listen(&later).await;
        stage.wait(&later, 0).await;
        assert_eq!(stage.release(&holder, None).await, RELEASED);
        match &stage.heard().await[..] {
            [said] if said == "1" => {
                left_to_strangers += 1;
                assert_eq!(stage.run::<usize>("EXISTS {}").await, 0);
                // Whichever of our waiters asks, the first one gets the lock.
                stage.wait(&later, 0).await;
                stage.assert_granted(&[&waits]).await;
            }
            heard => assert_eq!(heard, [waits.to_string()]),
        }
        let granted = stage.ask(&waits, Some(position(5))).await.unwrap();
        assert_eq!(left(granted), None, "expected the granted lock for the next holder");
        stage.redis.roll_back(Mode::Write, &stage.name, &later).await.unwrap();
        holder = waits;
    }
    assert_eq!(left_to_strangers, 2, "expected two of 65 releases left to strangers");
    stage.release(&holder, None).await;
    stage.end().await;
}

#[tokio::test]
async fn forced_unlock_that_admits_readers_removes_expired_positions() {
    let mut stage = Stage::read_write("rw:force:over").await;
    let (holder, over, writer, reader) = (id(1, 1), id(2, 1), id(3, 1), id(4, 1));
    stage.take(&holder).await;
    for (id, steps) in [(&over, 9), (&writer, 8)] {
        stage.wait(id, steps).await;
        stage.listen(id).await;
    }
    stage.end_position(&over).await;
    stage.wait_to_read(&reader, 0).await;
    assert!(stage.force_release().await);
    stage.assert_heard(&["1"]).await;
    stage.assert_queue(&[&writer]).await;
    stage.read(&reader).await;
    assert!(stage.release_read(&reader).await);
    stage.assert_granted(&[&writer]).await;
    stage.release(&writer, None).await;
    stage.end().await;
}

#[tokio::test]
async fn positions_that_are_over_go_with_a_lock_that_is_free() {
    let mut stage = Stage::read_write("rw:stale").await;
    let (holder, reader, over) = (id(1, 1), id(2, 1), id(3, 1));
    stage.listen(&over).await;
    for writes in [true, false] {
        if writes {
            stage.take(&holder).await;
        } else {
            stage.read(&reader).await;
        }
        stage.wait(&over, 0).await;
        stage.end_position(&over).await;
        if writes {
            assert_eq!(stage.release(&holder, None).await, RELEASED);
        } else {
            assert!(stage.release_read(&reader).await);
        }
        assert_eq!(stage.keys().await, [""; 0], "expected no key after the turn (after a writer: {writes})");
    }
    stage.end().await;
}

/// The readers died or were cut off. As long as a live reader waits, the key stays.
#[tokio::test]
async fn readers_that_ask_no_more_are_forgotten_as_others_come() {
    let mut stage = Stage::read_write("rw:mute").await;
    let (holder, patient) = (id(1, 1), id(2, 1));
    stage.take(&holder).await;
    stage.wait_to_read(&patient, 9).await;
    for number in 1..=20 {
        let silent = id(3, number);
        stage.wait_to_read(&silent, 0).await;
        let () = stage.run(&format!("ZADD {{}}:latchwork:{{{{}}}}:rw_readers XX 1 {silent}")).await;
    }
    // The patient reader and the last one to arrive, which no later reader follows.
    assert_eq!(stage.run::<usize>("ZCARD {}:latchwork:{{}}:rw_readers").await, 2);
    assert!(!stage.release_read(&patient).await && !stage.release_read(&id(3, 20)).await);
    stage.release(&holder, None).await;
    stage.end().await;
}

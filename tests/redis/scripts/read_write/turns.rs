//! Which waiter comes next.

use std::time::Duration;

use latchwork::backend::Backend as _;
use latchwork::lock::{LockName, Mode};

use super::super::stage::{LEASE, Stage, id, lease_key, next, position};
use latchwork_conformance::commands::{Commands as _, RELEASED, left};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test]
async fn waiting_reader_has_its_turn_though_writers_came_before_it() {
    let mut stage = Stage::read_write("rw:turn").await;
    let (holder, writer) = (id(1, 1), id(2, 1));
    let [one, two, late] = [3, 4, 5].map(|client| id(client, 1));
    stage.take(&holder).await;
    stage.wait(&writer, 9).await;
    stage.listen(&writer).await;
    stage.wait_to_read(&one, 1).await;
    stage.wait_to_read(&two, 0).await;
    assert_eq!(stage.release(&holder, None).await, RELEASED);
    stage.assert_heard(&["1"]).await;
    stage.assert_fields(&["mode=read".to_owned()]).await;
    stage.assert_lasts("{}", SECOND).await;
    assert!(stage.wait(&writer, 9).await <= SECOND);
    // One that began to wait after that waits for the writer, and so does one that does not wait at all.
    stage.wait_to_read(&late, 0).await;
    assert!(stage.reader_waits(&late, None).await.is_some());
    // The first is quick. The other comes still, though by its own account it began to wait a little later
    // than it did.
    stage.read(&one).await;
    assert!(stage.release_read(&one).await);
    stage.assert_heard(&[]).await;
    assert!(stage.wait(&writer, 9).await <= SECOND, "it is told to ask when the turn is over");
    stage.read(&two).await;
    assert!(stage.release_read(&two).await);
    stage.assert_granted(&[&writer]).await;
    stage.release(&writer, None).await;
    stage.assert_heard(&["1"]).await;
    stage.read(&late).await;
    assert!(stage.release_read(&late).await);
    stage.end().await;
}

#[tokio::test]
async fn unused_turn_ends_with_the_last_that_gives_up_or_after_a_second() {
    let mut stage = Stage::read_write("rw:unused").await;
    let (writer, reader, dies) = (id(2, 1), id(3, 1), id(4, 1));
    for gives_up in [true, false] {
        let holder = id(1, 1);
        stage.take(&holder).await;
        stage.wait(&writer, 9).await;
        stage.listen(&writer).await;
        stage.wait_to_read(&reader, 0).await;
        stage.wait_to_read(&dies, 0).await;
        stage.release(&holder, None).await;
        stage.assert_heard(&["1"]).await;
        assert!(!stage.release_read(&reader).await);
        stage.assert_heard(&[]).await;
        if gives_up {
            assert!(!stage.release_read(&dies).await);
        } else {
            let left = stage.wait(&writer, 9).await;
            assert!(left <= SECOND, "{left:?}");
            assert!(left > Duration::ZERO, "the turn is over before a second is");
            // Whichever asks, it is the first writer's. The server counts by a clock of its own, so that the
            // question may come a millisecond early.
            let mut told = left;
            while told <= SECOND {
                tokio::time::sleep(told).await;
                told = stage.wait(&id(5, 1), 0).await;
            }
            stage.release(&id(5, 1), None).await;
        }
        stage.assert_granted(&[&writer]).await;
        stage.release(&writer, None).await;
        let _ = stage.heard().await;
    }
    stage.end().await;
}

/// Readers would come before writers, and those that died before their turn would have it, until the clock is
/// where it was.
#[tokio::test]
async fn turn_of_readers_is_over_when_the_clock_of_the_server_is_set_back() {
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
    // It comes after the writer, which is granted the lock.
    stage.wait_to_read(&late, 0).await;
    stage.assert_granted(&[&writer]).await;
    stage.release(&writer, None).await;
    stage.assert_heard(&["1"]).await;
    stage.read(&late).await;
    assert!(stage.release_read(&late).await);
    stage.assert_heard(&["0"]).await;
    stage.end().await;
}

#[tokio::test]
async fn writer_that_gives_up_tells_the_readers_that_it_has_kept_waiting() {
    let mut stage = Stage::read_write("rw:givesup").await;
    let [holder, waits, second] = [1, 2, 3].map(|client| id(client, 1));
    let [first_writer, second_writer] = [4, 5].map(|client| id(client, 1));
    stage.read(&holder).await;
    for (writer, steps) in [(&first_writer, 9), (&second_writer, 3)] {
        stage.wait(writer, steps).await;
        stage.listen(writer).await;
    }
    // Between the two, and behind both.
    stage.wait_to_read(&waits, 5).await;
    stage.wait_to_read(&second, 0).await;
    stage.release(&first_writer, None).await;
    stage.assert_heard(&["1"]).await;
    assert_eq!(stage.reader_waits(&waits, Some(position(5))).await, None);
    stage.wait_to_read(&second, 0).await;
    stage.release(&second_writer, None).await;
    stage.assert_heard(&["1"]).await;
    stage.read(&second).await;
    for reader in [&holder, &waits, &second] {
        assert!(stage.release_read(reader).await);
    }
    stage.assert_heard(&["0"]).await;
    stage.end().await;
}

#[tokio::test]
async fn readers_beside_a_writer_read_on_and_let_others_in_when_it_leaves() {
    let mut stage = Stage::read_write("rw:downgrade").await;
    let (writer, reader, waits, other) = (id(1, 1), id(1, 2), id(2, 1), id(3, 1));
    stage.take(&writer).await;
    stage.read_beside(&reader, &writer).await;
    stage.wait(&waits, 9).await;
    stage.listen(&waits).await;
    stage.wait_to_read(&other, 0).await;
    stage.assert_heard(&[]).await;
    let released = stage.release(&writer, Some(&next(&id(1, 3), 10, 0))).await;
    assert_eq!(released, RELEASED);
    stage.assert_heard(&["1"]).await;
    stage.assert_fields(&[format!("{reader}=1"), "mode=read".to_owned()]).await;
    stage.assert_lasts("{}", LEASE).await;
    // Run twice.
    let released = stage.release(&writer, Some(&next(&id(1, 3), 10, 0))).await;
    assert_eq!(released, RELEASED);
    stage.read(&other).await;
    assert!(stage.release_read(&reader).await && stage.release_read(&other).await);
    stage.assert_granted(&[&waits]).await;
    stage.release(&waits, None).await;
    stage.release(&id(1, 3), None).await;
    stage.assert_heard(&["1"]).await;
    stage.end().await;
}

/// Every 32nd release that would pass the lock on: Redisson's clients are told of none of the others as long
/// as ours wait. The releases of another name, which is free after each, count for that one alone.
#[tokio::test]
async fn every_32nd_release_of_a_name_leaves_it_to_others_and_no_waiter_of_ours_is_overtaken() {
    let mut stage = Stage::read_write("rw:strangers:write").await;
    let quiet = LockName::new("rw:strangers:quiet").unwrap();
    let mut holder = id(1, 1);
    stage.take(&holder).await;
    let mut left_to_strangers = 0;
    for number in 2..=66 {
        let alone = id(10, number);
        let alone_at = stage.redis.acquire(Mode::Write, &quiet, &stage.redis.request(&alone, LEASE)).await;
        assert_eq!(left(alone_at.unwrap()), None, "it is free");
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
                // Whichever of ours asks, the first gets it.
                stage.wait(&later, 0).await;
                stage.assert_granted(&[&waits]).await;
            }
            heard => assert_eq!(heard, [waits.to_string()]),
        }
        let granted = stage.ask(&waits, Some(position(5))).await.unwrap();
        assert_eq!(left(granted), None, "it was granted");
        stage.redis.roll_back(Mode::Write, &stage.name, &later).await.unwrap();
        holder = waits;
    }
    assert_eq!(left_to_strangers, 2, "of 65 releases");
    stage.release(&holder, None).await;
    stage.end().await;
}

#[tokio::test]
async fn forced_unlock_that_lets_readers_in_takes_out_positions_that_are_over() {
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
        assert_eq!(stage.keys().await, [""; 0], "after a writer: {writes}");
    }
    stage.end().await;
}

/// It is no longer waited for: a writer would wait for the rest of the turn.
#[tokio::test]
async fn reader_that_came_in_its_turn_and_died_leaves_the_lock_to_the_writer_at_once() {
    let mut stage = Stage::read_write("rw:came").await;
    let (holder, writer, reader) = (id(1, 1), id(2, 1), id(3, 1));
    stage.take(&holder).await;
    stage.wait(&writer, 9).await;
    stage.listen(&writer).await;
    stage.wait_to_read(&reader, 0).await;
    assert_eq!(stage.release(&holder, None).await, RELEASED);
    stage.read(&reader).await;
    let () = stage.run(&format!("DEL {}", lease_key(&reader.to_string(), 1))).await;
    stage.take(&writer).await;
    stage.release(&writer, None).await;
    stage.end().await;
}

/// They died, or were cut off. As long as one waits that lives, the key has no end.
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
    // Besides the last one that came, behind which no other stands.
    assert_eq!(stage.run::<usize>("ZCARD {}:latchwork:{{}}:rw_readers").await, 2);
    assert!(!stage.release_read(&patient).await && !stage.release_read(&id(3, 20)).await);
    stage.release(&holder, None).await;
    stage.end().await;
}

//! Locks without an end (`PERSIST`): only a release shortens a lease, and an endless lease is the longest.

use std::time::Duration;

use latchwork::backend::{Backend as _, Mode, ReleaseOutcome};
use latchwork_conformance::commands::{Commands as _, left};

use super::stage::{KEPT, LEASE, MILLISECOND, Stage, id, lease_key, next, position};

/// A time to live so short that a renewal only checks the lease.
const QUESTION: Duration = Duration::from_millis(1);

impl Stage {
    async fn assert_endless(&mut self, key: &str) {
        assert_eq!(self.run::<i64>(&format!("PTTL {key}")).await, -1, "{key}");
    }
}

#[tokio::test]
async fn lock_without_an_end_has_none_until_it_is_released() {
    let (holder, waiter, gone) = (id(1, 1), id(2, 1), id(1, 2));
    for mode in [Mode::Plain, Mode::Fair, Mode::Write] {
        let mut stage = match mode {
            Mode::Write => Stage::read_write("endless:write").await,
            _ => Stage::fair(&format!("endless:{mode:?}")).await,
        };
        let request = stage.redis.request(&holder, LEASE);
        let take = async |stage: &Stage| {
            assert_eq!(left(stage.redis.acquire(mode, &stage.name, &request).await.unwrap()), None);
        };
        take(&stage).await;
        let () = stage.run("PERSIST {}").await;
        take(&stage).await;
        stage.assert_endless("{}").await;
        stage.renew(mode, &holder, QUESTION).await;
        stage.assert_endless("{}").await;
        stage.renew(mode, &holder, LEASE).await;
        stage.assert_endless("{}").await;
        let other = stage.redis.request(&waiter, LEASE);
        let told = left(stage.redis.acquire(mode, &stage.name, &other).await.unwrap());
        assert_eq!(told, Some(Duration::MAX));
        if mode != Mode::Plain {
            // The release that granted the lock to its holder, once more.
            let again = stage.release(&gone, Some(&next(&holder, 0, 0))).await;
            assert_eq!(again, ReleaseOutcome::GrantedToNext { last_token: 0 });
            stage.assert_endless("{}").await;
        }
        let released = stage.redis.release(mode, &stage.name, &holder, None).await.unwrap();
        assert_ne!(released, ReleaseOutcome::NotHeld);
        stage.end().await;
    }
}

#[tokio::test]
async fn reader_without_an_end_has_none_until_it_leaves() {
    let mut stage = Stage::read_write("endless:read").await;
    let (reader, other, writer) = (id(1, 1), id(2, 1), id(3, 1));
    stage.read(&reader).await;
    let lease = lease_key(&reader.to_string(), 1);
    let () = stage.run(&format!("PERSIST {lease}")).await;
    let () = stage.run("PERSIST {}").await;
    stage.read(&reader).await;
    stage.renew(Mode::Read, &reader, QUESTION).await;
    stage.renew(Mode::Read, &reader, LEASE).await;
    stage.read(&other).await;
    assert!(stage.release_read(&other).await);
    assert!(stage.wait(&writer, 0).await > KEPT);
    stage.listen(&writer).await;
    // A current reader does not wait behind the writer.
    assert_eq!(stage.reader_waits(&reader, None).await, None);
    stage.assert_endless(&lease).await;
    stage.assert_endless("{}").await;
    assert!(stage.release_read(&reader).await);
    stage.assert_granted(&[&writer]).await;
    stage.assert_lasts("{}", KEPT).await;
    assert_eq!(stage.keys().await, ["endless:read"]);
    stage.release(&writer, None).await;
    // The others read on for as long as their own leases last.
    stage.read_for(&reader, LEASE * 9).await;
    stage.read_for(&other, LEASE).await;
    let () = stage.run(&format!("PERSIST {lease}")).await;
    assert!(stage.release_read(&reader).await);
    stage.assert_lasts("{}", LEASE).await;
    assert!(stage.release_read(&other).await);
    stage.end().await;
}

/// The leases of its readers keep their ends.
#[tokio::test]
async fn lock_that_lost_its_end_stays_endless_until_the_last_release() {
    let mut stage = Stage::read_write("endless:lock").await;
    let readers = [id(1, 1), id(2, 1)];
    for reader in &readers {
        stage.read(reader).await;
    }
    let () = stage.run("PERSIST {}").await;
    assert!(stage.release_read(&readers[0]).await);
    stage.assert_endless("{}").await;
    assert!(stage.release_read(&readers[1]).await);
    // A writer beside its own reader: the field holds the end of the write lease.
    let (writer, reader) = (id(1, 2), id(1, 3));
    stage.take(&writer).await;
    stage.read_beside(&reader, &writer).await;
    let () = stage.run("PERSIST {}").await;
    assert!(stage.release_read(&reader).await);
    stage.assert_endless("{}").await;
    stage.release(&writer, None).await;
    stage.end().await;
}

/// The read lease would be the shorter one.
#[tokio::test]
async fn writer_without_an_end_has_none_beside_a_reader() {
    let mut stage = Stage::read_write("endless:beside").await;
    let (writer, reader, other) = (id(1, 1), id(1, 2), id(2, 1));
    stage.take(&writer).await;
    let () = stage.run("PERSIST {}").await;
    let brief = stage.redis.request(&reader, LEASE / 9).under(writer.clone());
    assert_eq!(left(stage.ask_to_read(&brief).await.unwrap()), None);
    stage.take(&writer).await;
    stage.renew(Mode::Write, &writer, LEASE).await;
    stage.assert_endless("{}").await;
    assert_eq!(stage.writer().await.expect("the writer has the lock").id.as_ref(), Some(&writer));
    // As with Redisson's writers, the end is unknown, so waiters ask each second.
    assert_eq!(stage.wait(&other, 0).await, Duration::from_secs(1));
    // When the writer leaves, the lock lasts as long as the reader.
    stage.release(&writer, None).await;
    stage.assert_lasts("{}", LEASE / 9).await;
    assert!(stage.release_read(&reader).await);
    assert_eq!(left(stage.ask(&other, Some(position(1))).await.unwrap()), None);
    stage.release(&other, None).await;
    stage.end().await;
}

/// The lock also outlasts a write lease longer than its own life.
#[tokio::test]
async fn lock_lasts_as_long_as_its_writer_beside_an_endless_reader() {
    let mut stage = Stage::read_write("endless:longer").await;
    let (writer, reader) = (id(1, 1), id(1, 2));
    stage.take(&writer).await;
    stage.read_beside(&reader, &writer).await;
    let () = stage.run(&format!("PERSIST {}", lease_key(&reader.to_string(), 1))).await;
    let longer = stage.redis.request(&writer, LEASE * 4);
    assert_eq!(left(stage.redis.acquire(Mode::Write, &stage.name, &longer).await.unwrap()), None);
    stage.assert_lasts("{}", LEASE * 4 + MILLISECOND).await;
    stage.release(&writer, None).await;
    assert!(stage.release_read(&reader).await);
    stage.end().await;
}

/// A reader with more leases than a call looks at: the longest lease is unknown.
#[tokio::test]
async fn endless_lock_with_unknown_readers_outlives_its_writer() {
    let mut stage = Stage::read_write("endless:many").await;
    let (writer, reader) = (id(1, 1), id(1, 2));
    stage.take(&writer).await;
    stage.read_beside(&reader, &writer).await;
    let () = stage.run(&format!("HSET {{}} {reader} 500")).await;
    let () = stage.run("PERSIST {}").await;
    stage.release(&writer, None).await;
    stage.assert_endless("{}").await;
    assert!(stage.force_release().await);
    stage.end().await;
}

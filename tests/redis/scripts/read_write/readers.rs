//! Readers of a lock, and the effects of arriving and leaving readers on others.

use latchwork::backend::{Backend as _, Mode};

use super::super::stage::{LEASE, Stage, id, lease_key};
use latchwork_conformance::commands::{RELEASED, keys};

/// The lock was evicted, or freed by force among more readers than the script looked at.
#[tokio::test]
async fn reader_of_a_vanished_lock_holds_nothing_despite_its_lease() {
    let mut stage = Stage::read_write("rw:gone").await;
    let (reader, writer) = (id(1, 1), id(2, 1));
    stage.read(&reader).await;
    let () = stage.run("DEL {}").await;
    let lease = lease_key(&reader.to_string(), 1);
    let renewed = stage.redis.renew(Mode::Read, &keys(&stage.name, &[&reader]), LEASE * 2).await.unwrap();
    assert_eq!(renewed, [false]);
    stage.assert_lasts(&lease, LEASE).await;
    stage.take(&writer).await;
    assert!(stage.reader_waits(&reader, None).await.is_some(), "expected the reader to wait for the writer");
    assert!(!stage.release_read(&reader).await, "expected NotHeld for the reader of the vanished lock");
    stage.release(&writer, None).await;
    stage.end().await;
}

/// For example one that died with a long lease.
#[tokio::test]
async fn lock_that_waits_for_readers_lasts_no_longer_than_their_turn() {
    let mut stage = Stage::read_write("rw:vacant").await;
    let (writer, comes, stays_away) = (id(1, 1), id(2, 1), id(3, 1));
    stage.take(&writer).await;
    stage.wait_to_read(&comes, 0).await;
    stage.wait_to_read(&stays_away, 0).await;
    assert_eq!(stage.release(&writer, None).await, RELEASED);
    stage.read(&comes).await;
    let () = stage.run("PEXPIRE {} 6000000").await;
    assert!(stage.release_read(&comes).await);
    let lasts: i64 = stage.run("PTTL {}").await;
    assert!(lasts <= 1000, "{lasts}");
    stage.release_read(&stays_away).await;
    stage.end().await;
}

#[tokio::test]
async fn readers_that_come_or_leave_remove_expired_positions() {
    let mut stage = Stage::read_write("rw:over:positions").await;
    let (reader, second, over) = (id(1, 1), id(2, 1), id(3, 1));
    stage.listen(&over).await;
    stage.read(&reader).await;
    stage.wait(&over, 0).await;
    stage.end_position(&over).await;
    stage.read(&second).await;
    stage.assert_queue(&[]).await;
    stage.wait(&over, 0).await;
    stage.end_position(&over).await;
    // The lock is gone, so leaving readers free nothing and publish nothing.
    let () = stage.run("DEL {}").await;
    for id in [&reader, &second] {
        assert!(!stage.release_read(id).await);
    }
    stage.assert_heard(&[]).await;
    stage.end().await;
}

/// `turns` has the same test for releases to write.
#[tokio::test]
async fn every_32nd_release_of_readers_leaves_the_lock_to_others() {
    let mut stage = Stage::read_write("rw:strangers:read").await;
    let [stays, comes, writer, second] = [1, 2, 3, 4].map(|client| id(client, 1));
    // A reader stays during these releases, so none of them frees the lock.
    let releases = async |stage: &mut Stage| {
        stage.read(&stays).await;
        for _ in 0..31 {
            stage.read(&comes).await;
            assert!(stage.release_read(&comes).await);
        }
        stage.wait(&writer, 5).await;
        stage.listen(&writer).await;
    };
    releases(&mut stage).await;
    assert!(stage.release_read(&stays).await);
    stage.assert_heard(&["0"]).await;
    assert_eq!(stage.run::<usize>("EXISTS {}").await, 0);
    // Others had their chance with the last release, so the next one grants the lock again.
    stage.take(&writer).await;
    stage.wait(&second, 0).await;
    stage.listen(&second).await;
    assert_eq!(stage.release(&writer, None).await, RELEASED);
    stage.assert_granted(&[&second]).await;
    stage.release(&second, None).await;
    let _ = stage.heard().await;
    // A release without a read frees nothing, and the free lock goes to the writer.
    releases(&mut stage).await;
    let () = stage.run("DEL {}").await;
    assert!(!stage.release_read(&comes).await);
    stage.assert_granted(&[&writer]).await;
    stage.release(&writer, None).await;
    stage.release_read(&stays).await;
    stage.end().await;
}

//! Redisson's read-write locks on the same name, and other kinds of locks.

use std::time::Duration;

use latchwork::LockKind;
use latchwork::backend::{Backend as _, Mode, ReleaseOutcome};
use latchwork::redis::{Error, ErrorKind};

use super::super::stage::{KEPT, LEASE, Stage, id, lease_key, position};
use latchwork_conformance::commands::left;

const THEM: &str = "99999999-0795-4907-87fd-6c719a6b4586:7";

#[track_caller]
fn assert_other_kind<T: std::fmt::Debug>(answer: Result<T, Error>, expected: LockKind) {
    assert_eq!(answer.unwrap_err().kind(), ErrorKind::OtherKind(expected));
}

#[tokio::test]
async fn other_kind_of_lock_is_left_alone() {
    let holder = id(1, 1);
    for (mode, kind) in [
        ("lock", LockKind::Plain),
        ("fair", LockKind::Fair),
        ("none", LockKind::Plain),
        ("new", LockKind::Unknown),
    ] {
        let mut stage = Stage::read_write(&format!("rw:on:{mode}")).await;
        let mode = if mode == "none" { String::new() } else { format!("mode {mode} ") };
        stage.put(&format!("{mode}{holder} 1")).await;
        for wants in [&id(2, 1), &holder] {
            for position in [None, Some(position(0))] {
                assert_other_kind(stage.ask(wants, position).await, kind);
                assert_other_kind(stage.ask_beside(wants, &holder, position).await, kind);
            }
            assert_eq!(stage.release(wants, None).await, ReleaseOutcome::NotHeld);
            assert!(!stage.release_read(wants).await);
        }
        assert_other_kind(stage.redis.force_release(Mode::Write, &stage.name).await, kind);
        for side in [Mode::Write, Mode::Read] {
            assert_other_kind(stage.redis.holders(side, &stage.name).await, kind);
        }
        assert_eq!(stage.keys().await, [stage.name.to_string()]);
        stage.assert_lasts("{}", LEASE).await;
        stage.assert_heard(&[]).await;
        let () = stage.run("DEL {}").await;
        stage.end().await;
    }
}

/// Each hold has its own lease, and the longest counts.
#[tokio::test]
async fn redissons_reader_reads_until_the_last_of_its_leases_is_over() {
    let mut stage = Stage::read_write("rw:theirs").await;
    let (ours, writer) = (id(1, 1), id(2, 1));
    let () = stage.run(&format!("HSET {{}} mode read {THEM} 3")).await;
    let () = stage.run(&format!("SET {} 1 PX 900000", lease_key(THEM, 2))).await;
    let () = stage.run(&format!("SET {} 1 PX 100000", lease_key(THEM, 3))).await;
    let () = stage.run("PEXPIRE {} 900000").await;
    let readers = stage.readers().await;
    assert_eq!(readers[0].id.as_ref().map(ToString::to_string).as_deref(), Some(THEM));
    assert!(readers[0].left > LEASE && stage.writer().await.is_none());
    stage.read(&ours).await;
    stage.assert_lasts("{}", Duration::from_secs(900)).await;
    stage.wait(&writer, 0).await;
    stage.listen(&writer).await;
    assert!(stage.release_read(&ours).await);
    stage.assert_lasts("{}", Duration::from_secs(900)).await;
    let () = stage.run(&format!("DEL {}", lease_key(THEM, 2))).await;
    stage.wait(&writer, 0).await;
    let () = stage.run(&format!("DEL {}", lease_key(THEM, 3))).await;
    let taken = stage.ask(&writer, Some(position(0))).await.unwrap();
    assert_eq!(left(taken), None);
    stage.assert_fields(&[format!("{writer}:write=1"), "mode=write".to_owned()]).await;
    stage.release(&writer, None).await;
    stage.assert_heard(&["1"]).await;
    stage.end().await;
}

/// The unexpired lease may be outside the batch of a script.
#[tokio::test]
async fn lock_lasts_for_a_redisson_reader_with_uncounted_holds() {
    let mut stage = Stage::read_write("rw:often").await;
    let ours = id(1, 1);
    let () = stage.run(&format!("HSET {{}} mode read {THEM} 150")).await;
    let () = stage.run("PEXPIRE {} 500000").await;
    stage.lease(THEM, Duration::from_secs(100)).await;
    let () = stage.run(&format!("SET {} 1 PX 500000", lease_key(THEM, 150))).await;
    stage.read(&ours).await;
    assert!(stage.release_read(&ours).await);
    let lasts: u64 = stage.run("PTTL {}").await;
    assert!(lasts > 300_000, "expected the lock to last for its longest lease, and it ends in {lasts} ms");
    // No release makes the lock shorter than a lease within the batch.
    stage.lease(THEM, Duration::from_secs(900)).await;
    let () = stage.run("PEXPIRE {} 30000").await;
    stage.read(&ours).await;
    let () = stage.run("PEXPIRE {} 30000").await;
    assert!(stage.release_read(&ours).await);
    stage.assert_lasts("{}", Duration::from_secs(900)).await;
    assert!(stage.force_release().await);
    let () = stage.run(&format!("DEL {}", lease_key(THEM, 150))).await;
    stage.end().await;
}

/// A writer may continue as a reader without a message to waiters.
#[tokio::test]
async fn redissons_writer_that_reads_as_well_is_looked_at_each_second() {
    let mut stage = Stage::read_write("rw:silent").await;
    let (writer, reader) = (id(1, 1), id(2, 1));
    stage.put(&format!("mode write {THEM}:write 2")).await;
    assert!(stage.wait(&writer, 0).await > KEPT);
    assert_eq!(stage.writer().await.unwrap().id.unwrap().to_string(), THEM);
    let () = stage.run(&format!("HSET {{}} {THEM} 1")).await;
    stage.lease(THEM, Duration::from_secs(300)).await;
    assert_eq!(stage.wait(&writer, 0).await, Duration::from_secs(1));
    assert_eq!(stage.wait_to_read(&reader, 9).await, Duration::from_secs(1));
    // A lock without an end is also asked about each second.
    let () = stage.run("PERSIST {}").await;
    assert_eq!(stage.wait(&writer, 0).await, Duration::from_secs(1));
    // A lock that ends sooner is asked about at its end.
    let () = stage.run("PEXPIRE {} 900").await;
    assert!(stage.wait(&writer, 0).await <= Duration::from_millis(900));
    stage.put(&format!("mode write {THEM}:write 2 {THEM} 1")).await;
    assert!(stage.writer().await.unwrap().left > LEASE / 2 && stage.readers().await.len() == 1);
    // The owner's read lease is over, and it writes on.
    let () = stage.run(&format!("DEL {}", lease_key(THEM, 1))).await;
    assert!(stage.wait(&writer, 0).await > KEPT);
    assert_eq!(stage.writer().await.unwrap().id.unwrap().to_string(), THEM);
    stage.lease(THEM, Duration::from_secs(300)).await;
    // The writer continued as a reader.
    let () = stage.run(&format!("HDEL {{}} {THEM}:write")).await;
    let () = stage.run("HSET {} mode read").await;
    assert_eq!(stage.reader_waits(&reader, Some(position(9))).await, None);
    assert!(stage.release_read(&reader).await);
    stage.assert_lasts("{}", LEASE / 2).await;
    // A force unlock grants the lock to our waiter.
    stage.listen(&writer).await;
    assert!(stage.force_release().await);
    stage.assert_granted(&[&writer]).await;
    assert_eq!(stage.keys().await, ["rw:silent"]);
    stage.release(&writer, None).await;
    stage.end().await;
}

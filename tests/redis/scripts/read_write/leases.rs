//! The keys and fields on the server, and their lives.

use std::time::Duration;

use latchwork::LeaseId;
use latchwork::backend::Mode;

use super::super::stage::{KEPT, LEASE, Stage, id, lease_key};
use latchwork_conformance::commands::{Commands as _, left};

#[tokio::test]
async fn lock_is_written_as_redisson_does() {
    let mut stage = Stage::read_write("rw:wire").await;
    let (writer, one, two) = (id(1, 1), id(2, 1), id(3, 1));
    stage.take(&writer).await;
    stage.assert_fields(&[format!("{writer}:write=1"), "mode=write".to_owned()]).await;
    stage.assert_lasts("{}", LEASE).await;
    assert_eq!(stage.keys().await, ["rw:wire"]);
    stage.release(&writer, None).await;
    stage.assert_heard(&["1"]).await;
    stage.read(&one).await;
    stage.read(&two).await;
    stage.assert_fields(&[format!("{one}=1"), format!("{two}=1"), "mode=read".to_owned()]).await;
    stage.assert_lasts(&lease_key(&one.to_string(), 1), LEASE).await;
    assert!(stage.release_read(&one).await);
    stage.assert_heard(&[]).await;
    assert!(stage.release_read(&two).await);
    stage.assert_heard(&["0"]).await;
    stage.end().await;
}

/// Such a writer came before its reader, if the reader was added by hand.
#[tokio::test]
async fn reader_leaving_a_writer_without_a_known_end_keeps_its_lease() {
    let mut stage = Stage::read_write("rw:by-hand").await;
    let (writer, reader) = (id(1, 1), id(2, 1));
    stage.take(&writer).await;
    let () = stage.run(&format!("HSET {{}} {reader} 1")).await;
    stage.lease(&reader.to_string(), LEASE).await;
    assert!(stage.release_read(&reader).await);
    stage.assert_lasts("{}", LEASE).await;
    stage.release(&writer, None).await;
    stage.end().await;
}

/// A script looks at a part of these readers, and not at the same part each time.
#[tokio::test]
async fn lock_of_many_readers_lasts_as_long_as_leases_no_release_read() {
    let mut stage = Stage::read_write("rw:crowd:leases").await;
    let read = async |stage: &Stage, id: &LeaseId, times| {
        let request = stage.redis.request(id, LEASE * times);
        assert_eq!(left(stage.ask_to_read(&request).await.unwrap()), None);
    };
    for number in 1..=500 {
        read(&stage, &id(1, number), 1).await;
    }
    read(&stage, &id(2, 1), 5).await;
    for number in 1..=20 {
        read(&stage, &id(3, number), 9).await;
        assert!(stage.release_read(&id(3, number)).await);
        let lasts: u64 = stage.run("PTTL {}").await;
        assert!(Duration::from_millis(lasts) > LEASE * 4, "it ends in {lasts} ms");
    }
    assert!(stage.force_release().await);
}

/// With a reader the write lease ends by the writer's field, and no earlier than the key would have.
#[tokio::test]
async fn reader_joining_a_writer_shortens_the_write_lease_by_nothing() {
    let mut stage = Stage::read_write("rw:last:ms").await;
    let (writer, reader) = (id(1, 1), id(1, 2));
    stage.take(&writer).await;
    let last = stage.millis().await + 300_000;
    let () = stage.run(&format!("PEXPIREAT {{}} {last}")).await;
    stage.read_beside(&reader, &writer).await;
    let until = stage.writes_until(&writer).await;
    assert!(until >= (last + 1) * 1000 && until < (last + 3) * 1000, "{until} us for {last} ms");
    // A leaving reader does not shorten the lease.
    assert!(stage.release_read(&reader).await);
    let left: u64 = stage.run("PTTL {}").await;
    assert!(stage.millis().await + left >= last);
    // A renewal beside a reader lasts as long as a renewed key would.
    stage.read_beside(&reader, &writer).await;
    let begun = stage.millis().await;
    stage.renew(Mode::Write, &writer, LEASE).await;
    let until = stage.writes_until(&writer).await;
    assert!(until >= (begun + LEASE.as_secs() * 1000 + 1) * 1000, "{until} us after {begun} ms");
    assert!(stage.release_read(&reader).await);
    stage.release(&writer, None).await;
    stage.end().await;
}

/// A user's label ends a reader's id.
#[tokio::test]
async fn readers_label_is_not_taken_for_a_writer() {
    let mut stage = Stage::read_write("rw:label").await;
    let (writer, labelled) = (id(1, 1), format!("{}:write", id(2, 1)).parse().unwrap());
    stage.read(&labelled).await;
    assert!(stage.wait(&writer, 0).await > KEPT);
    assert_eq!((stage.writer().await, stage.readers().await[0].id.as_ref()), (None, Some(&labelled)));
    stage.listen(&writer).await;
    assert!(stage.release_read(&labelled).await);
    stage.assert_granted(&[&writer]).await;
    stage.read_beside(&labelled, &writer).await;
    assert_eq!(stage.writer().await.unwrap().id.as_ref(), Some(&writer));
    let () = stage.run(&format!("DEL {}", lease_key(&labelled.to_string(), 1))).await;
    assert_eq!(stage.writer().await.unwrap().id.as_ref(), Some(&writer));
    assert_eq!(stage.readers().await, []);
    stage.release(&writer, None).await;
    stage.end().await;
}

#[tokio::test]
async fn release_beside_an_expired_writer_leaves_a_read_lock() {
    let mut stage = Stage::read_write("rw:over:ends").await;
    let (writer, reads_on, reader) = (id(1, 1), id(1, 2), id(1, 3));
    stage.take(&writer).await;
    for id in [&reads_on, &reader] {
        let beside = stage.redis.request(id, LEASE).under(writer.clone());
        assert_eq!(left(stage.ask_to_read(&beside).await.unwrap()), None);
    }
    let () = stage.run(&format!("HSET {{}} {writer}:write until:1")).await;
    assert!(stage.release_read(&reader).await);
    stage.assert_fields(&[format!("{reads_on}=1"), "mode=read".to_owned()]).await;
    assert!(stage.release_read(&reads_on).await);
    stage.end().await;
}

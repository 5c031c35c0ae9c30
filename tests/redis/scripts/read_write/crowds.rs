//! Many readers, dead or alive: a script counts fields beyond its batch, too.

use std::collections::HashSet;

use latchwork::LeaseId;
use latchwork::backend::{Backend as _, Mode};
use latchwork_conformance::commands::did_read;

use super::super::stage::{LEASE, Stage, fields, id};

fn gone(many: u32) -> impl Iterator<Item = LeaseId> {
    (0..many).map(|client| id(0xdead_0000 + client, 1))
}

/// Adds `many` readers whose leases are over.
async fn dead_read(stage: &mut Stage, many: u32) {
    let () = stage.run(&format!("HSET {{}}{}", fields(gone(many), 1))).await;
}

async fn assert_reads_alone(stage: &mut Stage, reader: &LeaseId) {
    stage.assert_heard(&[]).await;
    assert_eq!(stage.writer().await, None);
    let readers = stage.readers().await;
    assert_eq!(readers.iter().map(|it| it.id.as_ref()).collect::<Vec<_>>(), [Some(reader)]);
}

#[tokio::test]
async fn reader_among_many_dead_ones_keeps_its_lock_from_a_writer() {
    let mut stage = Stage::read_write("rw:among:dead").await;
    let [reader, leaves, writer, late] = [1, 2, 3, 4].map(|client| id(client, 1));
    stage.read(&reader).await;
    stage.read(&leaves).await;
    stage.wait(&writer, 9).await;
    stage.listen(&writer).await;
    dead_read(&mut stage, 3000).await;
    assert!(stage.release_read(&leaves).await);
    assert_reads_alone(&mut stage, &reader).await;
    dead_read(&mut stage, 3000).await;
    assert!(stage.reader_waits(&late, None).await.is_some());
    assert_reads_alone(&mut stage, &reader).await;
    assert!(stage.release_read(&reader).await);
    stage.assert_granted(&[&writer]).await;
    stage.release(&writer, None).await;
    stage.end().await;
}

/// A list takes several commands; when a reader leaves in between, the others move up.
#[tokio::test]
async fn reader_that_stays_is_listed_whoever_leaves_meanwhile() {
    let stage = Stage::read_write("rw:list:leaving").await;
    for number in 1..=110 {
        stage.read(&id(1, number)).await;
    }
    let (redis, name) = (stage.redis.clone(), stage.name.clone());
    let leave = tokio::spawn(async move {
        for number in 1..=40 {
            assert!(did_read(redis.release(Mode::Read, &name, &id(1, number), None).await.unwrap()));
        }
    });
    while !leave.is_finished() {
        let listed: HashSet<_> =
            stage.readers().await.into_iter().map(|it| it.id.unwrap().number()).collect();
        let missing: Vec<_> = (41..=110).filter(|number| !listed.contains(number)).collect();
        assert!(missing.is_empty(), "{missing:?}");
    }
    leave.await.unwrap();
    assert!(stage.force_release().await);
}

/// A writer's field holds its number of holds, as a reader's field does.
#[tokio::test]
async fn writer_of_redisson_is_no_reader_however_often_it_reentered() {
    let mut stage = Stage::read_write("rw:entered").await;
    stage.put(&format!("mode write {}:write 1000", id(1, 1))).await;
    assert_eq!(stage.readers().await, []);
    let writer = stage.writer().await.unwrap();
    assert!(writer.id == Some(id(1, 1)) && writer.left <= LEASE);
    let () = stage.run("DEL {}").await;
    stage.end().await;
}

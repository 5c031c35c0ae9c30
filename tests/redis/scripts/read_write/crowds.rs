//! Many readers, dead or alive, and many waiting writers: a script counts fields beyond its batch, too.

use std::collections::HashSet;

use latchwork::LeaseId;
use latchwork::backend::{Backend as _, Mode};
use latchwork_conformance::commands::did_read;

use super::super::stage::{LEASE, Stage, fields, id, lease_key};

fn gone(many: u32) -> impl Iterator<Item = LeaseId> {
    (0..many).map(|client| id(0xdead_0000 + client, 1))
}

/// Adds `many` readers whose leases are over.
async fn dead_read(stage: &mut Stage, many: u32) {
    let () = stage.run(&format!("HSET {{}}{}", fields(gone(many), 1))).await;
}

/// Puts `many` writers of dead clients at the front of the queue.
async fn dead_wait(stage: &mut Stage, many: u32) {
    let (mut since, mut kept) = (Vec::new(), Vec::new());
    for (number, waiter) in gone(many).enumerate() {
        since.push(format!("{} {waiter}", number + 1));
        kept.push(format!("{waiter} 9000000000000000:0"));
    }
    let () = stage.run(&format!("ZADD {{}}:latchwork:{{{{}}}}:rw_queue {}", since.join(" "))).await;
    let () = stage.run(&format!("HSET {{}}:latchwork:{{{{}}}}:rw_positions {}", kept.join(" "))).await;
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

#[tokio::test]
async fn writer_behind_many_dead_readers_precedes_later_readers() {
    let mut stage = Stage::read_write("rw:behind:gone").await;
    let [reader, writer, late] = [1, 2, 3].map(|client| id(client, 1));
    stage.read(&reader).await;
    stage.wait(&writer, 0).await;
    stage.listen(&writer).await;
    dead_wait(&mut stage, 150).await;
    assert!(stage.reader_waits(&late, None).await.is_some());
    dead_wait(&mut stage, 150).await;
    assert!(stage.release_read(&reader).await);
    stage.assert_granted(&[&writer]).await;
    stage.release(&writer, None).await;
}

/// No writer arrives to remove them. A server stores a small hash differently from a large one.
#[tokio::test]
async fn arriving_readers_remove_many_dead_ones_among_live_readers() {
    for alive in [100, 300] {
        let mut stage = Stage::read_write(&format!("rw:crowd:{alive}")).await;
        // Two dead readers beside each live one. Written by hand, so no script has looked yet.
        let () = stage.run("HSET {} mode read").await;
        let () = stage.run("PEXPIRE {} 600000").await;
        for number in 1..=alive {
            let reader = id(1, number);
            let fields = format!("{reader} 1 {} 1 {} 1", id(8, number), id(9, number));
            let () = stage.run(&format!("HSET {{}} {fields}")).await;
            let () = stage.run(&format!("SET {} 1 PX 600000", lease_key(&reader.to_string(), 1))).await;
        }
        let fields: usize = stage.run("HLEN {}").await;
        // One arriving reader of 32 looks; the others do not.
        let mut comes = (1..2000).map(|number| id(2, number));
        let taken_out = loop {
            let comes = comes.next().expect("the dead stay");
            stage.read(&comes).await;
            let now: usize = stage.run("HLEN {}").await;
            assert_eq!(stage.run::<usize>(&format!("HEXISTS {{}} {comes}")).await, 1);
            assert!(stage.release_read(&comes).await);
            if now <= fields {
                break fields + 1 - now;
            }
        };
        assert!(taken_out > 10, "{taken_out} of {}", 2 * alive);
        assert_eq!(stage.readers().await.len() as u64, alive);
        assert!(stage.force_release().await);
    }
}

/// 60 readers fit into one page of the server, 300 take several.
#[tokio::test]
async fn each_reader_is_listed_once_however_many_read() {
    for many in [60, 300] {
        let mut stage = Stage::read_write(&format!("rw:list:{many}")).await;
        for number in 1..=many {
            stage.read(&id(1, number)).await;
        }
        let dead = [2, many].map(|number| lease_key(&id(1, number).to_string(), 1));
        let () = stage.run(&format!("DEL {}", dead.join(" "))).await;
        let mut readers: Vec<_> =
            stage.readers().await.into_iter().map(|it| it.id.unwrap().number()).collect();
        readers.sort_unstable();
        assert_eq!(readers, (1..many).filter(|number| *number != 2).collect::<Vec<_>>());
        assert!(stage.force_release().await);
    }
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

/// A newcomer with a long label makes the server reorder the readers.
#[tokio::test]
async fn live_reader_is_listed_while_the_server_reorders_readers() {
    for round in 0..8 {
        let stage = Stage::read_write(&format!("rw:list:anew:{round}")).await;
        for number in 1..=110 {
            stage.read(&id(1, number)).await;
        }
        let comes = format!("{}:{}", id(2, 1000), "l".repeat(40)).parse().unwrap();
        let (listed, _) = tokio::join!(stage.readers(), stage.read(&comes));
        let listed: HashSet<_> = listed.into_iter().map(|it| it.id.unwrap().number()).collect();
        let missing: Vec<_> = (1..=110).filter(|number| !listed.contains(number)).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(stage.force_release().await);
    }
}

/// A writer's field holds its number of holds, as a reader's field does.
#[tokio::test]
async fn writer_of_redisson_is_no_reader_however_often_it_reentered() {
    let mut stage = Stage::read_write("rw:entered").await;
    let () = stage.run(&format!("HSET {{}} mode write {}:write 1000", id(1, 1))).await;
    let () = stage.run("PEXPIRE {} 600000").await;
    assert_eq!(stage.readers().await, []);
    let writer = stage.writer().await.unwrap();
    assert!(writer.id == Some(id(1, 1)) && writer.left <= LEASE);
    let () = stage.run("DEL {}").await;
    stage.end().await;
}

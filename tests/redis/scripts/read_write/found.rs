//! The readers and the writer that a script finds in a lock, in any order and among many dead ones.

use std::time::Duration;

use latchwork::LeaseId;
use latchwork::backend::{Backend as _, Mode};
use latchwork_conformance::commands::{Commands as _, RELEASED, left};
use latchwork_testkit::RedisServer;

use super::super::stage::{KEPT, LEASE, Stage, fields, id, lease_key, position};

fn crowd(client: u32, count: u64) -> Vec<String> {
    (1..=count).map(|number| id(client, number).to_string()).collect()
}

/// Adds a label with the ending of a writer's field.
fn labelled_write(ids: &[String]) -> Vec<String> {
    ids.iter().map(|id| format!("{id}:write")).collect()
}

impl Stage {
    /// Adds readers in this order. They are dead until they have leases.
    async fn put_readers(&mut self, mode: &str, readers: &[String]) {
        self.put(&format!("mode {mode}{}", fields(readers, 1))).await;
    }

    /// Gives the readers leases without an end, so they read as long as the lock lasts.
    async fn revive(&mut self, readers: &[String]) {
        let leases: String = readers.iter().map(|it| format!(" {} 1", lease_key(it, 1))).collect();
        let () = self.run(&format!("MSET{leases}")).await;
    }

    /// Makes `id` a writer with readers beside it, for the time of `lease`.
    async fn writes(&mut self, id: &LeaseId, lease: Duration) {
        let (seconds, micros): (u64, u64) = self.run("TIME").await;
        let until = Duration::new(seconds, 0) + Duration::from_micros(micros) + lease;
        let () = self.run(&format!("HSET {{}} mode write {id}:write until:{}", until.as_micros())).await;
    }

    /// Asks to write, without a position.
    async fn tries_in_vain(&self, id: &LeaseId) {
        assert!(left(self.ask(id, None).await.unwrap()).is_some(), "expected {id} to be refused");
    }

    async fn has(&mut self, field: &str) -> bool {
        self.run(&format!("HEXISTS {{}} {field}")).await
    }

    async fn count(&mut self) -> usize {
        self.run("HLEN {}").await
    }

    async fn clear(&mut self) {
        let keys: Vec<String> = self.run("KEYS *{}*").await;
        if !keys.is_empty() {
            let () = self.run(&format!("DEL {}", keys.join(" "))).await;
        }
        let _ = self.heard().await;
    }
}

#[tokio::test]
async fn fields_of_a_lock_stand_in_any_order() {
    let mut stage = Stage::read_write("rw:order").await;
    let (writer, reader, other) = (id(1, 1), id(1, 2), id(2, 1));
    stage.put(&format!("{reader} 1 mode read")).await;
    stage.lease(&reader.to_string(), LEASE).await;
    assert!(stage.wait(&other, 0).await > KEPT);
    assert_eq!(stage.readers().await[0].id.as_ref(), Some(&reader));
    // The writer's field stands behind its own reader's, and its lease may be shorter.
    stage.writes(&writer, LEASE / 2).await;
    let () = stage.run("HDEL {} mode").await;
    let () = stage.run("HSET {} mode write").await;
    let left = stage.wait(&other, 0).await;
    assert!(left <= LEASE / 2 && left > KEPT, "{left:?}");
    assert_eq!(stage.writer().await.unwrap().id.as_ref(), Some(&writer));
    stage.listen(&other).await;
    assert_eq!(stage.release(&writer, None).await, RELEASED);
    stage.assert_fields(&[format!("{reader}=1"), "mode=read".to_owned()]).await;
    assert!(stage.release_read(&reader).await);
    stage.assert_heard(&["1", &other.to_string()]).await;
    stage.release(&other, None).await;
    stage.end().await;
}

#[tokio::test]
async fn dead_readers_go_when_a_writer_asks_though_another_reads_on() {
    let mut stage = Stage::read_write("rw:buried").await;
    let (reads, writer) = (id(1, 1), id(2, 1));
    let mut dead = crowd(3, 3);
    dead.extend(labelled_write(&dead.clone()));
    stage.put_readers("read", &dead).await;
    stage.read(&reads).await;
    assert!(stage.wait(&writer, 0).await > KEPT);
    stage.assert_fields(&[format!("{reads}=1"), "mode=read".to_owned()]).await;
    // No dead reader counts as a writer either.
    assert!(stage.release_read(&reads).await);
    stage.put_readers("read", &dead).await;
    assert_eq!(stage.writer().await, None);
    stage.take(&writer).await;
    stage.assert_fields(&[format!("{writer}:write=1"), "mode=write".to_owned()]).await;
    stage.release(&writer, None).await;
    stage.end().await;
}

#[tokio::test]
async fn writer_beside_a_crowd_of_the_dead_writes_on_and_hands_on() {
    let mut stage = Stage::read_write("rw:found:beside").await;
    let (writer, next) = (id(1, 1), id(2, 1));
    stage.listen(&next).await;
    for (client, count) in (10..14).zip([150, 1500].into_iter().cycle()) {
        let dead = crowd(client, count);
        stage.put_readers("write", &dead).await;
        stage.writes(&writer, LEASE / 2).await;
        let holder = stage.writer().await.unwrap();
        assert_eq!(holder.id.as_ref(), Some(&writer));
        assert!(holder.left <= LEASE / 2 && holder.left > KEPT, "{:?}", holder.left);
        let left = stage.wait(&next, 0).await;
        assert!(left <= LEASE / 2 && left > KEPT, "{left:?}");
        assert!(stage.has(&format!("{writer}:write")).await);
        stage.put_readers("write", &dead).await;
        assert_eq!(stage.release(&writer, None).await, RELEASED);
        stage.assert_granted(&[&next]).await;
        stage.assert_fields(&[format!("{next}:write=1"), "mode=write".to_owned()]).await;
        stage.release(&next, None).await;
        let _ = stage.heard().await;
    }
    stage.end().await;
}

/// In write mode these dead look like other writers. They may keep a writer out, but not from asking.
#[tokio::test]
async fn writer_enqueues_behind_many_dead_readers_labelled_as_writers() {
    let mut stage = Stage::read_write("rw:found:labelled").await;
    let (writer, next) = (id(1, 1), id(2, 1));
    stage.put_readers("write", &labelled_write(&crowd(10, 150))).await;
    stage.writes(&writer, LEASE / 2).await;
    assert_eq!(stage.writer().await.unwrap().id.as_ref(), Some(&writer));
    assert!(stage.wait(&next, 0).await > KEPT);
    assert_eq!(stage.release(&writer, None).await, RELEASED);
    stage.take(&next).await;
    stage.assert_fields(&[format!("{next}:write=1"), "mode=write".to_owned()]).await;
    stage.release(&next, None).await;
    let _ = stage.heard().await;
    stage.end().await;
}

/// A remaining field would count as a writer's.
#[tokio::test]
async fn writer_leaves_a_crowd_of_readers_as_they_are() {
    let mut stage = Stage::read_write("rw:found:crowd").await;
    let writer = id(1, 1);
    let readers = crowd(1000, 3000);
    stage.put_readers("write", &readers).await;
    stage.revive(&readers).await;
    for number in 1..=8 {
        let one = id(2, number);
        stage.writes(&one, LEASE / 2).await;
        assert!(stage.wait(&id(3, 1), 0).await <= LEASE / 2);
        let () = stage.run(&format!("HDEL {{}} {one}:write")).await;
    }
    stage.writes(&writer, LEASE / 2).await;
    assert_eq!(stage.release(&writer, None).await, RELEASED);
    assert!(!stage.has(&format!("{writer}:write")).await);
    assert_eq!(stage.count().await, 3001, "expected the fields of 3000 readers and the mode");
    stage.assert_lasts("{}", LEASE).await;
    stage.clear().await;
    // One reader has a longer lease than the others, and a script does not always see it.
    let readers = crowd(2000, 400);
    stage.put_readers("write", &readers).await;
    for reader in &readers {
        stage.lease(reader, LEASE).await;
    }
    stage.lease(&readers[200], LEASE * 9).await;
    for _ in 0..8 {
        stage.writes(&writer, LEASE / 2).await;
        let () = stage.run(&format!("PEXPIRE {{}} {}", (LEASE * 9).as_millis())).await;
        assert_eq!(stage.release(&writer, None).await, RELEASED);
        stage.assert_lasts("{}", LEASE * 9).await;
    }
    stage.clear().await;
    stage.end().await;
}

/// During a snapshot the server keeps a large table for few fields, so its pages are almost empty.
#[tokio::test]
async fn fields_of_a_lock_that_lie_far_apart_are_all_found() {
    let server = RedisServer::start();
    let mut stage = Stage::on(&server, "sparse", Mode::Write).await;
    let () = stage.run("CONFIG SET rdb-key-save-delay 20000000").await;
    let (writer, other) = (id(1, 1), id(2, 1));
    let chaff = crowd(10, 5000);
    stage.put_readers("read", &chaff).await;
    let _: String = stage.run("BGSAVE").await;
    for some in chaff.chunks(1000) {
        let () = stage.run(&format!("HDEL {{}} {}", some.join(" "))).await;
    }
    let page: (u64, Vec<String>) = stage.run("HSCAN {} 0 COUNT 100").await;
    assert!(page.0 != 0 && page.1.len() <= 10, "expected a sparse table, and the server has shrunk it");
    for (client, count) in (20..60).zip([1, 8].into_iter().cycle()) {
        // Readers keep a writer out; with a writer whose lease is known, the readers beside it read on.
        let readers = crowd(client, count);
        stage.put_readers("read", &readers).await;
        stage.revive(&readers).await;
        stage.tries_in_vain(&other).await;
        let () = stage.run(&format!("HSET {{}} mode write {writer}:write until:9000000000000000")).await;
        stage.tries_in_vain(&other).await;
        assert_eq!(stage.release(&writer, None).await, RELEASED);
        stage.tries_in_vain(&other).await;
        // Delete by hand: the last release would delete the lock and its table.
        let () = stage.run(&format!("HDEL {{}} {}", readers.join(" "))).await;
        let leases: String = readers.iter().map(|reader| format!(" {}", lease_key(reader, 1))).collect();
        let () = stage.run(&format!("DEL{leases}")).await;
    }
    // A writer without readers frees the lock.
    let () = stage.run(&format!("HSET {{}} mode write {writer}:write 1")).await;
    assert_eq!(stage.release(&writer, None).await, RELEASED);
    stage.take(&other).await;
}

/// The time of a script's keys may be a millisecond behind the time of its fields.
#[tokio::test]
async fn lock_lasts_through_the_millisecond_that_its_writer_says() {
    let mut stage = Stage::read_write("rw:through").await;
    let (writer, reader) = (id(1, 1), id(1, 2));
    for reads_longer in [false, true] {
        stage.take(&writer).await;
        stage.read_beside(&reader, &writer).await;
        let reads = stage.redis.request(&reader, LEASE * 8).under(Some(writer.clone()));
        if reads_longer {
            assert_eq!(left(stage.redis.acquire(Mode::Read, &stage.name, &reads).await.unwrap()), None);
        }
        let longer = stage.redis.request(&writer, LEASE * 4);
        assert_eq!(left(stage.redis.acquire(Mode::Write, &stage.name, &longer).await.unwrap()), None);
        if reads_longer {
            assert!(stage.release_read(&reader).await);
        }
        let until = stage.writes_until(&writer).await;
        let ends: u64 = stage.run("PEXPIRETIME {}").await;
        assert!((until..=until + 100_000).contains(&(ends * 1000)), "{until} us, {ends} ms");
        stage.release(&writer, None).await;
        if !reads_longer {
            assert!(stage.release_read(&reader).await);
        }
    }
    stage.end().await;
}

/// Two readers have their turn before a writer, and one of them has already asked.
async fn in_turn(stage: &mut Stage, [holder, writer, came, late]: [&LeaseId; 4]) {
    stage.take(holder).await;
    stage.wait(writer, 9).await;
    stage.listen(writer).await;
    stage.wait_to_read(came, 0).await;
    stage.wait_to_read(late, 0).await;
    assert_eq!(stage.release(holder, None).await, RELEASED);
    stage.assert_heard(&["1"]).await;
    stage.read(came).await;
}

#[tokio::test]
async fn forced_unlock_removes_a_reader_while_another_may_come() {
    let mut stage = Stage::read_write("rw:inturn:forced").await;
    let [holder, writer, came, late] = [1, 2, 3, 4].map(|client| id(client, 1));
    in_turn(&mut stage, [&holder, &writer, &came, &late]).await;
    assert!(stage.force_release().await);
    stage.assert_granted(&[&writer]).await;
    assert_eq!(stage.readers().await, []);
    assert!(!stage.release_read(&late).await);
    stage.release(&writer, None).await;
    stage.end().await;
}

#[tokio::test]
async fn writer_asks_once_the_turn_of_dead_or_absent_readers_is_over() {
    const SECOND: Duration = Duration::from_secs(1);
    let mut stage = Stage::read_write("rw:inturn:dead").await;
    let [holder, writer, came, late] = [1, 2, 3, 4].map(|client| id(client, 1));
    in_turn(&mut stage, [&holder, &writer, &came, &late]).await;
    stage.assert_lasts("{}", LEASE).await;
    let () = stage.run(&format!("DEL {}", lease_key(&came.to_string(), 1))).await;
    assert!(left(stage.ask(&writer, Some(position(9))).await.unwrap()).is_none_or(|left| left <= SECOND));
    // Backdate the start of the turn by two seconds.
    let () = stage.run("ZINCRBY {}:latchwork:{{}}:rw_turn -2000000 phase").await;
    stage.take(&writer).await;
    stage.release(&writer, None).await;
    assert!(!stage.release_read(&late).await);
    let _ = stage.heard().await;
    stage.end().await;
}

/// All readers would ask in vain.
#[tokio::test]
async fn readers_kept_out_by_others_are_not_told_of_a_leaving_writer() {
    let mut stage = Stage::read_write("rw:vain").await;
    let [holder, first, second, reader] = [1, 2, 3, 4].map(|client| id(client, 1));
    for writer in [&first, &second] {
        stage.listen(writer).await;
    }
    // A writer holds the lock.
    stage.take(&holder).await;
    stage.wait(&first, 9).await;
    stage.wait_to_read(&reader, 0).await;
    stage.release(&first, None).await;
    stage.assert_heard(&[]).await;
    // The name became another kind of lock.
    stage.wait(&first, 9).await;
    let () = stage.run("DEL {}").await;
    stage.put(&format!("mode lock {holder} 1")).await;
    stage.release(&first, None).await;
    stage.assert_heard(&[]).await;
    let () = stage.run("DEL {}").await;
    assert!(!stage.release_read(&reader).await);
    // An earlier writer waits before both.
    stage.read(&holder).await;
    stage.wait(&first, 9).await;
    stage.wait(&second, 5).await;
    stage.wait_to_read(&reader, 0).await;
    stage.release(&second, None).await;
    stage.assert_heard(&[]).await;
    stage.release(&first, None).await;
    stage.assert_heard(&["1"]).await;
    assert!(!stage.release_read(&reader).await);
    assert!(stage.release_read(&holder).await);
    stage.end().await;
}

//! A running script blocks the server. So a script looks at a batch at most, however many clients wait, read,
//! or have died; the next call continues, and a live waiter behind the dead gets the lock.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use latchwork::LeaseId;
use latchwork::backend::{AcquireOutcome, Backend as _, LeaseKey, Mode, QueuePosition, ReleaseOutcome};
use latchwork_testkit::RedisServer;
use redis::{FromRedisValue, Value};

use super::stage::{self, KEPT, LEASE, fields, id, lease_key};
use latchwork_conformance::commands::{Commands as _, RELEASED};

const MANY: u32 = 5000;
/// Most commands per script: a renewal takes four for each of a hundred leases.
const COMMANDS: usize = 450;
/// Limit of the median script. (Any single script may have to wait for the processor.)
const TIME: Duration = Duration::from_millis(1);
/// Limit where there are too few scripts for a median: a fraction of the time for looking at all.
const TIME_OF_FEW: Duration = Duration::from_millis(10);

fn dead() -> impl Iterator<Item = LeaseId> {
    (1..=MANY).map(|client| id(0xdead_0000 + client, 1))
}

fn alive<const N: usize>() -> [LeaseId; N] {
    std::array::from_fn(|number| id(0xa11e_0001 + number as u32, 1))
}

fn position(waited: u64, kept: Duration) -> Option<QueuePosition> {
    Some(QueuePosition { waited: Duration::from_secs(waited), kept })
}

struct Stage {
    stage: stage::Stage,
    server: RedisServer,
    watch: Watch,
    /// Factor for a slow machine: stretches [`TIME`] to twice the time of [`COMMANDS`] plain commands.
    slowness: f64,
}

impl Deref for Stage {
    type Target = stage::Stage;

    fn deref(&self) -> &stage::Stage {
        &self.stage
    }
}

impl DerefMut for Stage {
    fn deref_mut(&mut self) -> &mut stage::Stage {
        &mut self.stage
    }
}

/// The measured quantity. One at a time, as MONITOR slows a server down.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watch {
    Commands,
    Time,
}

#[derive(Debug)]
struct Cost {
    /// Most commands sent by one script.
    commands: usize,
    /// The median time of a script.
    time: Duration,
    scripts: usize,
}

impl Stage {
    /// A stage whose waiters with positions are of this mode.
    async fn set(watch: Watch, mode: Mode) -> Self {
        let server = RedisServer::start();
        let stage = stage::Stage::on(&server, "bounds", mode).await;
        let mut stage = Self { stage, server, watch, slowness: 1.0 };
        let () = stage.run("CONFIG SET slowlog-log-slower-than 0").await;
        let () = stage.run("CONFIG SET slowlog-max-len 100000").await;
        if watch == Watch::Time {
            let plain = format!("for i = 1, {COMMANDS} do redis.call('zscore', KEYS[1], i) end");
            let plain = redis::cmd("EVAL").arg(&plain).arg(1).arg("none").clone();
            let runs = async |stage: &mut Self| {
                for _ in 0..25 {
                    let () = plain.query_async(&mut stage.raw).await.unwrap();
                }
            };
            let ((), cost) = stage.costs(runs).await;
            stage.slowness = (2 * cost.time).div_duration_f64(TIME).max(1.0);
        }
        stage
    }

    async fn costs<T>(&mut self, step: impl AsyncFnOnce(&mut Self) -> T) -> (T, Cost) {
        static FENCES: AtomicUsize = AtomicUsize::new(0);
        let mut monitor = TcpStream::connect(("127.0.0.1", self.server.port())).unwrap();
        let watches = self.watch == Watch::Commands;
        monitor.write_all(if watches { b"MONITOR\r\n" } else { b"PING\r\n" }).unwrap();
        let mut lines = BufReader::new(monitor).lines().map(Result::unwrap);
        lines.next().expect("the server answers");
        let () = self.run("SLOWLOG RESET").await;
        let outcome = step(self).await;
        let ran: Vec<Vec<Value>> = self.run("SLOWLOG GET -1").await;
        let mut most = 0;
        if watches {
            // Ordering: Relaxed, the numbers only have to differ.
            let fence = format!("fence-{}", FENCES.fetch_add(1, Ordering::Relaxed));
            let _: String = self.run(&format!("ECHO {fence}")).await;
            // Each script, followed by its commands.
            let mut sent = 0;
            for line in lines.take_while(|line| !line.contains(&fence)) {
                sent = if line.contains(" lua] ") { sent + 1 } else { 0 };
                most = most.max(sent);
            }
            assert!(most > 0, "expected commands from the scripts");
        }
        let mut times = Vec::new();
        for entry in ran {
            let words: Vec<String> = FromRedisValue::from_redis_value(entry[3].clone()).unwrap();
            if words[0].starts_with("EVAL") {
                let micros = FromRedisValue::from_redis_value(entry[2].clone()).unwrap();
                times.push(Duration::from_micros(micros));
            }
        }
        times.sort();
        let time = times[(times.len() - 1) / 2];
        (outcome, Cost { commands: most, time, scripts: times.len() })
    }

    /// As [`costs`](Self::costs), and asserts that each script is bounded.
    async fn bounded<T>(&mut self, what: &str, step: impl AsyncFnOnce(&mut Self) -> T) -> T {
        let (outcome, cost) = self.costs(step).await;
        println!("{what}: {cost:?}");
        assert!(cost.commands <= COMMANDS, "{what}: {cost:?}");
        // A server that waits for a core during a script counts the pause as well: the median of several
        // scripts is unaffected, but one or two scripts may be slow.
        let most = if cost.scripts < 5 { TIME_OF_FEW } else { TIME }.mul_f64(self.slowness);
        assert!(self.watch != Watch::Time || cost.time <= most, "{what}: {cost:?}, in {most:?}");
        outcome
    }

    /// Writes `count` dead readers, with `holds` holds each.
    async fn put_dead(&mut self, count: usize, holds: u32) {
        self.put(&format!("mode read{}", fields(dead().take(count), holds))).await;
    }

    /// True if another client has the lock, or comes before `id`.
    async fn refuses(&self, mode: Mode, id: &LeaseId, position: Option<QueuePosition>) -> bool {
        let request = self.redis.request(id, LEASE).position(position);
        let asked = self.redis.acquire(mode, &self.name, &request).await.unwrap();
        matches!(asked, AcquireOutcome::Held { .. })
    }

    async fn takes(&self, mode: Mode, id: &LeaseId) {
        assert!(!self.refuses(mode, id, None).await, "expected {mode} for {id}");
    }

    /// Asks as a waiter that has just come.
    async fn waits(&self, mode: Mode, id: &LeaseId) {
        assert!(self.refuses(mode, id, position(0, KEPT)).await, "expected {id} to wait to {mode}");
    }

    async fn gets(&self, mode: Mode, id: &LeaseId) {
        assert!(!self.refuses(mode, id, position(0, KEPT)).await, "expected {mode} for {id}");
    }

    /// True if a writer has to wait, and the cost of the attempt.
    async fn cost_of_asking(&mut self, writer: &LeaseId) -> (bool, Cost) {
        self.costs(async |stage| stage.refuses(Mode::Write, writer, position(0, KEPT)).await).await
    }

    /// Runs `ask` for all the dead, many at a time.
    async fn all_dead(&self, ask: impl AsyncFn(&LeaseId)) {
        stream::iter(dead()).map(async |id| ask(&id).await).buffer_unordered(100).collect::<()>().await;
    }

    /// The dead wait, each for longer than any live waiter.
    async fn dead_wait(&self, mode: Mode, kept: Duration) {
        self.all_dead(async |id| assert!(self.refuses(mode, id, position(60, kept)).await)).await;
    }

    async fn dead_read(&self) {
        self.all_dead(async |id| self.takes(Mode::Read, id).await).await;
    }

    /// Ends the leases of these readers; a field of the lock remains for each.
    async fn leases_end(&mut self, of: impl IntoIterator<Item = LeaseId>) {
        for id in of {
            let () = self.run(&format!("DEL {}", lease_key(&id.to_string(), 1))).await;
        }
    }

    /// Asserts that the last grant since the last look went to `id`.
    async fn assert_granted_last(&mut self, id: &LeaseId) {
        let heard = self.heard().await;
        assert_eq!(heard.iter().rfind(|said| said.contains(':')), Some(&id.to_string()), "{heard:?}");
    }

    async fn ends_reading(&self, id: &LeaseId) {
        assert!(self.release_read(id).await, "expected a read lease of {id}");
    }

    /// Forces the lock free by bounded scripts.
    async fn force(&mut self) {
        assert!(self.bounded("force", async |stage| stage.force_release().await).await);
    }

    /// The number of readers, dead or alive, plus one for the mode.
    async fn count(&mut self) -> u32 {
        self.run("HLEN {}").await
    }
}

/// The measured quantities. (No time on a shared processor: `verify lock-mutants` sets the variable.)
fn watches() -> Vec<Watch> {
    let untimed = std::env::var_os("LATCHWORK_UNTIMED").is_some();
    if untimed { vec![Watch::Commands] } else { vec![Watch::Commands, Watch::Time] }
}

/// The quantities, and the life of dead positions.
fn scenes() -> impl Iterator<Item = (Watch, Duration)> {
    let lives = [KEPT, Duration::from_millis(1)].into_iter();
    lives.flat_map(|kept| watches().into_iter().map(move |it| (it, kept)))
}

#[tokio::test]
async fn fair_lock_is_handed_off_past_dead_waiters_by_short_scripts() {
    for (watch, kept) in scenes() {
        let mut stage = Stage::set(watch, Mode::Fair).await;
        let [holder, waiter, other] = alive();
        stage.takes(Mode::Fair, &holder).await;
        // The queue lasts as long as its last position.
        stage.waits(Mode::Fair, &waiter).await;
        stage.dead_wait(Mode::Fair, kept).await;
        stage.listen(&waiter).await;
        stage.bounded("ask", async |stage| stage.waits(Mode::Fair, &waiter).await).await;
        let left = stage.bounded("leave the queue", async |stage| stage.release(&other, None).await).await;
        assert_eq!(left, ReleaseOutcome::NotHeld);
        let released = stage.bounded("release", async |stage| stage.release(&holder, None).await).await;
        assert_eq!(released, RELEASED);
        stage.assert_granted_last(&waiter).await;
        // No dead client is left to pass over.
        let (_, cost) = stage.costs(async |stage| stage.release(&waiter, None).await).await;
        assert_eq!(cost.scripts, 1, "{cost:?}");
        // A lock that expires or is freed by force.
        stage.takes(Mode::Fair, &holder).await;
        stage.dead_wait(Mode::Fair, kept).await;
        stage.waits(Mode::Fair, &waiter).await;
        let () = stage.run("DEL {}").await;
        // The waiter comes before any newcomer, though many dead stand before the waiter.
        let overtakes = async |stage: &mut Stage| stage.refuses(Mode::Fair, &other, None).await;
        assert!(stage.bounded("overtake", overtakes).await);
        stage.assert_granted_last(&waiter).await;
        stage.dead_wait(Mode::Fair, kept).await;
        let () = stage.run("DEL {}").await;
        stage.bounded("take", async |stage| stage.takes(Mode::Fair, &other).await).await;
        stage.dead_wait(Mode::Fair, kept).await;
        stage.waits(Mode::Fair, &waiter).await;
        stage.force().await;
        stage.assert_granted_last(&waiter).await;
        let holder = async |stage: &mut Stage| stage.redis.holder(Mode::Plain, &stage.name).await;
        stage.bounded("holder", holder).await.unwrap();
    }
}

#[tokio::test]
async fn waiter_taken_for_dead_regains_its_position_when_it_asks() {
    let mut stage = Stage::set(Watch::Time, Mode::Fair).await;
    let [holder, early, late, later] = alive();
    stage.takes(Mode::Fair, &holder).await;
    // The earliest waiter; its connection is down for a moment.
    assert!(stage.refuses(Mode::Fair, &early, position(90, KEPT)).await);
    stage.dead_wait(Mode::Fair, KEPT).await;
    stage.waits(Mode::Fair, &late).await;
    stage.listen(&late).await;
    stage.release(&holder, None).await;
    stage.assert_granted_last(&late).await;
    for (id, waited) in [(&early, 90), (&later, 80)] {
        stage.listen(id).await;
        assert!(stage.refuses(Mode::Fair, id, position(waited, KEPT)).await);
    }
    stage.release(&late, None).await;
    stage.assert_granted_last(&early).await;
}

#[tokio::test]
async fn write_lock_is_handed_off_past_dead_waiters_by_short_scripts() {
    for (watch, kept) in scenes() {
        let mut stage = Stage::set(watch, Mode::Write).await;
        let [holder, writer, reader, other] = alive();
        stage.listen(&writer).await;
        // A reader releases; dead writers stand before the next writer.
        stage.takes(Mode::Read, &holder).await;
        stage.waits(Mode::Write, &writer).await;
        stage.dead_wait(Mode::Write, kept).await;
        stage.bounded("release to read", async |stage| stage.ends_reading(&holder).await).await;
        stage.assert_granted_last(&writer).await;
        // A writer releases; dead readers wait as well.
        stage.dead_wait(Mode::Write, kept).await;
        stage.dead_wait(Mode::Read, KEPT).await;
        stage.bounded("ask to read", async |stage| stage.waits(Mode::Read, &reader).await).await;
        let released = stage.bounded("release to write", async |stage| stage.release(&writer, None).await);
        assert_eq!(released.await, RELEASED);
        stage.bounded("read in turn", async |stage| stage.gets(Mode::Read, &reader).await).await;
        // Another reader need not wait for a dead writer.
        stage.bounded("read", async |stage| stage.gets(Mode::Read, &other).await).await;
        stage.dead_wait(Mode::Write, kept).await;
        let gone = dead().next().unwrap();
        let gone = stage.bounded("leave", async |stage| stage.release(&gone, None).await).await;
        assert_eq!(gone, ReleaseOutcome::NotHeld);
        stage.force().await;
    }
}

#[tokio::test]
async fn dead_readers_beside_a_live_one_are_removed_by_short_scripts() {
    for watch in watches() {
        let mut stage = Stage::set(watch, Mode::Write).await;
        let [stays, writer] = alive();
        // Removed by writers that ask.
        stage.takes(Mode::Read, &stays).await;
        stage.dead_read().await;
        stage.leases_end(dead()).await;
        assert_eq!(stage.count().await, MANY + 2);
        let asks = async |stage: &mut Stage| {
            for _ in 0..20 {
                stage.waits(Mode::Write, &writer).await;
            }
        };
        stage.bounded("ask to write", asks).await;
        let readers = stage.bounded("holders", async |stage| stage.readers().await).await;
        assert_eq!(readers.len(), 1);
        let mut asked = 0;
        // Each attempt may look at one batch.
        while stage.count().await > 100 {
            stage.waits(Mode::Write, &writer).await;
            asked += 1;
            assert!(asked < 2000, "expected the removal of the dead readers within 2000 attempts");
        }
        stage.release(&writer, None).await;
        // Removed by readers that come and go.
        stage.dead_read().await;
        stage.leases_end(dead()).await;
        let mut number = 10;
        // The mode, and the reader that stays.
        while stage.count().await > 2 {
            number += 1;
            stage.takes(Mode::Read, &id(number, 1)).await;
            stage.ends_reading(&id(number, 1)).await;
            // Each leaving reader removes a batch; of the arriving readers, one in 32 does.
            assert!(number < 3000, "expected the removal of the dead readers");
        }
        // Removed by readers that come and stay.
        stage.dead_read().await;
        stage.leases_end(dead()).await;
        let come = async |stage: &mut Stage| {
            for number in 10_000..11_500 {
                stage.takes(Mode::Read, &id(number, 1)).await;
            }
        };
        stage.bounded("read", come).await;
        let count = stage.count().await;
        assert!(
            count < MANY + 1500 - 1000,
            "expected the removal of 1000 dead readers, and {count} are left"
        );
    }
}

#[tokio::test]
async fn lock_of_dead_readers_goes_to_the_writer_by_short_scripts() {
    let by = ["the last reader", "the writer itself", "force"];
    for (watch, by) in watches().into_iter().flat_map(|watch| by.map(|by| (watch, by))) {
        let mut stage = Stage::set(watch, Mode::Write).await;
        let [last, writer] = alive();
        stage.listen(&writer).await;
        stage.takes(Mode::Read, &last).await;
        stage.dead_read().await;
        stage.waits(Mode::Write, &writer).await;
        stage.leases_end(dead()).await;
        match by {
            "the last reader" => {
                stage.bounded(by, async |stage| stage.ends_reading(&last).await).await;
                stage.assert_granted_last(&writer).await;
            }
            "force" => {
                stage.force().await;
                // The lock was free for a moment, and all waiters were woken.
                stage.gets(Mode::Write, &writer).await;
            }
            _ => {
                stage.leases_end([last]).await;
                stage.bounded(by, async |stage| stage.gets(Mode::Write, &writer).await).await;
            }
        }
        assert_eq!(stage.writer().await.and_then(|writer| writer.id), Some(writer), "{by}");
        assert!(stage.readers().await.is_empty(), "{by}");
        assert_eq!(stage.count().await, 2, "{by}");
    }
}

#[tokio::test]
async fn lock_of_many_readers_lasts_until_the_last_by_short_scripts() {
    for watch in watches() {
        let mut stage = Stage::set(watch, Mode::Write).await;
        let [writer] = alive();
        stage.dead_read().await;
        let asks = async |stage: &mut Stage| {
            for _ in 0..20 {
                stage.waits(Mode::Write, &writer).await;
            }
        };
        stage.bounded("ask to write", asks).await;
        let readers = stage.bounded("holders", async |stage| stage.readers().await).await;
        assert_eq!(readers.len(), MANY as usize);
        assert!(readers.iter().all(|reader| reader.id.is_some() && reader.left > KEPT));
        let leases: Vec<_> = dead().take(100).map(|id| LeaseKey { name: stage.name.clone(), id }).collect();
        let renews = async |stage: &mut Stage| stage.redis.renew(Mode::Read, &leases, LEASE).await.unwrap();
        assert_eq!(stage.bounded("renew", renews).await, [true; 100]);
        // In the opposite order, so that each has the longest lease of the remaining ones.
        let mut all: Vec<_> = dead().collect();
        all.reverse();
        let last = all.pop().unwrap();
        let leave = async |stage: &mut Stage| {
            for id in &all {
                stage.ends_reading(id).await;
            }
        };
        stage.bounded("release to read", leave).await;
        stage.waits(Mode::Write, &writer).await;
        stage.ends_reading(&last).await;
        stage.gets(Mode::Write, &writer).await;
        stage.release(&writer, None).await;
        // A force unlock ends all reads, though a waiting writer could be granted the lock.
        stage.dead_read().await;
        stage.waits(Mode::Write, &writer).await;
        stage.listen(&writer).await;
        stage.force().await;
        stage.gets(Mode::Write, &writer).await;
        let renewed = renews(&mut stage).await;
        assert_eq!(renewed, [false; 100], "expected the loss of all remaining leases by the forced release");
        assert_eq!(stage.count().await, 2, "expected two fields: the writer's and the mode");
    }
}

/// The server's configuration sets how many fields it keeps and returns in one piece: by default, up to 512.
#[tokio::test]
async fn readers_of_one_page_are_told_from_the_dead_by_one_look_at_each() {
    let mut stage = Stage::set(Watch::Commands, Mode::Write).await;
    let () = stage.run("CONFIG SET hash-max-ziplist-entries 2000").await;
    let readers: Vec<LeaseId> = dead().take(600).collect();
    for id in &readers {
        stage.takes(Mode::Read, id).await;
    }
    stage.leases_end(readers[500..].iter().cloned()).await;
    let (found, cost) = stage.costs(async |stage| stage.readers().await).await;
    assert!(cost.commands <= readers.len() + 20, "{cost:?}");
    let found: Vec<_> = found.into_iter().filter_map(|reader| reader.id).collect();
    assert_eq!(found, readers[..500]);
}

/// One reader is enough to keep a writer out, and to let another reader leave.
#[tokio::test]
async fn few_readers_are_not_all_asked_for() {
    let mut stage = Stage::set(Watch::Commands, Mode::Write).await;
    let [writer] = alive();
    stage.put_dead(90, 1).await;
    for id in dead().take(90) {
        stage.lease(&id.to_string(), LEASE).await;
    }
    let (is_held, cost) = stage.cost_of_asking(&writer).await;
    assert!(is_held && cost.commands <= 20, "{cost:?}");
    for id in dead().take(10) {
        // This may be the longest lease, and the script compares the others with it.
        for key in ["{}".to_owned(), lease_key(&id.to_string(), 1)] {
            let () = stage.run(&format!("PEXPIRE {key} 500000")).await;
        }
        let ((), cost) = stage.costs(async |stage| stage.ends_reading(&id).await).await;
        assert!(cost.commands <= 20, "{cost:?}");
    }
}

/// The client calls the full script again only if its first call had no answer.
#[tokio::test]
async fn dead_that_are_few_are_passed_by_one_script() {
    let mut stage = Stage::set(Watch::Commands, Mode::Write).await;
    let [writer, reader] = alive();
    // From now on the server knows the scripts: that of first attempts, and the full one.
    for waited in [0, 1] {
        assert!(!stage.refuses(Mode::Write, &writer, position(waited, KEPT)).await);
    }
    stage.release(&writer, None).await;
    for reads in [true, false] {
        stage.put_dead(20, 1).await;
        if reads {
            stage.takes(Mode::Read, &reader).await;
        }
        let (is_held, cost) = stage.cost_of_asking(&writer).await;
        // The script of first attempts leaves the decision to the full script.
        assert_eq!((is_held, cost.scripts), (reads, 2), "{cost:?}");
        assert_eq!(stage.count().await, 2);
        stage.release(&writer, None).await;
        let () = stage.run("FLUSHALL").await;
    }
}

/// The fields lie in a table, or all in one page.
#[tokio::test]
async fn crowd_that_stands_in_the_data_is_looked_at_in_batches() {
    for in_one_page in [128, 10_000] {
        let mut stage = Stage::set(Watch::Commands, Mode::Write).await;
        let [writer] = alive();
        let () = stage.run(&format!("CONFIG SET hash-max-ziplist-entries {in_one_page}")).await;
        stage.put_dead(1000, 1).await;
        let (is_held, cost) = stage.cost_of_asking(&writer).await;
        // Each script removes about a hundred; near the end, pages overlap.
        assert!(!is_held && cost.commands <= COMMANDS && cost.scripts <= 50, "{cost:?}");
    }
}

#[tokio::test]
async fn holds_that_data_says_of_many_readers_are_counted_together() {
    let mut stage = Stage::set(Watch::Commands, Mode::Write).await;
    let [writer] = alive();
    // Readers beyond the script's bound read as long as the lock lasts.
    for (readers, reads) in [(90, true), (4, false)] {
        stage.put_dead(readers, 100).await;
        let asks = async |stage: &mut Stage| stage.refuses(Mode::Write, &writer, position(0, KEPT)).await;
        assert_eq!(stage.bounded("ask", asks).await, reads);
        let () = stage.run("FLUSHALL").await;
    }
}

/// The field of a Redisson client holds its number of reads.
#[tokio::test]
async fn number_of_holds_that_data_says_is_not_counted_to() {
    for watch in watches() {
        let mut stage = Stage::set(watch, Mode::Write).await;
        let [reader, writer] = alive();
        let them = "99999999-0795-4907-87fd-6c719a6b4586:7";
        let reads = ["1e12", "9007199254740993", "inf", "0x7fffffff"].map(|holds| (holds, true));
        for (holds, reads) in reads.into_iter().chain(["nan", "-5", "many"].map(|holds| (holds, false))) {
            stage.put(&format!("mode read {them} {holds}")).await;
            let uses = async |stage: &mut Stage| {
                assert_eq!(stage.refuses(Mode::Write, &writer, position(0, KEPT)).await, reads, "{holds}");
                assert_eq!(stage.refuses(Mode::Read, &reader, position(90, KEPT)).await, !reads, "{holds}");
                stage.readers().await;
                stage.release_read(&reader).await;
                stage.release(&writer, None).await;
                stage.force_release().await;
            };
            stage.bounded(holds, uses).await;
            let () = stage.run("FLUSHALL").await;
        }
        // A client with that many reads stays alive as long as any of its leases may last.
        stage.put(&format!("mode read {them} 1000")).await;
        let () = stage.run(&format!("SET {} 1 PX 600000", lease_key(them, 900))).await;
        stage.waits(Mode::Write, &writer).await;
        // Expired readers keep no writer out if they fit into one batch.
        let () = stage.run("FLUSHALL").await;
        stage.put_dead(4, 100).await;
        stage.gets(Mode::Write, &writer).await;
        // No fair lock has that many fields.
        let () = stage.run("FLUSHALL").await;
        stage.put(&format!("mode fair{}", fields(dead(), 1))).await;
        let asks = async |stage: &mut Stage| {
            for _ in 0..20 {
                stage.redis.holder(Mode::Plain, &stage.name).await.unwrap().expect("the lock is held");
                let request = stage.redis.request(&reader, LEASE);
                stage.redis.acquire(Mode::Fair, &stage.name, &request).await.expect_err("no lock");
                let released = stage.redis.release(Mode::Fair, &stage.name, &reader, None).await.unwrap();
                assert_eq!(released, ReleaseOutcome::NotHeld);
            }
        };
        stage.bounded("crowd", asks).await;
    }
}

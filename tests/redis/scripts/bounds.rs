//! A running script blocks the server. So a script looks at a batch at most, however many clients wait, read,
//! or have died; the next call continues, and a live waiter behind the dead gets the lock.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::stage::{fields, id};
use crate::by_hand::{command, connection};
use futures_util::stream::{self, StreamExt};
use latchwork::LeaseId;
use latchwork::backend::{
    AcquireOutcome, Backend as _, LeaseKey, LockName, Mode, QueuePosition, ReleaseOutcome,
};
use latchwork::redis::Redis;
use latchwork_testkit::RedisServer;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{Client, FromRedisValue, Value};

use latchwork_conformance::commands::{Commands as _, RELEASED, did_read};

const MANY: u32 = 5000;
/// Most commands per script: a renewal takes four for each of a hundred leases.
const COMMANDS: usize = 450;
/// Limit of the median script. (Any single script may have to wait for the processor.)
const TIME: Duration = Duration::from_millis(1);
/// Limit where there are too few scripts for a median: a fraction of the time for looking at all.
const TIME_OF_FEW: Duration = Duration::from_millis(10);

const LEASE: Duration = Duration::from_secs(600);
const KEPT: Duration = Duration::from_secs(120);

fn dead() -> impl Iterator<Item = LeaseId> {
    (1..=MANY).map(|client| id(0xdead_0000 + client, 1))
}

fn alive(number: u32) -> LeaseId {
    id(0xa11e_0000 + number, 1)
}

fn position(waited: u64, kept: Duration) -> Option<QueuePosition> {
    Some(QueuePosition { waited: Duration::from_secs(waited), kept })
}

fn is_held(outcome: &AcquireOutcome) -> bool {
    matches!(outcome, AcquireOutcome::Held { .. })
}

struct Stage {
    server: RedisServer,
    redis: Redis,
    name: LockName,
    raw: MultiplexedConnection,
    listener: PubSub,
    watch: Watch,
    /// Factor for a slow machine: stretches [`TIME`] to twice the time of [`COMMANDS`] plain commands.
    slowness: f64,
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
    async fn set(watch: Watch) -> Self {
        let server = RedisServer::start();
        let redis = Redis::connect(&server.url()).await.unwrap();
        let raw = connection(&server).await;
        let listener = Client::open(server.url()).unwrap().get_async_pubsub().await.unwrap();
        let (name, slowness) = (LockName::new("bounds").unwrap(), 1.0);
        let mut stage = Self { server, redis, name, raw, listener, watch, slowness };
        let () = stage.run("CONFIG SET slowlog-log-slower-than 0").await;
        let () = stage.run("CONFIG SET slowlog-max-len 100000").await;
        if watch == Watch::Time {
            let plain = format!("for i = 1, {COMMANDS} do redis.call('zscore', KEYS[1], i) end");
            let ((), cost) = stage
                .costs(async |stage| {
                    for _ in 0..25 {
                        let () = redis::cmd("EVAL")
                            .arg(&plain)
                            .arg(1)
                            .arg("none")
                            .query_async(&mut stage.raw)
                            .await
                            .unwrap();
                    }
                })
                .await;
            stage.slowness = (2 * cost.time).div_duration_f64(TIME).max(1.0);
        }
        stage
    }

    async fn run<T: FromRedisValue>(&mut self, words: &str) -> T {
        command(words).query_async(&mut self.raw).await.unwrap_or_else(|error| panic!("{words}: {error}"))
    }

    /// Returns the channel of the next grant.
    async fn granted(&mut self) -> String {
        let message = self.listener.on_message().next().await.expect("connected");
        let said: String = message.get_payload().unwrap();
        assert!(said.starts_with("granted:1"), "{said}");
        message.get_channel_name().to_owned()
    }

    async fn costs<T>(&mut self, step: impl AsyncFnOnce(&mut Self) -> T) -> (T, Cost) {
        static FENCES: AtomicUsize = AtomicUsize::new(0);
        let mut monitor = TcpStream::connect(("127.0.0.1", self.server.port())).unwrap();
        if self.watch == Watch::Commands {
            monitor.write_all(b"MONITOR\r\n").unwrap();
        } else {
            monitor.write_all(b"PING\r\n").unwrap();
        }
        let mut lines = BufReader::new(monitor).lines().map(Result::unwrap);
        lines.next().expect("the server answers");
        let () = self.run("SLOWLOG RESET").await;
        let outcome = step(self).await;
        let ran: Vec<Vec<Value>> = self.run("SLOWLOG GET -1").await;
        let mut most = 0;
        if self.watch == Watch::Commands {
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
        let () = self.run(&format!("HSET bounds mode read{}", fields(dead().take(count), holds))).await;
        let () = self.run("PEXPIRE bounds 600000").await;
    }

    /// True if a writer has to wait, and the cost of the attempt.
    async fn cost_of_asking(&mut self, writer: &LeaseId) -> (bool, Cost) {
        let asks = async |stage: &mut Self| stage.ask_to_write(writer, position(0, KEPT)).await;
        let (asked, cost) = self.costs(asks).await;
        (is_held(&asked), cost)
    }

    async fn ask_fair(&self, id: &LeaseId, position: Option<QueuePosition>) -> AcquireOutcome {
        self.ask(Mode::Fair, id, position).await
    }

    async fn ask_to_write(&self, id: &LeaseId, position: Option<QueuePosition>) -> AcquireOutcome {
        self.ask(Mode::Write, id, position).await
    }

    async fn ask_to_read(&self, id: &LeaseId, position: Option<QueuePosition>) -> AcquireOutcome {
        self.ask(Mode::Read, id, position).await
    }

    async fn ask(&self, mode: Mode, id: &LeaseId, position: Option<QueuePosition>) -> AcquireOutcome {
        let request = self.redis.request(id, LEASE).position(position);
        self.redis.acquire(mode, &self.name, &request).await.unwrap()
    }

    async fn end_read(&self, id: &LeaseId) -> bool {
        did_read(self.redis.release(Mode::Read, &self.name, id, None).await.unwrap())
    }

    /// Runs `ask` for all the dead, many at a time.
    async fn all_dead(&self, ask: impl AsyncFn(&Self, LeaseId)) {
        stream::iter(dead()).map(|id| ask(self, id)).buffer_unordered(100).collect::<()>().await;
    }

    async fn dead_want_it_fair(&self, kept: Duration) {
        self.all_dead(async |stage, id| assert!(is_held(&stage.ask_fair(&id, position(60, kept)).await)))
            .await;
    }

    async fn dead_want_to_write(&self, kept: Duration) {
        self.all_dead(async |stage, id| assert!(is_held(&stage.ask_to_write(&id, position(60, kept)).await)))
            .await;
    }

    async fn dead_want_to_read(&self) {
        self.all_dead(async |stage, id| assert!(is_held(&stage.ask_to_read(&id, position(60, KEPT)).await)))
            .await;
    }

    async fn dead_read(&self) {
        self.all_dead(async |stage, id| assert!(!is_held(&stage.ask_to_read(&id, None).await))).await;
    }

    /// Ends the leases of the dead; a field of the lock remains for each.
    async fn their_leases_end(&mut self) {
        for id in dead() {
            let () = self.run(&format!("DEL {{{}}}:{id}:rwlock_timeout:1", self.name)).await;
        }
    }

    async fn listen(&mut self, channel: String) {
        self.listener.subscribe(channel).await.unwrap();
    }

    /// The number of readers, dead or alive, plus one for the mode.
    async fn fields(&mut self) -> u32 {
        self.run("HLEN bounds").await
    }
}

/// The measured quantities. (No time on a shared processor: `verify lock-mutants` sets the variable.)
fn watches() -> Vec<Watch> {
    let untimed = std::env::var_os("LATCHWORK_UNTIMED").is_some();
    if untimed { vec![Watch::Commands] } else { vec![Watch::Commands, Watch::Time] }
}

/// The quantities, and the life of dead positions.
fn scenes() -> impl Iterator<Item = (Watch, Duration)> {
    [KEPT, Duration::from_millis(1)]
        .into_iter()
        .flat_map(|kept| watches().into_iter().map(move |it| (it, kept)))
}

#[tokio::test]
async fn fair_lock_is_handed_off_past_dead_waiters_by_short_scripts() {
    for (watch, kept) in scenes() {
        let mut stage = Stage::set(watch).await;
        let [holder, waiter, other] = [1, 2, 3].map(alive);
        assert!(!is_held(&stage.ask_fair(&holder, None).await));
        // The queue lasts as long as its last position.
        assert!(is_held(&stage.ask_fair(&waiter, position(0, KEPT)).await));
        stage.dead_want_it_fair(kept).await;
        let grants = stage.redis.channels(Mode::Fair, &stage.name, &waiter.client_id()).own;
        stage.listen(grants.clone()).await;
        let asked = stage.bounded("ask", async |stage| stage.ask_fair(&waiter, position(0, KEPT)).await);
        assert!(is_held(&asked.await));
        stage
            .bounded("leave the queue", async |stage| {
                let left = stage.redis.release(Mode::Fair, &stage.name, &other, None).await.unwrap();
                assert_eq!(left, ReleaseOutcome::NotHeld);
            })
            .await;
        stage
            .bounded("release", async |stage| {
                let released = stage.redis.release(Mode::Fair, &stage.name, &holder, None).await.unwrap();
                assert_eq!(released, RELEASED);
            })
            .await;
        assert_eq!(stage.granted().await, grants);
        // No dead client is left to pass over.
        let (_, cost) = stage
            .costs(async |stage| stage.redis.release(Mode::Fair, &stage.name, &waiter, None).await)
            .await;
        assert_eq!(cost.scripts, 1, "{cost:?}");
        // A lock that expires or is freed by force.
        assert!(!is_held(&stage.ask_fair(&holder, None).await));
        stage.dead_want_it_fair(kept).await;
        assert!(is_held(&stage.ask_fair(&waiter, position(0, KEPT)).await));
        let () = stage.run("DEL bounds").await;
        // The waiter comes before any newcomer, though many dead stand before the waiter.
        let asked = stage.bounded("overtake", async |stage| stage.ask_fair(&other, None).await).await;
        assert!(is_held(&asked));
        assert_eq!(stage.granted().await, grants);
        stage.dead_want_it_fair(kept).await;
        let () = stage.run("DEL bounds").await;
        let taken = stage.bounded("take", async |stage| stage.ask_fair(&other, None).await).await;
        assert!(!is_held(&taken));
        stage.dead_want_it_fair(kept).await;
        assert!(is_held(&stage.ask_fair(&waiter, position(0, KEPT)).await));
        let force =
            stage.bounded("force", async |stage| stage.redis.force_release(Mode::Fair, &stage.name).await);
        assert!(force.await.unwrap());
        assert_eq!(stage.granted().await, grants);
        stage
            .bounded("holder", async |stage| stage.redis.holder(Mode::Plain, &stage.name).await)
            .await
            .unwrap();
    }
}

#[tokio::test]
async fn waiter_taken_for_dead_regains_its_position_when_it_asks() {
    let mut stage = Stage::set(Watch::Time).await;
    let [holder, early, late] = [1, 2, 3].map(alive);
    assert!(!is_held(&stage.ask_fair(&holder, None).await));
    // The earliest waiter; its connection is down for a moment.
    assert!(is_held(&stage.ask_fair(&early, position(90, KEPT)).await));
    stage.dead_want_it_fair(KEPT).await;
    assert!(is_held(&stage.ask_fair(&late, position(0, KEPT)).await));
    let grants = [&early, &late].map(|id| stage.redis.channels(Mode::Fair, &stage.name, &id.client_id()).own);
    stage.listen(grants[1].clone()).await;
    stage.redis.release(Mode::Fair, &stage.name, &holder, None).await.unwrap();
    assert_eq!(stage.granted().await, grants[1]);
    stage.listen(grants[0].clone()).await;
    let later = alive(4);
    assert!(is_held(&stage.ask_fair(&later, position(80, KEPT)).await));
    stage.listen(stage.redis.channels(Mode::Fair, &stage.name, &later.client_id()).own).await;
    assert!(is_held(&stage.ask_fair(&early, position(90, KEPT)).await));
    stage.redis.release(Mode::Fair, &stage.name, &late, None).await.unwrap();
    assert_eq!(stage.granted().await, grants[0]);
}

#[tokio::test]
async fn write_lock_is_handed_off_past_dead_waiters_by_short_scripts() {
    for (watch, kept) in scenes() {
        let mut stage = Stage::set(watch).await;
        let [holder, writer, reader] = [1, 2, 3].map(alive);
        let grants = stage.redis.channels(Mode::Write, &stage.name, &writer.client_id()).own;
        stage.listen(grants.clone()).await;
        // A reader releases; dead writers stand before the next writer.
        assert!(!is_held(&stage.ask_to_read(&holder, None).await));
        assert!(is_held(&stage.ask_to_write(&writer, position(0, KEPT)).await));
        stage.dead_want_to_write(kept).await;
        assert!(stage.bounded("release to read", async |stage| stage.end_read(&holder).await).await);
        assert_eq!(stage.granted().await, grants);
        // A writer releases; dead readers wait as well.
        stage.dead_want_to_write(kept).await;
        stage.dead_want_to_read().await;
        let asked =
            stage.bounded("ask to read", async |stage| stage.ask_to_read(&reader, position(0, KEPT)).await);
        assert!(is_held(&asked.await));
        stage
            .bounded("release to write", async |stage| {
                let released = stage.redis.release(Mode::Write, &stage.name, &writer, None).await.unwrap();
                assert_eq!(released, RELEASED);
            })
            .await;
        let read =
            stage.bounded("read in turn", async |stage| stage.ask_to_read(&reader, position(0, KEPT)).await);
        assert!(!is_held(&read.await));
        // Another reader need not wait for a dead writer.
        let other = alive(4);
        let read = stage.bounded("read", async |stage| stage.ask_to_read(&other, position(0, KEPT)).await);
        assert!(!is_held(&read.await));
        stage.dead_want_to_write(kept).await;
        let gone = stage.bounded("leave", async |stage| {
            stage.redis.release(Mode::Write, &stage.name, &id(0xdead_0001, 1), None).await
        });
        assert_eq!(gone.await.unwrap(), ReleaseOutcome::NotHeld);
        let force =
            stage.bounded("force", async |stage| stage.redis.force_release(Mode::Write, &stage.name).await);
        assert!(force.await.unwrap());
    }
}

#[tokio::test]
async fn dead_readers_beside_a_live_one_are_removed_by_short_scripts() {
    for watch in watches() {
        let mut stage = Stage::set(watch).await;
        let [stays, writer] = [1, 2].map(alive);
        // Removed by writers that ask.
        assert!(!is_held(&stage.ask_to_read(&stays, None).await));
        stage.dead_read().await;
        stage.their_leases_end().await;
        assert_eq!(stage.fields().await, MANY + 2);
        stage
            .bounded("ask to write", async |stage| {
                for _ in 0..20 {
                    assert!(is_held(&stage.ask_to_write(&writer, position(0, KEPT)).await));
                }
            })
            .await;
        let readers =
            stage.bounded("holders", async |stage| stage.redis.holders(Mode::Read, &stage.name).await);
        assert_eq!(readers.await.unwrap().len(), 1);
        let mut asked = 0;
        // Each attempt may look at one batch.
        while stage.fields().await > 100 {
            assert!(is_held(&stage.ask_to_write(&writer, position(0, KEPT)).await));
            asked += 1;
            assert!(asked < 2000, "expected the removal of the dead readers within 2000 attempts");
        }
        stage.redis.release(Mode::Write, &stage.name, &writer, None).await.unwrap();
        // Removed by readers that come and go.
        stage.dead_read().await;
        stage.their_leases_end().await;
        let mut number = 10;
        // The mode, and the reader that stays.
        while stage.fields().await > 2 {
            number += 1;
            assert!(!is_held(&stage.ask_to_read(&alive(number), None).await));
            assert!(stage.end_read(&alive(number)).await);
            // Each leaving reader removes a batch; of the arriving readers, one in 32 does.
            assert!(
                number < 3000,
                "expected the removal of the dead readers, and {} fields are left",
                stage.fields().await
            );
        }
        // Removed by readers that come and stay.
        stage.dead_read().await;
        stage.their_leases_end().await;
        stage
            .bounded("read", async |stage| {
                for number in 10_000..11_500 {
                    assert!(!is_held(&stage.ask_to_read(&alive(number), None).await));
                }
            })
            .await;
        let fields = stage.fields().await;
        assert!(
            fields < MANY + 1500 - 1000,
            "expected the removal of 1000 dead readers, and {fields} fields are left"
        );
    }
}

#[tokio::test]
async fn lock_of_dead_readers_goes_to_the_writer_by_short_scripts() {
    let by = ["the last reader", "the writer itself", "force"];
    for (watch, by) in watches().into_iter().flat_map(|watch| by.map(|by| (watch, by))) {
        let mut stage = Stage::set(watch).await;
        let [last, writer] = [1, 2].map(alive);
        let grants = stage.redis.channels(Mode::Write, &stage.name, &writer.client_id()).own;
        stage.listen(grants.clone()).await;
        assert!(!is_held(&stage.ask_to_read(&last, None).await));
        stage.dead_read().await;
        assert!(is_held(&stage.ask_to_write(&writer, position(0, KEPT)).await));
        stage.their_leases_end().await;
        if by == "the writer itself" {
            let () = stage.run(&format!("DEL {{{}}}:{last}:rwlock_timeout:1", stage.name)).await;
        }
        let wrote = stage
            .bounded(by, async |stage| match by {
                "the last reader" => stage.end_read(&last).await,
                "force" => stage.redis.force_release(Mode::Write, &stage.name).await.unwrap(),
                _ => !is_held(&stage.ask_to_write(&writer, position(0, KEPT)).await),
            })
            .await;
        assert!(wrote, "{by}");
        match by {
            "the last reader" => assert_eq!(stage.granted().await, grants),
            // The lock was free for a moment, and all waiters were woken.
            "force" => assert!(!is_held(&stage.ask_to_write(&writer, position(0, KEPT)).await)),
            _ => {}
        }
        let holds = stage.redis.holder(Mode::Write, &stage.name).await.unwrap();
        assert_eq!(holds.and_then(|writer| writer.id), Some(writer), "{by}");
        assert!(stage.redis.holders(Mode::Read, &stage.name).await.unwrap().is_empty(), "{by}");
        assert_eq!(stage.fields().await, 2, "{by}");
    }
}

#[tokio::test]
async fn lock_of_many_readers_lasts_until_the_last_by_short_scripts() {
    for watch in watches() {
        let mut stage = Stage::set(watch).await;
        let writer = alive(1);
        stage.dead_read().await;
        let held = stage.bounded("ask to write", async |stage| {
            for _ in 0..20 {
                assert!(is_held(&stage.ask_to_write(&writer, position(0, KEPT)).await));
            }
        });
        held.await;
        let readers =
            stage.bounded("holders", async |stage| stage.redis.holders(Mode::Read, &stage.name).await);
        let readers = readers.await.unwrap();
        assert_eq!(readers.len(), MANY as usize);
        assert!(readers.iter().all(|reader| reader.id.is_some() && reader.left > KEPT));
        let leases: Vec<_> = dead().take(100).map(|id| LeaseKey { name: stage.name.clone(), id }).collect();
        let renewed =
            stage.bounded("renew", async |stage| stage.redis.renew(Mode::Read, &leases, LEASE).await);
        assert_eq!(renewed.await.unwrap(), [true; 100]);
        // In the opposite order, so that each has the longest lease of the remaining ones.
        let mut all: Vec<_> = dead().collect();
        all.reverse();
        let last = all.pop().unwrap();
        stage
            .bounded("release to read", async |stage| {
                for id in &all {
                    assert!(stage.end_read(id).await);
                }
            })
            .await;
        assert!(is_held(&stage.ask_to_write(&writer, position(0, KEPT)).await));
        assert!(stage.end_read(&last).await);
        assert!(!is_held(&stage.ask_to_write(&writer, position(0, KEPT)).await));
        stage.redis.release(Mode::Write, &stage.name, &writer, None).await.unwrap();
        // A force unlock ends all reads, though a waiting writer could be granted the lock.
        stage.dead_read().await;
        assert!(is_held(&stage.ask_to_write(&writer, position(0, KEPT)).await));
        let grants = stage.redis.channels(Mode::Write, &stage.name, &writer.client_id()).own;
        stage.listen(grants).await;
        let force =
            stage.bounded("force", async |stage| stage.redis.force_release(Mode::Write, &stage.name).await);
        assert!(force.await.unwrap());
        assert!(!is_held(&stage.ask_to_write(&writer, position(0, KEPT)).await));
        let renewed = stage.redis.renew(Mode::Read, &leases, LEASE).await.unwrap();
        assert_eq!(renewed, [false; 100], "expected the loss of all remaining leases by the forced release");
        assert_eq!(stage.fields().await, 2, "expected two fields: the writer's and the mode");
    }
}

/// The server's configuration sets how many fields it keeps and returns in one piece.
#[tokio::test]
async fn readers_of_one_page_are_told_from_the_dead_by_short_scripts() {
    let mut stage = Stage::set(Watch::Commands).await;
    let () = stage.run("CONFIG SET hash-max-ziplist-entries 2000").await;
    let readers: Vec<LeaseId> = dead().take(600).collect();
    for id in &readers {
        assert!(!is_held(&stage.ask_to_read(id, None).await));
    }
    for id in &readers[500..] {
        let () = stage.run(&format!("DEL {{{}}}:{id}:rwlock_timeout:1", stage.name)).await;
    }
    let found = stage.bounded("holders", async |stage| stage.redis.holders(Mode::Read, &stage.name).await);
    let found: Vec<_> = found.await.unwrap().into_iter().filter_map(|reader| reader.id).collect();
    assert_eq!(found, readers[..500]);
}

/// One reader is enough to keep a writer out, and to let another reader leave.
#[tokio::test]
async fn few_readers_are_not_all_asked_for() {
    let mut stage = Stage::set(Watch::Commands).await;
    let writer = alive(1);
    stage.put_dead(90, 1).await;
    for id in dead().take(90) {
        let () = stage.run(&format!("SET {{bounds}}:{id}:rwlock_timeout:1 1 PX 600000")).await;
    }
    let (is_held, cost) = stage.cost_of_asking(&writer).await;
    assert!(is_held && cost.commands <= 20, "{cost:?}");
    for id in dead().take(10) {
        // This may be the longest lease, and the script compares the others with it.
        for key in ["bounds".to_owned(), format!("{{bounds}}:{id}:rwlock_timeout:1")] {
            let () = stage.run(&format!("PEXPIRE {key} 500000")).await;
        }
        let (did_read, cost) = stage.costs(async |stage| stage.end_read(&id).await).await;
        assert!(did_read && cost.commands <= 20, "{cost:?}");
    }
}

/// The client calls the full script again only if its first call had no answer.
#[tokio::test]
async fn dead_that_are_few_are_passed_by_one_script() {
    let mut stage = Stage::set(Watch::Commands).await;
    let [writer, reader] = [1, 2].map(alive);
    // From now on the server knows the scripts: that of first attempts, and the full one.
    for waited in [0, 1] {
        assert!(!is_held(&stage.ask_to_write(&writer, position(waited, KEPT)).await));
    }
    stage.redis.release(Mode::Write, &stage.name, &writer, None).await.unwrap();
    for reads in [true, false] {
        stage.put_dead(20, 1).await;
        if reads {
            assert!(!is_held(&stage.ask_to_read(&reader, None).await));
        }
        let (is_held, cost) = stage.cost_of_asking(&writer).await;
        // The script of first attempts leaves the decision to the full script.
        assert_eq!((is_held, cost.scripts), (reads, 2), "{cost:?}");
        assert_eq!(stage.fields().await, 2);
        stage.redis.release(Mode::Write, &stage.name, &writer, None).await.unwrap();
        let () = stage.run("FLUSHALL").await;
    }
}

/// The fields lie in a table, or all in one page.
#[tokio::test]
async fn crowd_that_stands_in_the_data_is_looked_at_in_batches() {
    for in_one_page in [128, 10_000] {
        let mut stage = Stage::set(Watch::Commands).await;
        let writer = alive(1);
        let () = stage.run(&format!("CONFIG SET hash-max-ziplist-entries {in_one_page}")).await;
        stage.put_dead(1000, 1).await;
        let (is_held, cost) = stage.cost_of_asking(&writer).await;
        assert!(!is_held && cost.commands <= COMMANDS, "{cost:?}");
        // Each script removes about a hundred; near the end, pages overlap.
        assert!(cost.scripts <= 50, "{cost:?}");
    }
}

#[tokio::test]
async fn holds_that_data_says_of_many_readers_are_counted_together() {
    let mut stage = Stage::set(Watch::Commands).await;
    let writer = alive(1);
    // Readers beyond the script's bound read as long as the lock lasts.
    for (readers, reads) in [(90, true), (4, false)] {
        stage.put_dead(readers, 100).await;
        let asks = async |stage: &mut Stage| stage.ask_to_write(&writer, position(0, KEPT)).await;
        assert_eq!(is_held(&stage.bounded("ask", asks).await), reads);
        let () = stage.run("FLUSHALL").await;
    }
}

/// The field of a Redisson client holds its number of reads.
#[tokio::test]
async fn number_of_holds_that_data_says_is_not_counted_to() {
    for watch in watches() {
        let mut stage = Stage::set(watch).await;
        let [reader, writer] = [1, 2].map(alive);
        let them = "99999999-0795-4907-87fd-6c719a6b4586:7";
        for (holds, reads) in [
            ("1e12", true),
            ("9007199254740993", true),
            ("inf", true),
            ("0x7fffffff", true),
            ("nan", false),
            ("-5", false),
            ("many", false),
        ] {
            let () = stage.run(&format!("HSET bounds mode read {them} {holds}")).await;
            let () = stage.run("PEXPIRE bounds 600000").await;
            stage
                .bounded(holds, async |stage| {
                    let asked = stage.ask_to_write(&writer, position(0, KEPT)).await;
                    assert_eq!(is_held(&asked), reads, "{holds}");
                    let asked = stage.ask_to_read(&reader, position(90, KEPT)).await;
                    assert_eq!(is_held(&asked), !reads, "{holds}");
                    stage.redis.holders(Mode::Read, &stage.name).await.unwrap();
                    stage.end_read(&reader).await;
                    stage.redis.release(Mode::Write, &stage.name, &writer, None).await.unwrap();
                    stage.redis.force_release(Mode::Write, &stage.name).await.unwrap();
                })
                .await;
            let () = stage.run("FLUSHALL").await;
        }
        // A client with that many reads stays alive as long as any of its leases may last.
        let () = stage.run(&format!("HSET bounds mode read {them} 1000")).await;
        let () = stage.run(&format!("SET {{bounds}}:{them}:rwlock_timeout:900 1 PX 600000")).await;
        let () = stage.run("PEXPIRE bounds 600000").await;
        assert!(is_held(&stage.ask_to_write(&writer, position(0, KEPT)).await));
        // Expired readers keep no writer out if they fit into one batch.
        let () = stage.run("FLUSHALL").await;
        stage.put_dead(4, 100).await;
        assert!(!is_held(&stage.ask_to_write(&writer, position(0, KEPT)).await));
        // No fair lock has that many fields.
        let () = stage.run("FLUSHALL").await;
        let () = stage.run(&format!("HSET bounds mode fair{}", fields(dead(), 1))).await;
        stage
            .bounded("crowd", async |stage| {
                for _ in 0..20 {
                    stage.redis.holder(Mode::Plain, &stage.name).await.unwrap().expect("the lock is held");
                    let asked = stage
                        .redis
                        .acquire(Mode::Fair, &stage.name, &stage.redis.request(&reader, LEASE))
                        .await;
                    asked.expect_err("no lock");
                    let released = stage.redis.release(Mode::Fair, &stage.name, &reader, None).await.unwrap();
                    assert_eq!(released, ReleaseOutcome::NotHeld);
                }
            })
            .await;
    }
}

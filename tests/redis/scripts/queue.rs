//! The first waiter of a queue, in a long queue and with each kind of subscription; and odd read-write locks.

use std::io::{BufRead, BufReader, Write as _};
use std::net::TcpStream;

use latchwork_testkit::RedisServer;
use redis::{Connection, Value};

use super::refusals::{
    CHANNEL, FAIR_ACQUIRE, FAIR_KEYS, FAIR_RELEASE, FAIR_RELEASE_IN_FULL, FIRST, GRANTS, LOCK, NEXT, NONCE,
    POSITIONS, QUEUE, SECOND, SHORT, THEM, US, connect, eval, read_write, run,
};
use super::stage::id;

/// Waiters that one call looks at.
const BATCH: usize = 100;
/// The reply if no waiter of a batch listens.
const AGAIN: Value = Value::Int(-3);

const OVER: &str = "0000000000000001";
const LASTS: &str = "9000000000000000";

/// The channels and commands of grants and other messages.
#[derive(Clone, Copy, Debug)]
struct Messages {
    publish: &'static str,
    /// True if the server knows all listening clients.
    known: bool,
    /// Prefix of the grants' channels.
    grants: &'static str,
}

const PLAIN: Messages = Messages { publish: "publish", known: true, grants: GRANTS };
const WRITES: Messages = Messages { grants: read_write::GRANTS, ..PLAIN };
const SHARDED: Messages = Messages { publish: "spublish", ..PLAIN };
const UNKNOWN: Messages = Messages { known: false, ..PLAIN };
const SHARDED_UNKNOWN: Messages = Messages { known: false, ..SHARDED };

struct Stage {
    server: RedisServer,
    connection: Connection,
}

impl Stage {
    fn set() -> Self {
        let server = RedisServer::start();
        let connection = connect(server.url());
        Self { server, connection }
    }

    fn run<T: redis::FromRedisValue>(&mut self, words: &str) -> T {
        run(&mut self.connection, words)
    }

    /// Writes the lock's fields, with empty queues.
    fn put(&mut self, fields: &str) {
        let (queue, positions) = (read_write::QUEUE, read_write::POSITIONS);
        let () = self.run(&format!("DEL {LOCK} {QUEUE} {POSITIONS} {queue} {positions}"));
        let () = self.run(&format!("HSET {LOCK} {fields}"));
        let () = self.run(&format!("PEXPIRE {LOCK} {SHORT}"));
    }

    /// Enqueues `id`: start of the wait, and end of the position.
    fn enqueue(&mut self, id: &str, began: usize, kept: &str) {
        let () = self.run(&format!("ZADD {QUEUE} {began} {id}"));
        let () = self.run(&format!("HSET {POSITIONS} {id} {kept}:1111"));
        for key in [QUEUE, POSITIONS] {
            let () = self.run(&format!("PEXPIRE {key} {SHORT}"));
        }
    }

    fn eval(&mut self, text: &str, keys: &[&str], messages: Messages, own: &[&str]) -> Value {
        let Messages { publish, known, grants } = messages;
        let known = if known { "1" } else { "0" };
        let all = [publish, known, CHANNEL, "0", grants, "granted:"];
        eval(text, keys).arg(&all).arg(own).query(&mut self.connection).unwrap()
    }

    fn time(&mut self) -> u64 {
        let (seconds, micros): (u64, u64) = self.run("TIME");
        seconds * 1_000_000 + micros
    }

    fn holders(&mut self) -> Vec<String> {
        let mut fields: Vec<String> = self.run(&format!("HKEYS {LOCK}"));
        fields.retain(|field| field != "mode");
        fields
    }

    fn queue(&mut self) -> Vec<String> {
        self.run(&format!("ZRANGE {QUEUE} 0 -1"))
    }

    /// Subscribes the client of the first waiters; returns its stream of messages.
    fn listen(&self, by: &str) -> BufReader<TcpStream> {
        self.listen_to(by, GRANTS)
    }

    fn listen_to(&self, by: &str, grants: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.server.port())).unwrap();
        writeln!(stream, "{by} {grants}{}\r", &FIRST[..36]).unwrap();
        let mut stream = BufReader::new(stream);
        // Read past the confirmation, which ends with the number of subscriptions.
        read_until(&mut stream, |line| line == ":1");
        stream
    }
}

fn read_until(stream: &mut BufReader<TcpStream>, last: impl Fn(&str) -> bool) {
    let mut line = String::new();
    while !last(line.trim_end()) {
        line.clear();
        assert!(stream.read_line(&mut line).unwrap() > 0, "expected a line");
    }
}

fn deaf(number: usize) -> String {
    id(number.try_into().unwrap(), 3).to_string()
}

#[test]
fn first_listening_waiter_is_found_anywhere_in_a_batch() {
    let mut stage = Stage::set();
    let _listens = stage.listen("SUBSCRIBE");
    for text in [FAIR_RELEASE, FAIR_RELEASE_IN_FULL] {
        for before in [0, 1, 2, 8, 9, 10, 11, 89, 90, 91, 98, 99, 100, 101, 150] {
            stage.put(&format!("mode fair {US} 1"));
            // None of these listens; every other position is expired.
            for number in 0..before {
                stage.enqueue(&deaf(number), 1 + number, if number % 2 == 0 { LASTS } else { OVER });
            }
            stage.enqueue(FIRST, 1000, LASTS);
            stage.enqueue(SECOND, 2000, LASTS);
            let passed = if before >= BATCH { BATCH } else { 0 };
            if passed > 0 {
                // The batch would be in the way each time.
                assert_eq!(stage.eval(text, FAIR_KEYS, PLAIN, &[US]), AGAIN, "behind {before}");
                let waits = (passed..before).map(deaf).chain([FIRST, SECOND].map(str::to_owned));
                assert_eq!(stage.queue(), waits.collect::<Vec<_>>(), "behind {before}");
                assert_eq!(stage.holders(), [US], "behind {before}");
            }
            assert_eq!(stage.eval(text, FAIR_KEYS, PLAIN, &[US]), Value::Int(1), "behind {before}");
            assert_eq!(stage.holders(), [FIRST], "behind {before}");
            let last = (passed..before).filter(|number| number % 2 == 0).map(deaf);
            let waits = last.chain([SECOND.to_owned()]);
            assert_eq!(stage.queue(), waits.collect::<Vec<_>>(), "behind {before}");
        }
    }
}

#[test]
fn first_of_a_long_queue_need_not_look_at_it() {
    let mut stage = Stage::set();
    let _listens = stage.listen("SUBSCRIBE");
    stage.enqueue(FIRST, 1, LASTS);
    for number in 0..2 * BATCH {
        stage.enqueue(&deaf(number), 2 + number, LASTS);
    }
    let asks = [SHORT, FIRST, "0", SHORT, NONCE, "0"];
    assert_eq!(stage.eval(FAIR_ACQUIRE, FAIR_KEYS, PLAIN, &asks), Value::Array(Vec::new()));
    assert_eq!(stage.holders(), [FIRST]);
    assert_eq!(stage.queue().len(), 2 * BATCH);
}

/// The server's order decides between two waiters of the same moment, in every script.
#[test]
fn one_of_two_that_came_at_once_is_first() {
    let mut stage = Stage::set();
    let _listens = stage.listen("SUBSCRIBE");
    for (asks, gets) in [(FIRST, FIRST), (SECOND, FIRST)] {
        let () = stage.run("FLUSHALL");
        stage.enqueue(FIRST, 7, LASTS);
        stage.enqueue(SECOND, 7, LASTS);
        let asked = [SHORT, asks, "0", SHORT, NONCE, "0"];
        let reply = stage.eval(FAIR_ACQUIRE, FAIR_KEYS, PLAIN, &asked);
        assert_eq!(stage.holders(), [gets], "{asks} asked: {reply:?}");
    }
}

/// A grant to a client that does not listen would keep all others out for the life of the grant.
#[test]
fn lock_is_granted_to_a_client_that_hears_it() {
    let mut stage = Stage::set();
    let all = [
        // Messages, kind of subscription, and true if a grant reaches the client.
        (PLAIN, Some("SUBSCRIBE"), true),
        (PLAIN, Some("SSUBSCRIBE"), false),
        (PLAIN, None, false),
        (SHARDED, Some("SSUBSCRIBE"), true),
        (SHARDED, Some("SUBSCRIBE"), false),
        (SHARDED, None, false),
        // In a Cluster the client may listen at another node.
        (UNKNOWN, None, true),
        (SHARDED_UNKNOWN, None, true),
    ];
    for (messages, listens, granted) in all {
        for text in [FAIR_RELEASE, FAIR_RELEASE_IN_FULL] {
            let what = format!("{messages:?}, {listens:?}");
            let mut hears = listens.map(|by| stage.listen(by));
            stage.put(&format!("mode fair {US} 1"));
            stage.enqueue(FIRST, 1, LASTS);
            assert_eq!(
                stage.eval(text, FAIR_KEYS, messages, &[US]),
                Value::Int(1 + i64::from(!granted)),
                "{what}"
            );
            assert_eq!(stage.holders(), if granted { &[FIRST][..] } else { &[] }, "{what}");
            if let Some(hears) = hears.as_mut().filter(|_| granted) {
                read_until(hears, |line| line == "granted:1:1111");
            }
        }
    }
}

/// The words that all scripts of read-write locks share (the message to readers, the prefix of their leases,
/// and the flag to leave the lock to strangers), and the script's own.
fn words<'a>(spare: &'static str, own: &[&'a str]) -> Vec<&'a str> {
    [&["1", "{s}lock:", spare], own].concat()
}

#[test]
fn release_leaving_the_lock_to_strangers_enqueues_its_waiter() {
    let mut stage = Stage::set();
    let _listens = stage.listen("SUBSCRIBE");
    // An expired entry stays until the next waiter arrives: without its key, a moving slot would interfere.
    for (next, waits) in [(false, vec![]), (true, vec![THEM, NEXT])] {
        stage.put(&format!("mode write {US}:write 1"));
        let () = stage.run(&format!("ZADD {} 1 {THEM}", read_write::QUEUE));
        let () = stage.run(&format!("HSET {} {THEM} {OVER}:1111", read_write::POSITIONS));
        let own = [US, NEXT, SHORT, "0", SHORT, NONCE, "0"];
        let own = words("1", if next { &own } else { &own[..1] });
        assert_eq!(stage.eval(read_write::RELEASE, read_write::KEYS, WRITES, &own), Value::Int(2));
        assert!(stage.holders().is_empty());
        let queue: Vec<String> = stage.run(&format!("ZRANGE {} 0 -1", read_write::QUEUE));
        assert_eq!(queue, waits);
        let positions: Vec<String> = stage.run(&format!("HKEYS {}", read_write::POSITIONS));
        assert_eq!(positions.contains(&NEXT.to_owned()), next);
    }
}

impl Stage {
    fn eval_of_writers(&mut self, text: &str, own: &[&str]) -> Value {
        self.eval(text, read_write::KEYS, WRITES, &words("", own))
    }
}

#[test]
fn writer_that_asks_once_more_takes_out_the_dead_beside_it() {
    let mut stage = Stage::set();
    for beside in [format!("{US}:write 1 {THEM} 1"), format!("{THEM} 1 {US}:write 1")] {
        stage.put(&format!("mode write {beside}"));
        let own = [SHORT, US, "0"];
        assert_eq!(stage.eval_of_writers(read_write::ACQUIRE, &own), Value::Array(Vec::new()));
        assert_eq!(stage.holders(), [format!("{US}:write")], "{beside}");
    }
}

/// The turn is old, and seems to last since the server's clock was set back.
#[test]
fn writer_is_forced_out_though_readers_seem_to_have_their_turn() {
    let mut stage = Stage::set();
    stage.put(&format!("mode write {THEM}:write 1"));
    let now = stage.time();
    let () = stage.run(&format!("ZADD {} {now} phase {LASTS} {US}", read_write::TURN));
    assert_eq!(stage.eval_of_writers(read_write::FORCE_RELEASE, &[]), Value::Int(1));
    assert!(stage.holders().is_empty());
}

/// Beside a writer whose field holds no end of the lease.
#[test]
fn reader_whose_label_is_that_of_writers_is_not_taken_for_one() {
    let mut stage = Stage::set();
    let reader = format!("{}:write", id(1, 8));
    let () = stage.run(&format!("HSET {LOCK} mode write {US}:write 1 {reader} 1"));
    let () = stage.run(&format!("SET {{s}}lock:{reader}:rwlock_timeout:1 1 PX {SHORT}"));
    assert_eq!(stage.eval_of_writers(read_write::RELEASE, &[US]), Value::Int(1));
    assert_eq!(stage.holders(), [reader]);
}

//! Compares the small server with a real one: random calls of all commands and scripts to both servers, and a
//! comparison of all keys after each call.
//!
//! The real server's clock stands still, and advances only in steps together with the small server's, so that
//! replies must be exactly equal.

mod commands;
mod difference;
mod real;
mod scripts;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use clap::Args;
use fastrand::Rng;
use latchwork_testkit::{RedisServer, ServerClock};

use self::difference::Difference;
use self::real::Wire;
use super::server::{Condition, Micros, Reply, Server};

/// Compares the small Redis with a real one, by random calls
#[derive(Debug, Args)]
pub(crate) struct CommandLine {
    /// Repeats the comparison of this seed
    #[arg(long)]
    seed: Option<u64>,
    /// Duration
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
}

/// Number of calls of either kind until keys, users and conditions are reset.
const CALLS: u64 = 400;

/// Number of calls between comparisons of pushes.
const CALLS_UNTIL_PUSHES: u64 = 16;

const BEGINNING: Micros = 1_700_000_000_000_000;

#[derive(Debug, Default)]
pub(crate) struct Count {
    /// Commands other than our scripts.
    commands: u64,
    scripts: u64,
    pushes: u64,
    errors: u64,
    by_name: BTreeMap<String, u64>,
}

pub(crate) fn run(command_line: &CommandLine) -> Result<(), String> {
    let seed = command_line.seed.unwrap_or_else(|| fastrand::u64(..));
    println!("seed {seed}");
    let until = Instant::now() + Duration::from_secs_f64(command_line.seconds);
    let mut both = Both::start();
    let mut rng = Rng::with_seed(seed);
    let mut rounds = 0u64;
    let mut result = Ok(());
    while result.is_ok() && Instant::now() < until {
        rounds += 1;
        let part = if rounds.is_multiple_of(2) { commands::round } else { scripts::round };
        result = both.begin().and_then(|()| part(&mut both, &mut rng));
    }
    let Count { commands, scripts, pushes, errors, by_name } = &both.count;
    println!("{commands} commands, {scripts} calls of scripts, {pushes} pushes, {errors} errors");
    for (name, count) in by_name {
        println!("  {count:>8} {name}");
    }
    result.map_err(|difference| format!("seed {seed}, round {rounds}: {difference}"))?;
    println!("no difference");
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    /// Has all rights, and listens to no channel.
    Admin,
    /// Has the rights set last.
    Limited,
    Listener(usize),
}

const LISTENERS: usize = 3;

struct Both {
    _server: RedisServer,
    clock: ServerClock,
    small: Server,
    now: Micros,
    /// Connections to both servers, in the order of the callers.
    links: Vec<(Wire, u64)>,
    /// Pushes of the small server by connection, not compared yet.
    pushed: BTreeMap<u64, Vec<Vec<Reply>>>,
    /// Keys of hashes with an order of the real server's own.
    unordered: BTreeSet<Vec<u8>>,
    recent: Vec<String>,
    calls: u64,
    count: Count,
}

impl Both {
    fn start() -> Self {
        let (server, clock) = ServerClock::start_server();
        clock.stop_at(BEGINNING);
        let port = server.port();
        let mut small = Server::new();
        let links = (0..2 + LISTENERS).map(|_| (Wire::connect(port), small.connect())).collect();
        let mut both = Self {
            _server: server,
            clock,
            small,
            now: BEGINNING,
            links,
            pushed: BTreeMap::new(),
            unordered: BTreeSet::new(),
            recent: Vec::new(),
            calls: 0,
            count: Count::default(),
        };
        both.greet();
        both
    }

    /// Opens sessions on both servers without comparing replies, which contain facts about the server.
    fn greet(&mut self) {
        let words = |line: &str| line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        let user = words("ACL SETUSER limited on nopass +@all ~* &*");
        let greetings = (0..self.links.len()).map(|at| (at, words("HELLO 3")));
        let limited = self.at(Caller::Limited);
        let calls = std::iter::once((0, user)).chain(greetings).chain([(limited, words("AUTH limited x"))]);
        for (at, words) in calls.collect::<Vec<_>>() {
            let (wire, connection) = &mut self.links[at];
            wire.send(&words);
            let (real, small) = (wire.receive(), self.small.call(*connection, self.now, &words).reply);
            assert!(!matches!(real, Reply::Error(_)), "{real:?}");
            assert!(!matches!(small, None | Some(Reply::Error(_))), "{small:?}");
        }
    }

    fn at(&self, caller: Caller) -> usize {
        match caller {
            Caller::Admin => 0,
            Caller::Limited => 1,
            Caller::Listener(number) => 2 + number,
        }
    }

    /// Resets both servers: empty, sound, and a limited user with all rights.
    fn begin(&mut self) -> Result<(), Difference> {
        self.recent.clear();
        self.set_condition(Condition::Sound);
        self.plain(Caller::Admin, "FLUSHALL")?;
        self.plain(Caller::Admin, "ACL SETUSER limited reset on nopass +@all ~* &*")?;
        for number in 0..LISTENERS {
            self.plain(Caller::Listener(number), "UNSUBSCRIBE")?;
            self.plain(Caller::Listener(number), "SUNSUBSCRIBE")?;
        }
        self.compare_pushes()
    }

    fn pass(&mut self, micros: Micros) {
        self.now += micros;
        self.clock.stop_at(self.now);
        self.recent.push(format!("the clock goes on by {micros} us, to {}", self.now));
    }

    /// Sets the condition of the real server, and of the small one.
    fn set_condition(&mut self, condition: Condition) {
        let memory = if condition == Condition::OutOfMemory { "1" } else { "0" };
        let of = if condition == Condition::ReadOnly { ["127.0.0.1", "1"] } else { ["NO", "ONE"] };
        let (wire, _) = &mut self.links[0];
        for words in [["CONFIG", "SET", "maxmemory", memory].as_slice(), &["REPLICAOF", of[0], of[1]]] {
            wire.send(&words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>());
            let reply = wire.receive();
            assert!(matches!(reply, Reply::Status(_)), "{reply:?}");
        }
        self.recent.push(format!("the servers are {condition:?}"));
        self.small.set_condition(condition);
    }

    fn plain(&mut self, caller: Caller, line: &str) -> Result<Reply, Difference> {
        self.call(caller, &line.split(' ').map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>())
    }

    /// Calls both servers. Fails if their replies or any of their keys differ.
    fn call(&mut self, caller: Caller, words: &[Vec<u8>]) -> Result<Reply, Difference> {
        self.calls += 1;
        self.recent.push(format!("{caller:?}: {}", difference::line(words)));
        let at = self.at(caller);
        let is_pushed = words[0].to_ascii_lowercase().ends_with(b"subscribe");
        let (wire, connection) = &mut self.links[at];
        wire.send(words);
        if is_pushed {
            wire.send(&[b"PING".to_vec()]);
        }
        let effects = self.small.call(*connection, self.now, words);
        // The PONG marks the end of the pushes, since a call of UNSUBSCRIBE may cause none.
        let real = wire.receive();
        let small = effects.reply.unwrap_or_else(|| Reply::Status("PONG".to_owned()));
        // An erroneous call has an error as its reply, before the PONG.
        if is_pushed && matches!(real, Reply::Error(_)) {
            wire.receive();
        }
        for push in effects.pushes {
            self.pushed.entry(push.connection).or_default().push(push.reply);
        }
        self.note(words, &real);
        let [real, small] = [real, small].map(|reply| difference::in_order(words, reply, &self.unordered));
        if real != small {
            return Err(Difference::of_replies(&self.recent, &real, &small));
        }
        self.compare_keys()?;
        if self.calls.is_multiple_of(CALLS_UNTIL_PUSHES) {
            self.compare_pushes()?;
        }
        Ok(real)
    }

    fn note(&mut self, words: &[Vec<u8>], reply: &Reply) {
        self.count.errors += u64::from(matches!(reply, Reply::Error(_)));
        let name = String::from_utf8_lossy(&words[0]).to_ascii_lowercase();
        if !name.starts_with("eval") {
            self.count.commands += 1;
            *self.count.by_name.entry(name).or_default() += 1;
        }
    }

    fn compare_keys(&mut self) -> Result<(), Difference> {
        let (wire, _) = &mut self.links[0];
        let (real, unordered) = wire.keys();
        self.unordered = unordered;
        let mut small = self.small.keys(self.now);
        for key in &mut small {
            difference::order_key(key, &self.unordered);
        }
        if real == small { Ok(()) } else { Err(Difference::of_keys(&self.recent, &real, &small)) }
    }

    fn compare_pushes(&mut self) -> Result<(), Difference> {
        for at in 0..self.links.len() {
            let (wire, connection) = &mut self.links[at];
            wire.send(&[b"ECHO".to_vec(), b"x".to_vec()]);
            wire.receive();
            let (real, small) = (wire.take_pushes(), self.pushed.remove(connection).unwrap_or_default());
            let [real, small] = [real, small].map(difference::pushes_in_order);
            self.count.pushes += real.len() as u64;
            if real != small {
                return Err(Difference::of_pushes(&self.recent, &real, &small));
            }
        }
        Ok(())
    }
}

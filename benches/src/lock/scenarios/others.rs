//! Locks of other crates and languages beside ours: two processes of four threads or tasks each, which always
//! want the lock, and hold it for a millisecond at most.
//!
//! Each process is sent `pace KIND NAME MS TURN`, and answers `waited NSxTIMES …`, as in `checks/interop`.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fleet::{Member, READY, answer, java, orders, this_program};
use hdrhistogram::Histogram;
use tokio::task::JoinSet;

use super::super::clients::{Client, Latchwork, TwoNames, TwoPermits};
use super::super::figure::{self, Measurement, Rows};
use super::super::monitor::Monitor;
use super::super::server::Server;
use super::there_and_back;
use crate::{each_client, each_client_beside};

/// The scenarios, each with the kind of lock that its players are told: all peers with a plain lock; a
/// semaphore of two permits, and two plain locks at once, beside Redisson's.
pub const SCENARIOS: [(&str, &str); 3] =
    [("others", "plain"), ("others_permits", "permits"), ("others_names", "multi")];

const PROCESSES: usize = 2;
const THREADS: usize = 4;
const TIME: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest turn in milliseconds.
const TURN: u64 = 1;

/// A program that takes turns.
#[derive(Debug)]
pub struct Peer {
    name: &'static str,
    command: Command,
}

/// The peers with this kind of lock that can run here. Prints which cannot.
pub fn peers(kind: &str, redisson: Option<&Path>, python: Option<&Path>) -> Vec<Peer> {
    let player = |name, client: &str| Peer { name, command: this_program(["--player", client]) };
    let mut peers = match kind {
        "permits" => vec![player(Latchwork::NAME, TwoPermits::NAME)],
        "multi" => vec![player(Latchwork::NAME, TwoNames::NAME)],
        _ => each_client!(named()).into_iter().chain(["fair"]).map(|name| player(name, name)).collect(),
    };
    match redisson {
        Some(directory) => peers.push(Peer { name: "redisson", command: java(directory, "Player") }),
        None => eprintln!("redisson is left out"),
    }
    match python.filter(|_| kind == "plain") {
        Some(modules) => {
            let script = include_str!("../clients/python_redis_lock.py");
            let mut command = Command::new("python3");
            command.args(["-c", script]).env("PYTHONPATH", modules);
            peers.push(Peer { name: "python", command });
        }
        None => eprintln!("python-redis-lock is left out"),
    }
    peers
}

fn named<C: Client>() -> &'static str {
    C::NAME
}

/// Runs the scenario. Panics if a peer's process fails.
pub fn measure(
    (name, kind): (&'static str, &'static str),
    server: &mut Server,
    rounds: usize,
    peers: Vec<Peer>,
) -> Measurement {
    let mut rows: Vec<Row> = peers.into_iter().map(|peer| Row::start(peer, kind, server)).collect();
    for row in &mut rows {
        // Twice: a just-in-time compiler has to warm up.
        row.round(TIME);
        row.forget();
        let monitor = Monitor::begin(server);
        row.round(TIME);
        row.commands = monitor.end(server).total() as f64 / row.turns().max(1) as f64;
        row.forget();
    }
    for round in 0..rounds {
        there_and_back(round, &mut rows, |row| {
            let (server_before, client_before) = (server_cpu(server), row.cpu());
            row.round(TIME);
            row.server_cpu += server_cpu(server) - server_before;
            row.client_cpu += row.cpu() - client_before;
        });
    }
    // Redisson's semaphore is a count that stays.
    let _: usize = server.control(&["DEL", &name_of("permits", "redisson")]);
    let mut all = Rows::new(name, rows, |row| format!("{name}: {} took {} turns", row.name, row.turns()));
    all.push("turns a second", 0, None, |row| row.turns() as f64 / row.time.as_secs_f64());
    all.push("wait p50, ms", 2, None, |row| row.millis(0.5));
    all.push("wait p95, ms", 2, None, |row| row.millis(0.95));
    all.push("wait p99, ms", 2, None, |row| row.millis(0.99));
    all.push("longest wait, ms", 1, None, |row| row.millis(1.0));
    all.push("Jain's index of the threads", 3, None, Row::jain);
    all.push("commands of a turn", 2, None, |row| row.commands);
    all.push("CPU of the clients, µs of a turn", 0, None, |row| row.client_cpu / row.turns() as f64 * 1e6);
    all.push("CPU of the server, µs of a turn", 0, None, |row| row.server_cpu / row.turns() as f64 * 1e6);
    all.measurement
}

/// The name of a row's lock or semaphore.
fn name_of(kind: &str, client: &str) -> String {
    format!("{kind}-{client}")
}

/// Seconds of the server's CPU time.
fn server_cpu(server: &mut Server) -> f64 {
    let info: String = server.control(&["INFO", "cpu"]);
    let of = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    of("used_cpu_user:").unwrap_or(0.0) + of("used_cpu_sys:").unwrap_or(0.0)
}

struct Row {
    name: &'static str,
    kind: &'static str,
    processes: Vec<Member>,
    waits: Histogram<u64>,
    by_thread: Vec<u64>,
    time: Duration,
    commands: f64,
    client_cpu: f64,
    server_cpu: f64,
}

impl figure::Row for Row {
    fn client(&self) -> &'static str {
        self.name
    }
}

impl Row {
    fn start(peer: Peer, kind: &'static str, server: &Server) -> Self {
        let processes = (0..PROCESSES).map(|_| {
            let mut command = Command::new(peer.command.get_program());
            command.args(peer.command.get_args()).arg(server.url());
            command.envs(peer.command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            if peer.name == "redisson" {
                // The timeout of its watchdog.
                command.arg("30000");
            }
            let process = Member::start(command);
            process.greeting(PATIENCE).expect("a process that starts");
            process
        });
        let processes = processes.collect();
        let waits = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("sensible bounds");
        Self {
            name: peer.name,
            kind,
            processes,
            waits,
            by_thread: vec![0; PROCESSES * THREADS],
            time: Duration::ZERO,
            commands: 0.0,
            client_cpu: 0.0,
            server_cpu: 0.0,
        }
    }

    fn round(&mut self, time: Duration) {
        let Self { name, kind, .. } = self;
        let said = format!("pace {kind} {} {} {TURN}", name_of(kind, name), time.as_millis());
        let threads = self.processes.iter().flat_map(|process| (0..THREADS).map(move |it| (process, it)));
        let asked: Vec<_> =
            threads.map(|(process, thread)| process.begin(&thread.to_string(), &said)).collect();
        for (asked, turns) in asked.iter().zip(&mut self.by_thread) {
            let answer = asked.answer(time + PATIENCE).expect("a process that goes on");
            let waits = answer.strip_prefix("waited").expect("a player's answer");
            for wait in waits.split_whitespace() {
                let (nanos, times) = wait.split_once('x').expect("a wait, and how often");
                let times: u64 = times.parse().expect("a number");
                let nanos = nanos.parse::<u64>().expect("a number").max(1);
                self.waits.record_n(nanos.min(60_000_000_000), times).expect("within the bounds");
                *turns += times;
            }
        }
        self.time += time;
    }

    fn forget(&mut self) {
        self.waits.clear();
        self.by_thread.fill(0);
        self.time = Duration::ZERO;
    }

    fn turns(&self) -> u64 {
        self.by_thread.iter().sum()
    }

    fn millis(&self, quantile: f64) -> f64 {
        self.waits.value_at_quantile(quantile) as f64 / 1e6
    }

    fn jain(&self) -> f64 {
        let squares: u64 = self.by_thread.iter().map(|turns| turns * turns).sum();
        let all = self.turns() as f64;
        all * all / (self.by_thread.len() as f64 * squares.max(1) as f64)
    }

    fn cpu(&self) -> f64 {
        self.processes.iter().map(cpu).sum()
    }
}

/// Seconds of CPU time of a process, with all its threads; zero without `/proc`.
fn cpu(process: &Member) -> f64 {
    // The unit of `/proc`, whatever the kernel's own is.
    const TICKS_A_SECOND: f64 = 100.0;
    let stat = fs::read_to_string(format!("/proc/{}/stat", process.id())).unwrap_or_default();
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let ticks: f64 = fields.split(' ').skip(11).take(2).filter_map(|field| field.parse::<f64>().ok()).sum();
    ticks / TICKS_A_SECOND
}

/// Runs this program as a process of a Rust client. Panics on any error, which the parent sees.
pub fn be_player(client: &str, url: &str) {
    let mut players = Vec::from(each_client!(player()));
    players.extend(each_client_beside!(LatchworkFair, player()));
    players.extend([player::<TwoPermits>(), player::<TwoNames>()]);
    let (_, play) = players.into_iter().find(|(name, _)| *name == client).expect("a client's name");
    play(url);
}

type Player = (&'static str, fn(&str));

fn player<C: Client>() -> Player {
    (C::NAME, play::<C>)
}

fn play<C: Client>(url: &str) {
    let mut told = orders();
    super::super::runtime().block_on(async {
        let mut connected: Option<Arc<C>> = None;
        let mut tasks = JoinSet::new();
        answer(READY, C::NAME);
        while let Some((thread, said)) = told.recv().await {
            let words: Vec<&str> = said.split(' ').collect();
            let ["pace", _, name, millis, turn] = words[..] else { panic!("{said:?}") };
            let client = match &connected {
                Some(client) => Arc::clone(client),
                None => Arc::clone(connected.insert(Arc::new(C::connect(url, name).await))),
            };
            let (millis, turn) = (millis.parse().expect("ms"), turn.parse().expect("ms"));
            tasks.spawn(async move {
                let waits = pace(&*client, millis, turn).await;
                let waits: Vec<_> = waits.iter().map(|nanos| format!("{nanos}x1")).collect();
                answer(&thread, format_args!("waited {}", waits.join(" ")));
            });
        }
    });
}

async fn pace<C: Client>(client: &C, millis: u64, turn: u64) -> Vec<u64> {
    let end = Instant::now() + Duration::from_millis(millis);
    let mut waits = Vec::new();
    loop {
        let begun = Instant::now();
        if begun >= end {
            return waits;
        }
        let guard = client.lock().await;
        waits.push(begun.elapsed().as_nanos() as u64);
        let turn = fastrand::u64(0..=turn);
        if turn > 0 {
            tokio::time::sleep(Duration::from_millis(turn)).await;
        }
        client.unlock(guard).await;
    }
}

//! The read-write lock: its writers beside the plain lock and BLPOP; its readers' cost and wake-up.

use std::sync::Arc;
use std::time::Duration;

use fleet::clock;
use hdrhistogram::Histogram;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::super::board::Board;
use super::super::children::{Part, Run};
use super::super::clients::{Client, LatchworkRead, LatchworkWrite};
use super::super::figure::{Figure, Goal, Measurement};
use super::super::monitor::Monitor;
use super::super::reading::Reading;
use super::super::runtime;
use super::super::server::Server;
use super::super::turns::{LOOK, Taken};
use super::commands;
use super::hand_off::{eight, granted, two};
use crate::each_client_beside;

pub(super) const NAME: &str = "read_write";

const READ: &str = LatchworkRead::NAME;
const WRITE: &str = LatchworkWrite::NAME;

const PROCESSES: u64 = 4;
const TASKS: u64 = 8;
const READERS: u64 = PROCESSES * TASKS;
/// Time of a round.
const TIME: Duration = Duration::from_millis(1500);
/// Sleep of the readers before the wake-up: enough for the last of them to fall asleep.
const ASLEEP: Duration = Duration::from_millis(20);
/// Microseconds of a read that a writer has to wait for.
const READ_FOR: u64 = 20_000;
/// Microseconds between two writes.
const AWAY: std::ops::Range<u64> = 20_000..60_000;

pub(super) fn measure(server: &mut Server, rounds: usize) -> Measurement {
    let rows = [each_client_beside!(LatchworkWrite, two()), each_client_beside!(LatchworkWrite, eight())];
    let handed_off = granted(NAME, WRITE, rows.map(Vec::from), server, rounds);
    handed_off
        .and(alone(server))
        .and(woken(server, rounds))
        .and(behind_readers(server, rounds))
        .and(inside(server))
}

fn figure(what: &'static str, digits: usize, most: Option<f64>, row: &'static str, value: f64) -> Figure {
    let goal = most.map(|most| Goal::AtMostBy { row, most });
    Figure { scenario: NAME, what, digits, goal, values: vec![(row, value)] }
}

fn alone(server: &mut Server) -> Measurement {
    let mut measurement = Measurement::default();
    for (row, commands, sent) in
        [commands::row::<LatchworkRead>(server), commands::row::<LatchworkWrite>(server)]
    {
        measurement.notes.push(format!("{NAME}: {row} sends {sent}, alone"));
        measurement.figures.push(figure("commands of lock + unlock", 2, Some(2.0), row, commands));
    }
    measurement
}

/// Readers of several processes wait for a writer, which releases.
fn woken(server: &mut Server, rounds: usize) -> Measurement {
    let [mut first, mut last] = [(); 2].map(|()| histogram());
    let (mut commands, mut messages, mut times) = (0, 0, 0);
    let part = Part::Reading(Reading { tasks: TASKS, hold: None });
    for _ in 0..rounds {
        beside_readers(server, part.clone(), async |server, board, writer| {
            let mut taken = Taken::default();
            while !board.is_over() {
                let sent = wake_all(server, board, writer, taken.entered + 1).await;
                taken.entered += 1;
                let (first_one, last_one) = board.woken();
                first.saturating_record(first_one.as_nanos() as u64);
                last.saturating_record(last_one.as_nanos() as u64);
                (commands, messages, times) = (commands + sent.0, messages + sent.1, times + 1);
            }
            board.end_rounds();
            taken
        });
    }
    let a_time = |sum: u64| sum as f64 / f64::from(times);
    Measurement {
        figures: vec![
            figure("32 readers woken: the first, p50, us", 0, None, READ, micros(&first, 0.5)),
            figure("32 readers woken: the last, p50, us", 0, None, READ, micros(&last, 0.5)),
            figure("32 readers woken: the last, p99, us", 0, None, READ, micros(&last, 0.99)),
            // The writer's command, and one of each process.
            figure("32 readers woken: commands", 1, Some(PROCESSES as f64 + 1.0), READ, a_time(commands)),
            figure("32 readers woken: messages", 1, Some(1.0), READ, a_time(messages)),
        ],
        notes: vec![format!("{NAME}: {READERS} readers of {PROCESSES} processes woken {times} times")],
    }
}

/// Returns the numbers of commands and of messages.
async fn wake_all(server: &mut Server, board: &Board, writer: &LatchworkWrite, round: u64) -> (u64, u64) {
    board.arrive();
    let guard = writer.lock().await;
    board.enter(PROCESSES);
    board.begin_round();
    while board.waiting() < READERS {
        sleep(LOOK).await;
    }
    sleep(ASLEEP).await;
    let before = calls(server);
    board.hand_off();
    writer.unlock(guard).await;
    while board.reads() < READERS * round {
        sleep(LOOK).await;
    }
    sleep(LOOK).await;
    let after = calls(server);
    board.dismiss();
    (after.0 - before.0, after.1 - before.1)
}

/// Scripts and messages so far. A script publishes a message, and the server counts its commands as well.
fn calls(server: &mut Server) -> (u64, u64) {
    let calls = server.calls();
    let sum = |names: &[&str]| names.iter().filter_map(|name| calls.get(*name)).sum();
    (sum(&["evalsha", "eval"]), sum(&["publish", "spublish"]))
}

fn behind_readers(server: &mut Server, rounds: usize) -> Measurement {
    let mut measurement = Measurement::default();
    let lines = [
        (1, "behind 4 readers: p50, ms", "behind 4 readers: longest, ms", [Some(16.0), Some(21.0)]),
        (TASKS, "behind 32 readers: p50, ms", "behind 32 readers: longest, ms", [None; 2]),
    ];
    for (tasks, p50, longest, goals) in lines {
        let mut waits = histogram();
        let part = Part::Reading(Reading { tasks, hold: Some(READ_FOR) });
        for _ in 0..rounds {
            beside_readers(server, part.clone(), async |_, board, writer| {
                let mut taken = Taken::default();
                while !board.is_over() {
                    sleep(Duration::from_micros(fastrand::u64(AWAY))).await;
                    board.arrive();
                    let begun = clock::now();
                    let guard = writer.lock().await;
                    waits.saturating_record(clock::now() - begun);
                    board.enter(PROCESSES);
                    taken.entered += 1;
                    board.leave();
                    writer.unlock(guard).await;
                }
                taken
            });
        }
        measurement.figures.push(figure(p50, 1, goals[0], WRITE, micros(&waits, 0.5) / 1e3));
        measurement.figures.push(figure(longest, 1, goals[1], WRITE, waits.max() as f64 / 1e6));
        let readers = PROCESSES * tasks;
        measurement.notes.push(format!("{NAME}: {} writes behind {readers} readers", waits.len()));
    }
    measurement
}

/// Runs a writer's work while other processes read.
fn beside_readers(
    server: &mut Server,
    part: Part,
    does: impl AsyncFnOnce(&mut Server, &Board, &LatchworkWrite) -> Taken,
) {
    let run = Run { client: READ, name: NAME, processes: PROCESSES, part, time: TIME, counted: false };
    let runtime = runtime();
    let writer = runtime.block_on(LatchworkWrite::connect(&server.url(), NAME));
    run.run_beside(server, |server, board| {
        let taken = runtime.block_on(does(server, board, &writer));
        // Ends the writer's subscriptions.
        drop((writer, runtime));
        taken
    });
}

fn inside(server: &mut Server) -> Measurement {
    let runtime = runtime();
    let client = Arc::new(runtime.block_on(LatchworkRead::connect(&server.url(), NAME)));
    let board = Arc::new(Board::default());
    let reading = Reading { tasks: READERS, hold: Some(500) };
    let monitor = Monitor::begin(server);
    board.begin(TIME);
    let taken = runtime.block_on(async {
        let mut tasks = JoinSet::new();
        for _ in 0..reading.tasks {
            let (client, board, reading) = (Arc::clone(&client), Arc::clone(&board), reading.clone());
            tasks.spawn(async move { reading.read(&*client, &board).await });
        }
        let mut taken = Taken::default();
        tasks.join_all().await.into_iter().for_each(|task| taken.add(task));
        taken
    });
    let sent = monitor.end(server);
    board.assert_right(taken.entered);
    server.assert_empty(READ);
    let commands = sent.total() as f64 / taken.entered as f64;
    let notes =
        vec![format!("{NAME}: {READERS} readers of one process: {} reads, {}", taken.entered, sent.per(1))];
    Measurement {
        figures: vec![figure("32 readers inside: commands of a read", 3, None, READ, commands)],
        notes,
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("sensible bounds")
}

fn micros(nanos: &Histogram<u64>, quantile: f64) -> f64 {
    nanos.value_at_quantile(quantile) as f64 / 1e3
}

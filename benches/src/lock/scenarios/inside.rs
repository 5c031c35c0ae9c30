//! Hand-offs between tasks of one process: with one waiter, and with a queue of seven.

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::super::board::Board;
use super::super::clients::Client;
use super::super::figure::{Figure, Goal, Measurement};
use super::super::monitor::Monitor;
use super::super::runtime;
use super::super::server::Server;
use super::super::turns::{self, Taken, Turns};
use super::there_and_back;
use crate::each_client;

pub(super) const NAME: &str = "inside";

/// Time of a client in a round.
const TIME: Duration = Duration::from_millis(700);
/// Time of the counted round: a tenure grows without contention.
const COUNTED: Duration = Duration::from_millis(2100);
/// Microseconds that a waiter sleeps before the release: enough to fall asleep.
const ASLEEP: u64 = 2_000;

const LINES: [(u64, &str, &str, Option<Goal>); 2] = [
    // No commands within the tenure; the hold is a tenth of the shortest tenure.
    (2, "2 tasks: commands", "2 tasks: p50, us", Some(Goal::AtMost(0.1))),
    (8, "8 tasks: commands", "8 tasks: p50, us", Some(Goal::AtMost(0.1))),
];

pub(super) fn measure(server: &mut Server, rounds: usize) -> Measurement {
    let mut measurement = Measurement::default();
    for (tasks, commands, p50, goal) in LINES {
        let mut rows = each_client!(row(server, tasks));
        for row in &mut rows {
            let (monitor, taken) = (Monitor::begin(server), row.run(COUNTED));
            let sent = monitor.end(server);
            row.commands = sent.total() as f64 / taken.entered as f64;
            let sent = sent.per(taken.entered);
            measurement.notes.push(format!("{NAME}, {tasks} tasks: {} sends {sent}", row.client));
        }
        for round in 0..rounds {
            there_and_back(round, &mut rows, Row::time);
        }
        let values = rows.iter().map(|row| (row.client, row.commands)).collect();
        measurement.figures.push(Figure { scenario: NAME, what: commands, digits: 1, goal, values });
        let micros = |row: &Row| row.nanos.value_at_quantile(0.5) as f64 / 1e3;
        let values = rows.iter().map(|row| (row.client, micros(row))).collect();
        measurement.figures.push(Figure {
            scenario: NAME,
            what: p50,
            digits: 0,
            goal: Some(Goal::AtMost(10.0)),
            values,
        });
    }
    server.assert_empty(NAME);
    measurement
}

struct Row {
    client: &'static str,
    round: Box<dyn Fn(Duration) -> Taken>,
    commands: f64,
    nanos: Histogram<u64>,
}

fn row<C: Client>(server: &Server, tasks: u64) -> Row {
    let runtime = runtime();
    let name = format!("{NAME}:{tasks}:{}", C::NAME);
    let client = Arc::new(runtime.block_on(C::connect(&server.url(), &name)));
    let longer = C::POLLS.map_or(ASLEEP, |interval| interval.as_micros() as u64);
    let turns = Turns { waiting: tasks - 1, hold: ASLEEP..ASLEEP + longer };
    let round = move |time| round(&runtime, &client, tasks, &turns, time);
    let nanos = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("sensible bounds");
    Row { client: C::NAME, round: Box::new(round), commands: 0.0, nanos }
}

fn round<C: Client>(runtime: &Runtime, client: &Arc<C>, tasks: u64, turns: &Turns, time: Duration) -> Taken {
    let board = Arc::new(Board::default());
    board.begin(time);
    let mut taken = Taken::default();
    let ended = runtime.block_on(async {
        let mut running = JoinSet::new();
        for _ in 0..tasks {
            let (client, board, turns) = (Arc::clone(client), Arc::clone(&board), turns.clone());
            running.spawn(async move { turns::take(&*client, &board, 0, &turns).await });
        }
        running.join_all().await
    });
    ended.into_iter().for_each(|task| taken.add(task));
    board.assert_right(taken.entered);
    taken
}

impl Row {
    fn run(&self, time: Duration) -> Taken {
        (self.round)(time)
    }

    fn time(&mut self) {
        for nanos in self.run(TIME).nanos {
            self.nanos.saturating_record(nanos);
        }
    }
}

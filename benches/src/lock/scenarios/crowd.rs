//! Four processes with eight tasks each, whose queues are never empty: whether each of them has its turns.

use std::time::Duration;

use super::super::children::{Part, Run};
use super::super::clients::Client;
use super::super::figure::{Figure, Goal, Measurement};
use super::super::monitor::Sent;
use super::super::server::Server;
use super::convoy::{Convoy, PROCESSES};
use super::there_and_back;
use crate::each_client;

pub(super) const NAME: &str = "crowd";

/// Of one client in one round.
const TIME: Duration = Duration::from_secs(3);

const CROWD: Convoy = Convoy { tasks: 8, hold: 500, think: 0..0 };

/// Five tenures of each process.
const LONGEST_WAIT: f64 = 5.0 * 30.0 * PROCESSES as f64;

pub(super) fn measure(server: &mut Server, rounds: usize) -> Measurement {
    let mut rows = each_client!(row());
    rows.iter_mut().for_each(|row| row.count(server));
    for round in 0..rounds {
        there_and_back(round, &mut rows, |row| row.time(server));
    }
    let mut measurement = Measurement::default();
    for row in &rows {
        let (sent, entered) = &row.sent;
        let (sent, remote) = (sent.per(*entered), row.remote as f64 / row.entered as f64 * 100.0);
        let note = format!("{NAME}: {} sends {sent}; {remote:.1} % go to another process", row.client);
        measurement.notes.push(note);
    }
    let mut push = |what, digits, goal, of: fn(&Row) -> f64| {
        let values = rows.iter().map(|row| (row.client, of(row))).collect();
        measurement.figures.push(Figure { scenario: NAME, what, digits, goal, values });
    };
    push("commands of a hand-off", 1, Some(Goal::AtMost(0.5)), |row| {
        row.sent.0.total() as f64 / row.sent.1 as f64
    });
    push("hand-offs a second", 0, None, |row| row.entered as f64 / row.seconds);
    push("longest wait, ms", 0, Some(Goal::AtMost(LONGEST_WAIT)), |row| row.longest.as_secs_f64() * 1e3);
    push("turns of the process served least, %", 0, Some(Goal::AtLeast(15.0)), |row| row.least * 100.0);
    measurement
}

struct Row {
    client: &'static str,
    /// What was sent, and for how many acquisitions.
    sent: (Sent, u64),
    entered: u64,
    remote: u64,
    seconds: f64,
    longest: Duration,
    /// Which part of a round's turns a process had at least.
    least: f64,
}

fn row<C: Client>() -> Row {
    let sent = (Sent::default(), 0);
    let longest = Duration::ZERO;
    Row { client: C::NAME, sent, entered: 0, remote: 0, seconds: 0.0, longest, least: 1.0 }
}

impl Row {
    fn run(&self, counted: bool) -> Run<'static> {
        let (client, part) = (self.client, Part::Convoy(CROWD));
        Run { client, name: NAME, processes: PROCESSES, part, time: TIME, counted }
    }

    fn count(&mut self, server: &mut Server) {
        let outcome = self.run(true).run(server);
        self.sent = (outcome.sent.expect("it was counted"), outcome.taken.entered);
    }

    fn time(&mut self, server: &mut Server) {
        let outcome = self.run(false).run(server);
        self.entered += outcome.taken.entered;
        self.remote += outcome.board.remote();
        self.seconds += TIME.as_secs_f64();
        self.longest = self.longest.max(Duration::from_nanos(outcome.taken.longest));
        let least = outcome.by_process.iter().min().copied().unwrap_or(0);
        self.least = self.least.min(least as f64 / outcome.taken.entered.max(1) as f64);
    }
}

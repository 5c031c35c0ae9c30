//! Two processes: one has the lock, the other sleeps until it is let go of.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::super::children::{Part, Run};
use super::super::clients::Client;
use super::super::figure::{Figure, Goal, Measurement};
use super::super::monitor::Sent;
use super::super::server::Server;
use super::super::turns::Turns;
use super::there_and_back;
use crate::each_client;

pub(super) const NAME: &str = "hand_off";

/// Of one client in one round.
const TIME: Duration = Duration::from_millis(1500);

/// How long the other one sleeps before it is called, in microseconds: enough to have fallen asleep.
const ASLEEP: u64 = 3_000;
/// And how much longer at most.
const LONGER: u64 = 10_000;

pub(super) fn measure(server: &mut Server, rounds: usize) -> Measurement {
    let mut rows = each_client!(row());
    rows.iter_mut().for_each(|row| row.count(server));
    for round in 0..rounds {
        there_and_back(round, &mut rows, |row| row.time(server));
    }
    let mut measurement = Measurement::default();
    for row in &rows {
        let (sent, entered) = &row.sent;
        measurement.notes.push(format!(
            "{NAME}: {} sends {}; times of {} hand-offs",
            row.client,
            sent.per(*entered),
            row.nanos.len()
        ));
    }
    let mut push = |what, digits, goal, of: fn(&Row) -> f64| {
        let values = rows.iter().map(|row| (row.client, of(row))).collect();
        measurement.figures.push(Figure { scenario: NAME, what, digits, goal, values });
    };
    push("p50, us", 0, Some(Goal::OfBestPeer(0.5)), |row| row.micros(0.5));
    push("p99, us", 0, None, |row| row.micros(0.99));
    push("commands", 1, Some(Goal::AtMost(3.0)), |row| row.sent.0.total() as f64 / row.sent.1 as f64);
    measurement
}

struct Row {
    client: &'static str,
    /// Whoever asks at intervals is called at a moment that has nothing to do with them.
    longer: u64,
    nanos: Histogram<u64>,
    /// What was sent, and for how many acquisitions.
    sent: (Sent, u64),
}

fn row<C: Client>() -> Row {
    let longer = C::POLLS.map_or(LONGER, |interval| interval.as_micros() as u64);
    let nanos = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("sensible bounds");
    Row { client: C::NAME, longer, nanos, sent: (Sent::default(), 0) }
}

impl Row {
    fn run(&self, counted: bool) -> Run<'_> {
        let turns = Turns { waiting: 1, hold: ASLEEP..ASLEEP + self.longer };
        Run { client: self.client, name: NAME, processes: 2, part: Part::Turns(turns), time: TIME, counted }
    }

    fn micros(&self, quantile: f64) -> f64 {
        self.nanos.value_at_quantile(quantile) as f64 / 1e3
    }

    fn count(&mut self, server: &mut Server) {
        let outcome = self.run(true).run(server);
        self.sent = (outcome.sent.expect("it was counted"), outcome.taken.entered);
    }

    fn time(&mut self, server: &mut Server) {
        let outcome = self.run(false).run(server);
        // Were it not so, somebody would have been timed who did not come from the other process.
        assert_eq!(outcome.board.remote(), outcome.taken.entered, "{}: turns were not taken", self.client);
        for nanos in outcome.taken.nanos {
            self.nanos.saturating_record(nanos);
        }
    }
}

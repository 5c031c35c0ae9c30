//! Two processes, or more: one has the lock, the others sleep until its release.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::super::children::{Part, Run};
use super::super::clients::{Blpop, Client};
use super::super::figure::{self, Goal, Measurement, Rows};
use super::super::monitor::Sent;
use super::super::server::{Server, Spent};
use super::super::turns::Turns;
use super::there_and_back;
use crate::each_client;

pub(super) const NAME: &str = "hand_off";

/// Time of a client in a round.
const TIME: Duration = Duration::from_millis(1500);

/// Microseconds that a waiter sleeps at least before the release: enough to fall asleep.
const ASLEEP: u64 = 3_000;
/// Microseconds added at most.
const LONGER: u64 = 10_000;

pub(super) fn measure(server: &mut Server, rounds: usize) -> Measurement {
    let mut handed = handed_off(NAME, each_client!(two()).into(), server, rounds);
    handed.push("p50, us", 0, Some(Goal::OfBestPeer(0.5)), |row| row.micros(0.5));
    handed.push("p99, us", 0, None, |row| row.micros(0.99));
    handed.push("commands", 1, Some(Goal::AtMost(3.0)), Row::commands);
    push_spent(&mut handed, ["bytes over the network", "CPU of the server, us"]);
    handed.measurement
}

fn handed_off(name: &'static str, mut rows: Vec<Row>, server: &mut Server, rounds: usize) -> Rows<Row> {
    rows.iter_mut().for_each(|row| row.count(name, server));
    for round in 0..rounds {
        there_and_back(round, &mut rows, |row| row.time(name, server));
    }
    Rows::new(name, rows, |row| {
        let (sent, entered) = &row.sent;
        format!(
            "{name}: {} sends {} among {} processes; times of {} hand-offs",
            row.client,
            sent.per(*entered),
            row.processes,
            row.nanos.len()
        )
    })
}

/// Hand-offs among two processes and among eight, of a lock that the store grants; `ours` names our row.
pub(super) fn granted(
    name: &'static str,
    ours: &'static str,
    [two, eight]: [Vec<Row>; 2],
    server: &mut Server,
    rounds: usize,
) -> Measurement {
    let of_blpop = |times| Some(Goal::OfRow { row: ours, peer: Blpop::NAME, times });
    // The waiter's attempt, and the release. (After a PING, which is not counted.)
    let commands = Some(Goal::AtMostBy { row: ours, most: 2.0 });

    let mut two = handed_off(name, two, server, rounds);
    two.push("2 processes: p50, us", 0, of_blpop(1.05), |row| row.micros(0.5));
    two.push("2 processes: p99, us", 0, None, |row| row.micros(0.99));
    two.push("2 processes: commands", 1, commands, Row::commands);
    push_spent(&mut two, ["2 processes: bytes over the network", "2 processes: CPU of the server, us"]);

    let mut eight = handed_off(name, eight, server, rounds);
    eight.push("8 processes: p50, us", 0, of_blpop(1.0), |row| row.micros(0.5));
    eight.push("8 processes: p99, us", 0, None, |row| row.micros(0.99));
    eight.push("8 processes: commands", 1, commands, Row::commands);
    push_spent(&mut eight, ["8 processes: bytes over the network", "8 processes: CPU of the server, us"]);
    two.measurement.and(eight.measurement)
}

/// Adds the server's cost of a hand-off, with the cost of connecting.
fn push_spent(rows: &mut Rows<Row>, [bytes, cpu]: [&'static str; 2]) {
    rows.push(bytes, 0, None, |row| row.spent.0.bytes as f64 / row.spent.1 as f64);
    rows.push(cpu, 0, None, |row| row.spent.0.cpu.as_secs_f64() * 1e6 / row.spent.1 as f64);
}

impl figure::Row for Row {
    fn client(&self) -> &'static str {
        self.client
    }
}

pub(super) struct Row {
    client: &'static str,
    processes: u64,
    /// Random extra time, to keep releases out of step with clients that ask at intervals.
    longer: u64,
    nanos: Histogram<u64>,
    /// The commands sent, and the acquisitions meanwhile.
    sent: (Sent, u64),
    /// The server's resources, and the acquisitions meanwhile.
    spent: (Spent, u64),
}

pub(super) fn two<C: Client>() -> Row {
    row::<C>(2)
}

pub(super) fn eight<C: Client>() -> Row {
    row::<C>(8)
}

fn row<C: Client>(processes: u64) -> Row {
    let longer = C::POLLS.map_or(LONGER, |interval| interval.as_micros() as u64);
    let nanos = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("sensible bounds");
    Row {
        client: C::NAME,
        processes,
        longer,
        nanos,
        sent: (Sent::default(), 0),
        spent: (Spent::default(), 0),
    }
}

impl Row {
    fn run<'a>(&self, name: &'a str, counted: bool) -> Run<'a> {
        let turns = Turns { waiting: self.processes - 1, hold: ASLEEP..ASLEEP + self.longer };
        let (client, processes) = (self.client, self.processes);
        Run { client, name, processes, part: Part::Turns(turns), time: TIME, counted }
    }

    fn commands(&self) -> f64 {
        self.sent.0.total() as f64 / self.sent.1 as f64
    }

    fn micros(&self, quantile: f64) -> f64 {
        self.nanos.value_at_quantile(quantile) as f64 / 1e3
    }

    fn count(&mut self, name: &str, server: &mut Server) {
        let outcome = self.run(name, true).run(server);
        self.sent = (outcome.sent.expect("it was counted"), outcome.taken.entered);
    }

    fn time(&mut self, name: &str, server: &mut Server) {
        let before = server.spent();
        let outcome = self.run(name, false).run(server);
        self.spent.0 += server.spent() - before;
        self.spent.1 += outcome.taken.entered;
        // Otherwise the hand-off went to a task of the same process.
        assert_eq!(outcome.board.remote(), outcome.taken.entered, "{}: turns were not taken", self.client);
        for nanos in outcome.taken.nanos {
            self.nanos.saturating_record(nanos);
        }
    }
}

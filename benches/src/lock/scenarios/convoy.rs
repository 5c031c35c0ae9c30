//! Four processes with eight tasks each crowd before one lock; each task pauses between its turns.

use std::time::Duration;

use super::super::children::{Part, Run};
use super::super::clients::Client;
use super::super::convoy::Convoy;
use super::super::figure::{self, Goal, Measurement, Rows};
use super::super::monitor::Sent;
use super::super::server::Server;
use super::there_and_back;
use crate::each_client;

pub(super) const NAME: &str = "convoy";

pub(super) const PROCESSES: u64 = 4;

const WALK: Walk = Walk {
    name: NAME,
    convoy: Convoy { tasks: 8, hold: 500, think: 1_000..20_000 },
    time: Duration::from_millis(1500),
};

pub(super) fn measure(server: &mut Server, rounds: usize) -> Measurement {
    let mut walked = WALK.walked(each_client!(row()).into(), server, rounds);
    walked.push("commands of a hand-off", 1, Some(Goal::AtMost(5.0)), Row::commands);
    walked.push("hand-offs a second", 0, None, Row::rate);
    walked.push("largest gap, ms", 1, None, |row| row.largest_gap.as_secs_f64() * 1e3);
    walked.push("stalls, gaps > 100 ms", 0, Some(Goal::AtMost(0.0)), |row| row.stalls as f64);
    walked.measurement
}

pub(super) struct Walk {
    pub(super) name: &'static str,
    pub(super) convoy: Convoy,
    /// Time of a client in a round.
    pub(super) time: Duration,
}

impl Walk {
    pub(super) fn walked(&self, mut rows: Vec<Row>, server: &mut Server, rounds: usize) -> Rows<Row> {
        rows.iter_mut().for_each(|row| row.count(self, server));
        for round in 0..rounds {
            there_and_back(round, &mut rows, |row| row.time(self, server));
        }
        Rows::new(self.name, rows, |row| {
            let (sent, entered) = &row.sent;
            let (sent, remote) = (sent.per(*entered), row.remote as f64 / row.entered as f64 * 100.0);
            format!("{}: {} sends {sent}; {remote:.1} % go to another process", self.name, row.client)
        })
    }

    fn run(&self, client: &'static str, counted: bool) -> Run<'_> {
        let part = Part::Convoy(self.convoy.clone());
        Run { client, name: self.name, processes: PROCESSES, part, time: self.time, counted }
    }
}

impl figure::Row for Row {
    fn client(&self) -> &'static str {
        self.client
    }
}

pub(super) struct Row {
    client: &'static str,
    /// The commands sent, and the acquisitions meanwhile.
    sent: (Sent, u64),
    entered: u64,
    remote: u64,
    seconds: f64,
    largest_gap: Duration,
    stalls: u64,
    pub(super) longest_wait: Duration,
    /// The least share that a process had of a round's turns.
    pub(super) least: f64,
    /// The least of the rounds' Jain's indices over the processes' turns: 1 if all had as many.
    pub(super) jain: f64,
}

pub(super) fn row<C: Client>() -> Row {
    Row {
        client: C::NAME,
        sent: (Sent::default(), 0),
        entered: 0,
        remote: 0,
        seconds: 0.0,
        largest_gap: Duration::ZERO,
        stalls: 0,
        longest_wait: Duration::ZERO,
        least: 1.0,
        jain: 1.0,
    }
}

impl Row {
    /// Commands of a hand-off.
    pub(super) fn commands(&self) -> f64 {
        self.sent.0.total() as f64 / self.sent.1 as f64
    }

    /// Hand-offs a second.
    pub(super) fn rate(&self) -> f64 {
        self.entered as f64 / self.seconds
    }

    fn count(&mut self, walk: &Walk, server: &mut Server) {
        let outcome = walk.run(self.client, true).run(server);
        self.sent = (outcome.sent.expect("it was counted"), outcome.taken.entered);
    }

    fn time(&mut self, walk: &Walk, server: &mut Server) {
        let outcome = walk.run(self.client, false).run(server);
        self.entered += outcome.taken.entered;
        self.remote += outcome.board.remote();
        self.seconds += walk.time.as_secs_f64();
        self.largest_gap = self.largest_gap.max(outcome.board.largest_gap());
        self.stalls += outcome.board.stalls();
        self.longest_wait = self.longest_wait.max(Duration::from_nanos(outcome.taken.longest));
        let least = outcome.by_process.iter().min().copied().unwrap_or(0);
        self.least = self.least.min(least as f64 / outcome.taken.entered.max(1) as f64);
        let squares: u64 = outcome.by_process.iter().map(|entered| entered * entered).sum();
        let all = outcome.taken.entered as f64;
        self.jain = self.jain.min(all * all / (outcome.by_process.len() as f64 * squares.max(1) as f64));
    }
}

//! Four processes with eight tasks each crowd before one lock; each thinks for a while between its turns.

use std::ops::Range;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::super::board::Board;
use super::super::children::{Part, Run};
use super::super::clients::Client;
use super::super::clock;
use super::super::figure::{Figure, Goal, Measurement};
use super::super::monitor::Sent;
use super::super::server::Server;
use super::super::turns::Taken;
use super::there_and_back;
use crate::each_client;

pub(super) const NAME: &str = "convoy";

pub(super) const PROCESSES: u64 = 4;
/// Of one client in one round.
const TIME: Duration = Duration::from_millis(1500);

/// What one of the processes does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Convoy {
    /// How many tasks it has.
    pub tasks: u64,
    /// Microseconds that each holds the lock. Tokio's timers count milliseconds, so it is one, more or less.
    pub hold: u64,
    /// Microseconds that it does without it, at random from this range; comes again at once if it is empty.
    pub think: Range<u64>,
}

const CONVOY: Convoy = Convoy { tasks: 8, hold: 500, think: 1_000..20_000 };

impl Convoy {
    /// What each task does until the board's time is over.
    pub async fn walk<C: Client>(&self, client: &C, board: &Board, process: u64) -> Taken {
        let mut taken = Taken::default();
        while !board.is_over() {
            if !self.think.is_empty() {
                sleep(Duration::from_micros(fastrand::u64(self.think.clone()))).await;
            }
            board.arrive();
            let begun = clock::now();
            let guard = client.lock().await;
            taken.longest = taken.longest.max(clock::now() - begun);
            board.enter(process);
            taken.entered += 1;
            sleep(Duration::from_micros(self.hold)).await;
            board.leave();
            client.unlock(guard).await;
        }
        taken
    }
}

pub(super) fn measure(server: &mut Server, rounds: usize) -> Measurement {
    let mut rows = each_client!(row());
    rows.iter_mut().for_each(|row| row.count(server));
    for round in 0..rounds {
        there_and_back(round, &mut rows, |row| row.time(server));
    }
    let mut measurement = Measurement::default();
    for row in &rows {
        let (sent, entered) = &row.sent;
        let remote = row.remote as f64 / row.entered as f64 * 100.0;
        let sent = sent.per(*entered);
        measurement
            .notes
            .push(format!("{NAME}: {} sends {sent}; {remote:.0} % go to another process", row.client));
    }
    let mut push = |what, digits, goal, of: fn(&Row) -> f64| {
        let values = rows.iter().map(|row| (row.client, of(row))).collect();
        measurement.figures.push(Figure { scenario: NAME, what, digits, goal, values });
    };
    push("commands of a hand-off", 1, Some(Goal::AtMost(5.0)), |row| {
        row.sent.0.total() as f64 / row.sent.1 as f64
    });
    push("hand-offs a second", 0, None, |row| row.entered as f64 / row.seconds);
    push("largest gap, ms", 1, None, |row| row.largest_gap.as_secs_f64() * 1e3);
    push("stalls, gaps > 100 ms", 0, Some(Goal::AtMost(0.0)), |row| row.stalls as f64);
    measurement
}

struct Row {
    client: &'static str,
    /// What was sent, and for how many acquisitions.
    sent: (Sent, u64),
    entered: u64,
    remote: u64,
    seconds: f64,
    largest_gap: Duration,
    stalls: u64,
}

fn row<C: Client>() -> Row {
    let sent = (Sent::default(), 0);
    let (seconds, largest_gap) = (0.0, Duration::ZERO);
    Row { client: C::NAME, sent, entered: 0, remote: 0, seconds, largest_gap, stalls: 0 }
}

impl Row {
    fn run(&self, counted: bool) -> Run<'static> {
        let (client, part) = (self.client, Part::Convoy(CONVOY));
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
        self.largest_gap = self.largest_gap.max(outcome.board.largest_gap());
        self.stalls += outcome.board.stalls();
    }
}

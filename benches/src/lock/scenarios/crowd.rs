//! Four processes with eight tasks each, whose queues are never empty: each process has to get its turns.

use std::time::Duration;

use super::super::convoy::Convoy;
use super::super::figure::{Goal, Measurement};
use super::super::server::Server;
use super::convoy::{PROCESSES, Row, Walk, row};
use crate::each_client;

pub(super) const NAME: &str = "crowd";

pub(super) const WALK: Walk =
    Walk { name: NAME, convoy: Convoy { tasks: 8, hold: 500, think: 0..0 }, time: Duration::from_secs(3) };

/// Five tenures of each process.
const LONGEST_WAIT: f64 = 5.0 * 30.0 * PROCESSES as f64;

pub(super) fn measure(server: &mut Server, rounds: usize) -> Measurement {
    let mut walked = WALK.walked(each_client!(row()).into(), server, rounds);
    walked.push("commands of a hand-off", 1, Some(Goal::AtMost(0.5)), Row::commands);
    walked.push("hand-offs a second", 0, None, Row::rate);
    walked.push("longest wait, ms", 0, Some(Goal::AtMost(LONGEST_WAIT)), |row| {
        row.longest_wait.as_secs_f64() * 1e3
    });
    walked
        .push("turns of the process served least, %", 0, Some(Goal::AtLeast(15.0)), |row| row.least * 100.0);
    walked.measurement
}

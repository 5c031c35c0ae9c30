//! The scenarios, one file each.

mod commands;
mod convoy;
mod crowd;
mod fair;
mod hand_off;
mod inside;
pub mod others;
mod read_write;
mod reentry;
mod throughput;
mod uncontended;
mod watched;

use super::figure::Measurement;
use super::server::Server;

/// A scenario.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The name.
    pub name: &'static str,
    /// Runs the scenario.
    pub measure: fn(&mut Server, rounds: usize) -> Measurement,
}

/// All scenarios.
pub const SCENARIOS: [Scenario; 11] = [
    Scenario { name: commands::NAME, measure: commands::measure },
    Scenario { name: uncontended::NAME, measure: uncontended::measure },
    Scenario { name: throughput::NAME, measure: throughput::measure },
    Scenario { name: hand_off::NAME, measure: hand_off::measure },
    Scenario { name: convoy::NAME, measure: convoy::measure },
    Scenario { name: inside::NAME, measure: inside::measure },
    Scenario { name: reentry::NAME, measure: reentry::measure },
    Scenario { name: crowd::NAME, measure: crowd::measure },
    Scenario { name: fair::NAME, measure: fair::measure },
    Scenario { name: read_write::NAME, measure: read_write::measure },
    Scenario { name: watched::NAME, measure: watched::measure },
];

/// Calls `each` for the rows forwards, and in the next round backwards: no row always follows the same one.
fn there_and_back<T>(round: usize, rows: &mut [T], each: impl FnMut(&mut T)) {
    match round % 2 {
        0 => rows.iter_mut().for_each(each),
        _ => rows.iter_mut().rev().for_each(each),
    }
}

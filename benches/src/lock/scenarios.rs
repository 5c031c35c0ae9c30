//! What is measured, one file each.

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
    /// Its name.
    pub name: &'static str,
    /// Measures it.
    pub measure: fn(&mut Server, rounds: usize) -> Measurement,
}

/// All of them.
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

/// Does something to the rows in one order, and in the next round in the other, so that no row always comes
/// after the same one.
fn there_and_back<T>(round: usize, rows: &mut [T], each: impl FnMut(&mut T)) {
    match round % 2 {
        0 => rows.iter_mut().for_each(each),
        _ => rows.iter_mut().rev().for_each(each),
    }
}

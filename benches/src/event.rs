//! An event of a scenario, with one row for each peer.

use std::fmt;
use std::time::Duration;

use crate::peers::Peer;

/// An event in the life of a semaphore, and the time that each peer takes for it.
#[derive(Debug)]
pub struct Event {
    /// `scenario/event`.
    pub name: &'static str,
    /// Number of measured units in a round: 1000 waiters in a burst, for example.
    pub per_round: u32,
    /// The peers.
    pub rows: Vec<Row>,
}

/// One peer's measurement.
pub struct Row {
    /// The peer's name.
    pub peer: &'static str,
    run: Box<dyn FnMut(u64) -> Option<Duration>>,
}

impl Row {
    /// `run(n)` makes the event happen in `n` rounds, returns their duration, and checks the final state.
    pub fn new<P: Peer>(mut run: impl FnMut(u64) -> Duration + 'static) -> Self {
        Self::new_if_undisturbed::<P>(move |rounds| Some(run(rounds)))
    }

    /// As [`new`](Self::new), for an event that other programs can keep from happening.
    pub fn new_if_undisturbed<P: Peer>(run: impl FnMut(u64) -> Option<Duration> + 'static) -> Self {
        Self { peer: P::NAME, run: Box::new(run) }
    }

    /// Makes the event happen in `rounds` rounds. `None` if the machine was too busy with something else.
    pub fn run(&mut self, rounds: u64) -> Option<Duration> {
        (self.run)(rounds)
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row").field("peer", &self.peer).finish_non_exhaustive()
    }
}

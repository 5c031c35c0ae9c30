//! The distribution of increments and locks over the tasks.

#[cfg(feature = "redis")]
use std::ops::Range;

#[cfg(feature = "redis")]
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug)]
#[cfg_attr(feature = "redis", derive(Serialize, Deserialize))]
pub(crate) struct Plan {
    pub(crate) tasks: u32,
    pub(crate) locks: u32,
    /// Increments of all tasks together.
    pub(crate) increments: u64,
}

impl Plan {
    pub(crate) fn lock_of(&self, task: u32) -> usize {
        (task % self.locks) as usize
    }

    /// An equal part; the remainder goes to the first tasks, one each.
    pub(crate) fn increments_of(&self, task: u32) -> u64 {
        let tasks = u64::from(self.tasks);
        self.increments / tasks + u64::from(u64::from(task) < self.increments % tasks)
    }

    /// The tasks of one process. Neighbours, so that every process has some on every lock: taking every n-th
    /// task would give each process locks of its own.
    #[cfg(feature = "redis")]
    pub(crate) fn tasks_of(&self, process: u32, processes: u32) -> Range<u32> {
        let first = |process| self.tasks * process / processes;
        first(process)..first(process + 1)
    }
}

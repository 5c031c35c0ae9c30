//! What happened, as each process saw it: one line of JSON for each event, written at once, so that a process
//! which is killed takes no more than its last line with it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::clock::now;

/// One line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// When, by the clock that all processes share.
    pub(crate) at: u64,
    pub(crate) event: Event,
}

/// What a line tells. `id` is an acquisition's, counted by its process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Event {
    // === Of a worker ===
    /// Is about to ask for a lock.
    Wants { id: u64, name: u32, wish: Wish },
    /// Has a guard.
    Acquired { id: u64, owner: String, token: Option<u64> },
    /// `at` was taken, and then the guard said that it is held, for so long.
    Believes { id: u64, left: u64 },
    /// The guard has told its loss.
    Lost { id: u64, why: Why },
    /// Is about to give the lock back, or to forget it.
    LetsGo { id: u64, by: By },
    /// That has come to this.
    LetGo { id: u64, outcome: Outcome },
    /// Will not get a guard.
    Without { id: u64, why: Without },
    /// The process, or the machine under it, stood still since then.
    Stalled { since: u64 },
    /// Told to end, and nothing is going on any more; this is left in the registry.
    Quiet { entries: u64, interest: u64, subscriptions: u64 },
    /// Told to end, and this is still going on.
    Stuck { what: String },

    // === Of the stage ===
    /// A fault begins, of one worker's or of all.
    Fault { number: u64, kind: FaultKind, worker: Option<usize> },
    /// It is over.
    Over { number: u64 },
    /// Is about to force a lock free.
    Forces { name: u32 },
    /// Has done so.
    Forced { name: u32, free: bool },
    /// When all is over, this is on the server.
    Remains { keys: Vec<String>, channels: Vec<String> },
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Wish {
    /// For how long it is waited; `None`: as long as it takes.
    pub(crate) wait: Option<u64>,
    /// How long the lease is, each time.
    pub(crate) lease: u64,
    pub(crate) watched: bool,
    /// By an owner that was there before, and is used again.
    pub(crate) explicit: bool,
    pub(crate) fenced: bool,
    /// It is polled once, and then left alone for a while.
    pub(crate) unpolled: bool,
    /// Together with others that read; all others want the lock alone.
    pub(crate) reads: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum Why {
    Expired,
    Gone,
    Unreachable,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum By {
    Unlock,
    Drop,
    /// It stays held.
    Forget,
    /// Of what was forgotten.
    UnlockForgotten,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Free,
    NotHeld,
    /// It may have been given back or not.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Without {
    /// The store said that another owner has it.
    Refused,
    /// Its owner reads, and so may not write.
    Upgrade,
    /// The time was over.
    Late,
    /// The future was dropped.
    Dropped,
    /// An error; what was asked for may have been done or not.
    Failed,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum FaultKind {
    CommandsKilled,
    SubscriptionsKilled,
    LinksCut,
    ScriptsFlushed,
    Silence,
    DeadLinks,
    RepliesLost,
    Delay,
    Chopped,
    Paused,
    Killed,
    ServerKilled,
    ServerPaused,
    ServerStalled,
}

/// Appends to a file.
#[derive(Debug)]
pub(crate) struct Journal(File);

impl Journal {
    /// A new file.
    ///
    /// # Errors
    ///
    /// Those of the operating system.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        Ok(Self(OpenOptions::new().create_new(true).append(true).open(path)?))
    }

    /// Writes a line about this moment.
    pub(crate) fn tell(&self, event: Event) {
        self.tell_of(now(), event);
    }

    /// Writes a line about a moment that is over.
    pub(crate) fn tell_of(&self, at: u64, event: Event) {
        let mut line = serde_json::to_vec(&Record { at, event }).expect("nothing that JSON has not");
        line.push(b'\n');
        // One system call, so that lines of several threads do not mix, and none waits in this process to be
        // lost with it.
        (&self.0).write_all(&line).expect("cannot write the history");
    }
}

/// Reads a journal.
///
/// # Errors
///
/// If it cannot be read, or a line but the last makes no sense.
pub(crate) fn read(path: &Path) -> Result<Vec<Record>, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    parse(&text).map_err(|error| format!("{}: {error}", path.display()))
}

fn parse(text: &str) -> Result<Vec<Record>, String> {
    let mut records = Vec::new();
    for (number, line) in text.split_inclusive('\n').enumerate() {
        // The process that wrote it was killed meanwhile.
        let Some(line) = line.strip_suffix('\n') else { break };
        records.push(serde_json::from_str(line).map_err(|error| format!("line {}: {error}", number + 1))?);
    }
    Ok(records)
}

/// All journals of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) stage: Vec<Record>,
    pub(crate) workers: Vec<Life>,
}

impl History {
    /// Counts all times from the first one.
    pub(crate) fn since_its_start(mut self) -> Self {
        let lives = self.workers.iter().flat_map(|life| &life.records);
        let start = lives.chain(&self.stage).map(|record| record.at).min().unwrap_or(0);
        for record in self.workers.iter_mut().flat_map(|life| &mut life.records).chain(&mut self.stage) {
            record.at -= start;
            if let Event::Stalled { since } = &mut record.event {
                *since = since.saturating_sub(start);
            }
        }
        for killed in self.workers.iter_mut().filter_map(|life| life.killed.as_mut()) {
            *killed -= start;
        }
        self
    }
}

/// One process's.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    /// Which worker's. One that was killed has a next life.
    pub(crate) worker: usize,
    pub(crate) records: Vec<Record>,
    /// When it was killed, if it was.
    pub(crate) killed: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::{Event, Record, parse};

    #[test]
    fn line_that_was_cut_off_is_left_out() {
        let line = |at| {
            let record = Record { at, event: Event::Over { number: 1 } };
            serde_json::to_string(&record).unwrap() + "\n"
        };
        let text = line(1) + &line(2);
        assert_eq!(parse(&text).unwrap().len(), 2);
        assert_eq!(parse(&text[..text.len() - 1]).unwrap().len(), 1);
        assert_eq!(parse(&text[..text.len() - 9]).unwrap().len(), 1);
        assert!(parse(&text[3..]).is_err());
    }
}

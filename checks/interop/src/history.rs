//! What happened, as each process saw it, line by line in its journal.

use std::path::Path;

use fleet::clock::now;
use fleet::journal;
use serde::{Deserialize, Serialize};

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// When, by the clock that all processes share.
    pub(crate) at: u64,
    pub(crate) event: Event,
}

/// What a line tells. `id` is an acquisition's, counted by its process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    // === Of all ===
    /// A fault is over that began then: of that member, or of all; in a member's journal, its own.
    Fault { kind: FaultKind, member: Option<usize>, since: u64 },

    // === Of a member ===
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
    /// Told to stop, and nothing is going on any more; this is left in the registry.
    Quiet { entries: u64, interest: u64, subscriptions: u64 },
    /// Told to stop, and this is still going on.
    Stuck { what: String },

    // === Of the stage ===
    /// A lock was forced free, since then at most.
    Forced { name: u32, since: u64 },
    /// When all is over, this is on the server.
    Remains { what: Vec<String> },
}

/// What is asked for.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// The process, or the machine under it, stood still.
    Stalled,
}

impl FaultKind {
    /// How many milliseconds after its end it can still be felt: until then no process is blamed for being
    /// late.
    const fn recovery_millis(self) -> u64 {
        match self {
            // Noticed at once; a new connection takes 20 ms and a few round trips.
            Self::CommandsKilled | Self::SubscriptionsKilled | Self::LinksCut => 300,
            Self::ScriptsFlushed | Self::Chopped | Self::Stalled => 300,
            // What came late has to be worked off.
            Self::Delay | Self::Paused | Self::Killed => 1000,
            // A second to the next heartbeat and another to give up on it, and up to a second until the next
            // connection; or a reply that was waited for, and the next command over a dead connection.
            Self::Silence | Self::DeadLinks | Self::RepliesLost => 3500,
            Self::ServerKilled | Self::ServerPaused => 3500,
        }
    }

    pub(crate) const fn recovery(self) -> u64 {
        self.recovery_millis() * 1_000_000
    }

    /// Whether a command can be held back whose caller has gone, to take, prolong or free something later. (A
    /// command that was sent again because its connection had broken was not: its end came with the
    /// connection's.)
    pub(crate) const fn strands_commands(self) -> bool {
        self.recovery_millis() > 300
    }

    /// Whether commands go on as if nothing had happened.
    pub(crate) const fn spares_commands(self) -> bool {
        matches!(self, Self::SubscriptionsKilled | Self::ScriptsFlushed)
    }
}

/// Appends to a file.
#[derive(Debug)]
pub(crate) struct Journal(journal::Journal);

impl Journal {
    pub(crate) fn create(path: &Path) -> Self {
        Self(journal::Journal::create(path).expect("cannot make a journal"))
    }

    /// Writes a line about this moment.
    pub(crate) fn tell(&self, event: Event) {
        self.tell_of(now(), event);
    }

    /// Writes a line about a moment that is over.
    pub(crate) fn tell_of(&self, at: u64, event: Event) {
        self.0.write(&Record { at, event });
    }
}

/// All journals of a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) stage: Vec<Record>,
    pub(crate) lives: Vec<Life>,
}

impl History {
    /// Counts all times from the first one.
    pub(crate) fn since_its_start(mut self) -> Self {
        let records = || self.lives.iter().flat_map(|life| &life.records).chain(&self.stage);
        let start = records().map(|record| record.at).min().unwrap_or(0);
        for record in self.lives.iter_mut().flat_map(|life| &mut life.records).chain(&mut self.stage) {
            record.at -= start;
            if let Event::Fault { since, .. } | Event::Forced { since, .. } = &mut record.event {
                *since = since.saturating_sub(start);
            }
        }
        self.lives.iter_mut().filter_map(|life| life.killed.as_mut()).for_each(|killed| *killed -= start);
        self
    }
}

/// One process's.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    /// In which place. A member that was killed has a next life.
    pub(crate) member: usize,
    pub(crate) is_redisson: bool,
    pub(crate) records: Vec<Record>,
    /// When it was killed, if it was.
    pub(crate) killed: Option<u64>,
}

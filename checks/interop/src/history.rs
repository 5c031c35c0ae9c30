//! The history: what each process saw, line by line in its journal.

use std::path::Path;

use fleet::clock::now;
use fleet::journal;
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    /// Time of the event, by the clock that all processes share.
    pub(crate) at: u64,
    pub(crate) event: Event,
}

/// The event of a line. `id` numbers the acquisitions of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    // === Of all ===
    /// End of a fault that began at `since`, for one member or all of them; in a member's journal, its own.
    Fault { kind: FaultKind, member: Option<usize>, since: u64 },

    // === Of a member ===
    /// The task is about to ask for a lock.
    Wants { id: u64, name: u32, wish: Wish },
    /// The acquisition has a guard.
    Acquired { id: u64, owner: String, token: Option<u64> },
    /// Just after `at`, the guard said that the lock is held, for `left` more nanoseconds.
    Believes { id: u64, left: u64 },
    /// The guard reported its loss.
    Lost { id: u64, why: Why },
    /// The task is about to release the lock, or to forget the guard.
    LetsGo { id: u64, by: By },
    /// The outcome of the release.
    LetGo { id: u64, outcome: Outcome },
    /// The acquisition ended without a guard.
    Without { id: u64, why: Without },
    /// The member was told to stop and has no work left; the counts are those of its registry.
    Quiet { entries: u64, interest: u64, subscriptions: u64 },
    /// The member was told to stop, and this still goes on.
    Stuck { what: String },

    // === Of the stage ===
    /// A lock was forced free, at some time after `since`.
    Forced { name: u32, since: u64 },
    /// The keys and channels left on the server at the end.
    Remains { what: Vec<String> },
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Wish {
    /// Time limit of the wait; `None` for no limit.
    pub(crate) wait: Option<u64>,
    /// Lease time, of each renewal too.
    pub(crate) lease: u64,
    pub(crate) watched: bool,
    /// The owner is an explicit one, which may hold other locks already.
    pub(crate) explicit: bool,
    pub(crate) fenced: bool,
    /// The future is polled once, and then not polled for a while.
    pub(crate) unpolled: bool,
    /// The read side; all other acquisitions are exclusive.
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
    /// The guard is forgotten, and the lock stays held.
    Forget,
    /// A release by the owner of a forgotten guard.
    UnlockForgotten,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    Free,
    NotHeld,
    /// The release may have had its effect or not.
    Failed,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Without {
    /// Another owner has the lock, as the store said.
    Refused,
    /// The owner reads, and so may not write.
    Upgrade,
    /// The time limit was over.
    Late,
    Dropped,
    /// An error; the acquisition may have had its effect or not.
    Failed,
}

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
    /// Milliseconds of a fault's effect after its end: until then no process is blamed for being late.
    const fn recovery_millis(self) -> u64 {
        match self {
            // Noticed at once; a new connection takes 20 ms and a few round trips.
            Self::CommandsKilled | Self::SubscriptionsKilled | Self::LinksCut => 300,
            Self::ScriptsFlushed | Self::Chopped | Self::Stalled => 300,
            // The delayed commands have to be processed.
            Self::Delay | Self::Paused | Self::Killed => 1000,
            // A second to the next heartbeat, another to its timeout, and up to a second until the next
            // connection; or the timeout of a reply, and the next command over a dead connection.
            Self::Silence | Self::DeadLinks | Self::RepliesLost => 3500,
            Self::ServerKilled | Self::ServerPaused => 3500,
        }
    }

    pub(crate) const fn recovery(self) -> u64 {
        self.recovery_millis() * 1_000_000
    }

    /// True if the fault can delay a command beyond the life of its caller, so that the command acquires,
    /// renews or releases something later. (A command that was repeated after its connection broke is not
    /// delayed: the connection's end was the command's end.)
    pub(crate) const fn strands_commands(self) -> bool {
        self.recovery_millis() > 300
    }

    /// True if the fault does not affect commands.
    pub(crate) const fn spares_commands(self) -> bool {
        matches!(self, Self::SubscriptionsKilled | Self::ScriptsFlushed)
    }
}

#[derive(Debug)]
pub(crate) struct Journal(journal::Journal);

impl Journal {
    pub(crate) fn create(path: &Path) -> Self {
        Self(journal::Journal::create(path).expect("cannot make a journal"))
    }

    pub(crate) fn tell(&self, event: Event) {
        self.tell_of(now(), event);
    }

    /// Writes a line about the earlier moment `at`.
    pub(crate) fn tell_of(&self, at: u64, event: Event) {
        self.0.write(&Record { at, event });
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) stage: Vec<Record>,
    pub(crate) lives: Vec<Life>,
}

impl History {
    /// Makes all times relative to the first one.
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

/// The journal of one process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    /// The index of the member. A killed member has another life.
    pub(crate) member: usize,
    pub(crate) is_redisson: bool,
    pub(crate) records: Vec<Record>,
    /// Time of the kill, if the process was killed.
    pub(crate) killed: Option<u64>,
}

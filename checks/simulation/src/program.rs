//! [`Program`]: the operations of the processes of a run, and the incidents around them. Plain data, so that
//! a program can be drawn, shrunk, printed and kept.

mod draw;

use std::ops::Range;

use latchwork::LockKind;
use latchwork::backend::Mode;
use serde::{Deserialize, Serialize};

pub(crate) use self::draw::draw;
use crate::store::{Harm, Network};
use crate::time;
use crate::world::{Nanos, SECOND};

/// All inputs of a run, except for the code under test.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Program {
    /// Seed of the polling order, and of the behaviour of network and store.
    pub(crate) schedule: u64,
    /// Names of locks; operations refer to a name by its index.
    pub(crate) names: Vec<String>,
    pub(crate) network: Network,
    pub(crate) processes: Vec<Plan>,
    /// Sorted by time.
    pub(crate) incidents: Vec<Incident>,
    /// From this time on, tasks begin no operation, and release their holds.
    #[serde(with = "time")]
    pub(crate) end: Nanos,
    /// Prefix of each name by the clients' name mappers, included in [`Self::names`].
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) prefix: String,
    /// If true, tasks keep the handles that they have used until they end.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) keeps_handles: bool,
    /// If not 0, sleeps end at a multiple of this time, so that many events fall on the same moment.
    #[serde(with = "time", skip_serializing_if = "is_default")]
    pub(crate) beat: Nanos,
}

/// The settings and the tasks of a client.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Plan {
    /// True if the client shares process and backend with the client before.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) is_beside: bool,
    /// Excess speed of the process's clock over the world's, in millionths.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) clock_ppm: i64,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) options: Options,
    /// Operations of each task, performed in order.
    pub(crate) tasks: Vec<Vec<Op>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Options {
    #[serde(with = "time::option", skip_serializing_if = "is_default")]
    pub(crate) watchdog_timeout: Option<Nanos>,
    #[serde(with = "time::option", skip_serializing_if = "is_default")]
    pub(crate) tenure: Option<Nanos>,
    #[serde(with = "time::option", skip_serializing_if = "is_default")]
    pub(crate) max_hold: Option<Nanos>,
    #[serde(with = "time::option", skip_serializing_if = "is_default")]
    pub(crate) unpolled_limit: Option<Nanos>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) label: Option<String>,
}

pub(crate) const OWNERS: usize = 3;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Incident {
    #[serde(with = "time")]
    pub(crate) at: Nanos,
    pub(crate) what: Trouble,
}

impl Incident {
    /// Returns the time when the harm is done. The effects may last longer.
    pub(crate) fn ends(&self) -> Nanos {
        self.at
            + match &self.what {
                Trouble::Suspend { lasts, .. } | Trouble::Harm(Harm::Silence { lasts, .. }) => *lasts,
                Trouble::Kill { restarts_after, .. } => restarts_after.unwrap_or(0),
                Trouble::Harm(_) => 0,
            }
    }
}

/// An incident. Processes are indices into the program's.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Trouble {
    Harm(Harm),
    /// Kills the process. After a restart, its tasks continue with their next operations.
    Kill {
        process: usize,
        #[serde(with = "time::option")]
        restarts_after: Option<Nanos>,
    },
    Suspend {
        process: usize,
        #[serde(with = "time")]
        lasts: Nanos,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum LockSide {
    Plain,
    Fair,
    Read,
    Write,
    /// A semaphore.
    Permits,
}

impl LockSide {
    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Plain => Mode::Plain,
            Self::Fair => Mode::Fair,
            Self::Read => Mode::Read,
            Self::Write => Mode::Write,
            Self::Permits => Mode::Permits,
        }
    }

    pub(crate) fn of_store(self) -> LockKind {
        match self {
            Self::Plain => LockKind::Plain,
            Self::Fair => LockKind::Fair,
            Self::Read | Self::Write => LockKind::ReadWrite,
            Self::Permits => LockKind::Semaphore,
        }
    }
}

/// A lock of the program: a name and a kind, or a side of a read-write lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Which {
    pub(crate) name: usize,
    pub(crate) kind: LockSide,
}

impl Which {
    /// Returns the same lock, seen from the reader's side if the lock is a read-write lock.
    pub(crate) fn by_reader(self) -> Self {
        let kind = if self.kind == LockSide::Write { LockSide::Read } else { self.kind };
        Self { kind, ..self }
    }

    /// True if both belong to one lock at the store: the same lock, or the sides of a read-write lock.
    pub(crate) fn is_one_with(self, other: Self) -> bool {
        self.name == other.name && self.kind.of_store() == other.kind.of_store()
    }
}

/// Permits of an acquisition, by a handle of this capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Permits {
    pub(crate) count: u32,
    pub(crate) capacity: u32,
}

impl Default for Permits {
    fn default() -> Self {
        Self { count: 1, capacity: 1 }
    }
}

/// An operation of a task. `hold` indexes the task's holds, modulo their number; without holds, a no-op.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Op {
    Sleep(#[serde(with = "time")] Nanos),
    Acquire {
        lock: Which,
        #[serde(default, skip_serializing_if = "is_default")]
        owner: Option<usize>,
        #[serde(default, skip_serializing_if = "is_default")]
        fenced: bool,
        /// Of a semaphore, whose acquisitions have neither an owner nor a token.
        #[serde(default, skip_serializing_if = "is_default")]
        permits: Permits,
        how: How,
        #[serde(default, skip_serializing_if = "is_default")]
        care: Care,
    },
    /// Of several names at once; a program's names may give two of one name, which is refused.
    AcquireAll {
        locks: Vec<Which>,
        how: How,
        #[serde(default, skip_serializing_if = "is_default")]
        care: Care,
    },
    Extend {
        hold: usize,
        #[serde(with = "time")]
        lease: Nanos,
        #[serde(default, skip_serializing_if = "is_default")]
        care: Care,
    },
    Unlock {
        hold: usize,
        #[serde(default, skip_serializing_if = "is_default")]
        care: Care,
    },
    Drop {
        hold: usize,
    },
    Forget {
        hold: usize,
    },
    /// Unlocks as the owner of the first forgotten hold, or else of the task's first guard of a lock.
    UnlockByOwner {
        #[serde(default, skip_serializing_if = "is_default")]
        care: Care,
    },
    ForceUnlock {
        lock: Which,
        #[serde(default, skip_serializing_if = "is_default")]
        care: Care,
    },
    EnsureHeld {
        hold: usize,
        #[serde(default, skip_serializing_if = "is_default")]
        care: Care,
    },
    /// `lost_timeout` if `timeout` is given, otherwise `lost`, dropped after a while.
    Lost {
        hold: usize,
        #[serde(with = "time::option")]
        timeout: Option<Nanos>,
        #[serde(default, skip_serializing_if = "is_default")]
        care: Care,
    },
    Ask {
        lock: Which,
        what: Question,
        #[serde(default, skip_serializing_if = "is_default")]
        care: Care,
    },
    Shutdown(#[serde(with = "time")] Nanos),
    /// A shutdown that serves the waiters first.
    Drain(#[serde(with = "time")] Nanos),
    /// Work that runs until the hold ends, and then releases it. With `looks`, the work has the guard, and
    /// takes a step each tenth of its time.
    Run {
        hold: usize,
        #[serde(with = "time")]
        work: Nanos,
        #[serde(default, skip_serializing_if = "is_default")]
        looks: bool,
        #[serde(default, skip_serializing_if = "is_default")]
        care: Care,
    },
    /// Drops the process's client, while guards, calls and handles of this client may remain.
    DropClient,
}

impl Op {
    /// The locks that the operation names.
    pub(crate) fn locks(&self) -> &[Which] {
        match self {
            Self::Acquire { lock, .. } | Self::ForceUnlock { lock, .. } | Self::Ask { lock, .. } => {
                std::slice::from_ref(lock)
            }
            Self::AcquireAll { locks, .. } => locks,
            _ => &[],
        }
    }

    pub(crate) fn waker(&self) -> WakerKind {
        self.care().map_or(WakerKind::Plain, |care| care.waker)
    }

    pub(crate) fn care(&self) -> Option<&Care> {
        match self {
            Self::Acquire { care, .. }
            | Self::AcquireAll { care, .. }
            | Self::Extend { care, .. }
            | Self::Unlock { care, .. }
            | Self::UnlockByOwner { care }
            | Self::ForceUnlock { care, .. }
            | Self::EnsureHeld { care, .. }
            | Self::Lost { care, .. }
            | Self::Run { care, .. }
            | Self::Ask { care, .. } => Some(care),
            Self::Sleep(_)
            | Self::Drop { .. }
            | Self::Forget { .. }
            | Self::Shutdown(_)
            | Self::Drain(_)
            | Self::DropClient => None,
        }
    }
}

/// A query of a lock's state, or of one of the process's owners. About a semaphore, the queries that only
/// locks have ask for [`Usage`](Self::Usage).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Question {
    Holder,
    Usage,
    IsLocked,
    Remaining,
    HoldCount(usize),
    IsHeldBy(usize),
    Stats,
    Waiters,
    Metrics,
    Listing,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum How {
    Lock,
    Leased(#[serde(with = "time")] Nanos),
    Try,
    TryFor {
        #[serde(with = "time")]
        wait: Nanos,
        /// Watched, if absent.
        #[serde(with = "time::option")]
        lease: Option<Nanos>,
    },
}

impl How {
    /// The requested lease; absent if watched.
    pub(crate) fn lease(&self) -> Option<Nanos> {
        match self {
            Self::Leased(lease) => Some(*lease),
            Self::TryFor { lease, .. } => *lease,
            Self::Lock | Self::Try => None,
        }
    }
}

/// How an operation's future is polled and dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Care {
    /// Number of polls after which the future is dropped.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) drop_after: Option<u32>,
    /// Stall of the future: kept after some polls, and not polled for a while.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) stall: Option<Stall>,
    /// Time after which the future is dropped.
    #[serde(with = "time::option", skip_serializing_if = "is_default")]
    pub(crate) limit: Option<Nanos>,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) waker: WakerKind,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stall {
    pub(crate) polls: u32,
    #[serde(with = "time")]
    pub(crate) lasts: Nanos,
    /// If true, the future is dropped after the stall, without another poll that would show it the news.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) drops: bool,
}

/// The reaction of the waker, beside waking its task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WakerKind {
    #[default]
    Plain,
    Panics,
    Looks,
    /// Tries to acquire the same lock once, and releases it at once.
    Tries,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Program {
    pub(crate) fn operations(&self) -> usize {
        self.processes.iter().flat_map(|plan| &plan.tasks).map(Vec::len).sum()
    }

    /// Strips the mapper's prefix from a store's name.
    pub(crate) fn called<'a>(&self, name: &'a str) -> &'a str {
        name.strip_prefix(&self.prefix).unwrap_or(name)
    }

    /// Returns the locks that operations name, each once, sorted.
    pub(crate) fn locks(&self) -> Vec<Which> {
        let operations = self.processes.iter().flat_map(|plan| &plan.tasks).flatten();
        let mut locks: Vec<Which> =
            operations.flat_map(Op::locks).copied().filter(|lock| lock.name < self.names.len()).collect();
        locks.sort();
        locks.dedup();
        locks
    }

    /// Returns the program for a store where all processes are clients in one process: one clock, no network.
    pub(crate) fn in_one_process(&self) -> Self {
        let mut program = self.clone();
        let Network { answer_limit, .. } = program.network;
        program.network = Network { answer_limit, ..Network::default() };
        program.incidents.retain(|incident| matches!(incident.what, Trouble::Suspend { .. }));
        program.processes.iter_mut().for_each(|plan| (plan.clock_ppm, plan.is_beside) = (0, false));
        program
    }

    /// Returns the program for a store over which each process has a clock of its own.
    pub(crate) fn in_processes(&self) -> Self {
        let mut program = self.clone();
        let mut clock_ppm = 0;
        for plan in &mut program.processes {
            if plan.is_beside {
                plan.clock_ppm = clock_ppm;
            }
            clock_ppm = plan.clock_ppm;
        }
        program
    }

    /// Returns the clients of the process of `client`, itself among them.
    pub(crate) fn clients_beside(&self, client: usize) -> Range<usize> {
        let first = (0..=client).rev().find(|at| !self.processes[*at].is_beside).unwrap_or(0);
        let after = self.processes[client + 1..].iter().take_while(|plan| plan.is_beside).count();
        first..client + 1 + after
    }

    /// Returns the time when the last harm is done and network faults end. Their effects may last longer.
    pub(crate) fn faults_end(&self) -> Nanos {
        let ends = self.incidents.iter().map(Incident::ends);
        let network = if self.network.is_faulty() { self.network.faults_end } else { 0 };
        ends.max().unwrap_or(0).max(network)
    }

    pub(crate) fn set_back(&self) -> Nanos {
        let by = self.incidents.iter().map(|incident| match incident.what {
            Trouble::Harm(Harm::SetClock(by)) if by < 0 => by.unsigned_abs(),
            _ => 0,
        });
        by.sum()
    }

    pub(crate) fn longest_stall(&self) -> Nanos {
        let operations = self.processes.iter().flat_map(|plan| &plan.tasks).flatten();
        let stalls = operations.filter_map(|operation| operation.care()?.stall.as_ref());
        stalls.map(|stall| stall.lasts).max().unwrap_or(0)
    }

    pub(crate) fn longest_lease(&self) -> Nanos {
        let operations = self.processes.iter().flat_map(|plan| &plan.tasks).flatten();
        let leases = operations.map(|operation| match operation {
            Op::Extend { lease, .. } => *lease,
            Op::Acquire { how, .. } | Op::AcquireAll { how, .. } => how.lease().unwrap_or(0),
            _ => 0,
        });
        let watched = self.processes.iter().map(|plan| plan.options.watchdog_timeout());
        leases.chain(watched).max().unwrap_or(30 * SECOND)
    }

    /// Longest time for which a client may remember forgotten permits: no owner can release them, and the
    /// watchdog stays until the end of the lease, even if the store loses the lease earlier.
    pub(crate) fn longest_forgotten_permits(&self) -> Nanos {
        let operations = || self.processes.iter().flat_map(|plan| &plan.tasks).flatten();
        let is_permits = |lock: &Which| lock.kind == LockSide::Permits;
        let forgets = operations().any(|op| matches!(op, Op::Forget { .. }));
        // A slow clock prolongs the time.
        let longest = self.longest_lease() + self.longest_lease() / 50;
        if forgets && self.locks().iter().any(is_permits) { longest } else { 0 }
    }

    /// Prints the program as text that [`parse`](Self::parse) reads.
    pub(crate) fn text(&self) -> String {
        let pretty = ron::ser::PrettyConfig::new().depth_limit(5).compact_structs(false);
        ron::Options::default()
            .with_default_extension(ron::extensions::Extensions::IMPLICIT_SOME)
            .to_string_pretty(self, pretty)
            .expect("programs are plain data")
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let options =
            ron::Options::default().with_default_extension(ron::extensions::Extensions::IMPLICIT_SOME);
        options.from_str(text).map_err(|error| error.to_string())
    }
}

impl Options {
    pub(crate) fn watchdog_timeout(&self) -> Nanos {
        self.watchdog_timeout.unwrap_or(30 * SECOND)
    }

    pub(crate) fn unpolled_limit(&self) -> Nanos {
        self.unpolled_limit.unwrap_or(SECOND)
    }

    /// Converts to the client's options; names at the store begin with `prefix`.
    pub(crate) fn of_client(&self, prefix: &str) -> latchwork::LockOptions {
        let mut options = latchwork::LockOptions::default();
        let duration = crate::store::duration;
        if let Some(timeout) = self.watchdog_timeout {
            options = options.watchdog_timeout(duration(timeout));
        }
        if let Some(tenure) = self.tenure {
            options = options.tenure(duration(tenure));
        }
        if let Some(limit) = self.max_hold {
            options = options.max_hold(duration(limit));
        }
        if let Some(limit) = self.unpolled_limit {
            options = options.unpolled_limit(duration(limit));
        }
        if let Some(label) = &self.label {
            options = options.label(label);
        }
        if !prefix.is_empty() {
            let prefix = prefix.to_owned();
            options = options.name_mapper(move |name| [&prefix, name].concat());
        }
        options
    }
}

impl Network {
    pub(crate) fn is_faulty(&self) -> bool {
        let faults = [self.late, self.requests_lost, self.replies_lost, self.twice];
        let others = [self.refused, self.reordered, self.messages_cut, self.deaf];
        faults.into_iter().chain(others).any(|fault| fault > 0)
    }
}

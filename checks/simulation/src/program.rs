//! [`Program`]: what the processes of a run do, and what is done to them. Plain data, so that it can be
//! drawn, shrunk, printed and kept.

mod draw;

use latchwork::LockKind;
use latchwork::backend::Mode;
use serde::{Deserialize, Serialize};

pub(crate) use self::draw::draw;
use crate::store::{Harm, Network};
use crate::time;
use crate::world::{Nanos, SECOND};

/// All that a run depends on, but for the code that it runs.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Program {
    /// Seed of the order in which tasks are polled, and of what network and store do.
    pub(crate) schedule: u64,
    /// Names of locks, which operations call by their index.
    pub(crate) names: Vec<String>,
    pub(crate) network: Network,
    pub(crate) processes: Vec<Plan>,
    /// In the order of their times.
    pub(crate) incidents: Vec<Incident>,
    /// Tasks begin no operation from here on, and give back what they hold.
    #[serde(with = "time")]
    pub(crate) end: Nanos,
    /// What the clients' name mappers put before each name. It is a part of [`Self::names`], which are the
    /// store's.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) prefix: String,
    /// Tasks keep the handles that they have used until they end.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) keeps_handles: bool,
    /// A sleeper sleeps until a multiple of this, if it is not 0: much happens at the same moments then.
    #[serde(with = "time", skip_serializing_if = "is_default")]
    pub(crate) beat: Nanos,
}

/// What a process is, and what it does.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Plan {
    /// How much faster than the world's its clock runs, in millionths.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) clock_ppm: i64,
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) options: Options,
    /// Each runs its operations one after another.
    pub(crate) tasks: Vec<Vec<Op>>,
}

/// Of the process's client. What is absent is as by default.
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

/// How many owners the tasks of a process share.
pub(crate) const OWNERS: usize = 3;

/// What happens to a process, or to the store, at a moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Incident {
    #[serde(with = "time")]
    pub(crate) at: Nanos,
    pub(crate) what: Trouble,
}

/// Processes are the program's, by their index.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Trouble {
    Harm(Harm),
    /// It is killed, and started again after a while, if at all. Its tasks go on with their next operations
    /// then.
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

/// A side of a kind of lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) enum LockSide {
    Plain,
    Fair,
    Read,
    Write,
}

impl LockSide {
    pub(crate) fn mode(self) -> Mode {
        match self {
            Self::Plain => Mode::Plain,
            Self::Fair => Mode::Fair,
            Self::Read => Mode::Read,
            Self::Write => Mode::Write,
        }
    }

    pub(crate) fn of_store(self) -> LockKind {
        match self {
            Self::Plain => LockKind::Plain,
            Self::Fair => LockKind::Fair,
            Self::Read | Self::Write => LockKind::ReadWrite,
        }
    }
}

/// A lock of the program: one side of it, if it is a read-write lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Which {
    /// Index of the name.
    pub(crate) name: usize,
    pub(crate) kind: LockSide,
}

impl Which {
    /// The same lock, by the reader's side if it is a read-write lock.
    pub(crate) fn by_reader(self) -> Self {
        let kind = if self.kind == LockSide::Write { LockSide::Read } else { self.kind };
        Self { kind, ..self }
    }

    /// Whether both are of one lock at the store: the same, or the sides of a read-write lock.
    pub(crate) fn is_one_with(self, other: Self) -> bool {
        self.name == other.name && self.kind.of_store() == other.kind.of_store()
    }
}

/// What a task does. Holds are those that the task has, by their index modulo their number; without any the
/// operation is left out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Op {
    Sleep(#[serde(with = "time")] Nanos),
    Acquire {
        lock: Which,
        #[serde(default, skip_serializing_if = "is_default")]
        owner: Option<usize>,
        #[serde(default, skip_serializing_if = "is_default")]
        fenced: bool,
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
    /// By the owner of the first hold that was forgotten, or else of the task's first guard.
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
    /// `lost_timeout` if there is a time, otherwise `lost`, which is given up after a while.
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
    /// Work that ends with the hold, which is given back then. `looks`: it has its guard, and takes a step
    /// each tenth of its time.
    Run {
        hold: usize,
        #[serde(with = "time")]
        work: Nanos,
        #[serde(default, skip_serializing_if = "is_default")]
        looks: bool,
        #[serde(default, skip_serializing_if = "is_default")]
        care: Care,
    },
    /// The process's client goes, beside whatever there is by it: guards, calls, handles.
    DropClient,
}

impl Op {
    /// The waker that its future is polled with, if it has one.
    pub(crate) fn waker(&self) -> WakerKind {
        self.care().map_or(WakerKind::Plain, |care| care.waker)
    }

    /// What becomes of its future, if it has one.
    pub(crate) fn care(&self) -> Option<&Care> {
        match self {
            Self::Acquire { care, .. }
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
            | Self::DropClient => None,
        }
    }
}

/// What is asked of a lock, about one of the process's owners if about any.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Question {
    Holder,
    IsLocked,
    Remaining,
    HoldCount(usize),
    IsHeldBy(usize),
    Stats,
    Waiters,
    Metrics,
    /// What the client holds and waits for, of all locks.
    Listing,
}

/// How a lock is taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum How {
    Lock,
    Leased(#[serde(with = "time")] Nanos),
    Try,
    TryFor {
        #[serde(with = "time")]
        wait: Nanos,
        /// Watched, if it is absent.
        #[serde(with = "time::option")]
        lease: Option<Nanos>,
    },
}

/// What becomes of an operation's future.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Care {
    /// Dropped after so many polls.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) drop_after: Option<u32>,
    /// After so many polls, kept and not polled for so long.
    #[serde(skip_serializing_if = "is_default")]
    pub(crate) stall: Option<Stall>,
    /// Dropped after so long.
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
    /// Then it is dropped, and not polled once more: whatever it was told meanwhile, it has not heard.
    #[serde(default, skip_serializing_if = "is_default")]
    pub(crate) drops: bool,
}

/// What the waker does that the future is polled with, beside waking its task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WakerKind {
    #[default]
    Plain,
    /// It panics each time.
    Panics,
    /// It looks at the lock and the client.
    Looks,
    /// It tries to take the same lock once, and lets go at once.
    Tries,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Program {
    /// How many operations there are.
    pub(crate) fn operations(&self) -> usize {
        self.processes.iter().flat_map(|plan| &plan.tasks).map(Vec::len).sum()
    }

    /// What tasks call a name that the store has.
    pub(crate) fn called<'a>(&self, name: &'a str) -> &'a str {
        name.strip_prefix(&self.prefix).unwrap_or(name)
    }

    /// The locks that operations name, each once and in order.
    pub(crate) fn locks(&self) -> Vec<Which> {
        let operations = self.processes.iter().flat_map(|plan| &plan.tasks).flatten();
        let mut locks: Vec<Which> = operations
            .filter_map(|operation| match operation {
                Op::Acquire { lock, .. } | Op::ForceUnlock { lock, .. } | Op::Ask { lock, .. } => Some(*lock),
                _ => None,
            })
            .filter(|lock| lock.name < self.names.len())
            .collect();
        locks.sort();
        locks.dedup();
        locks
    }

    /// As it can be played where all processes are clients in one: with one clock, and no network.
    pub(crate) fn in_one_process(&self) -> Self {
        let mut program = self.clone();
        let Network { answer_limit, .. } = program.network;
        program.network = Network { answer_limit, ..Network::default() };
        program.incidents.retain(|incident| matches!(incident.what, Trouble::Suspend { .. }));
        program.processes.iter_mut().for_each(|plan| plan.clock_ppm = 0);
        program
    }

    /// When the last harm is done and network faults are over. What they did may be felt later.
    pub(crate) fn faults_end(&self) -> Nanos {
        let ends = self.incidents.iter().map(|incident| {
            incident.at
                + match &incident.what {
                    Trouble::Kill { restarts_after, .. } => restarts_after.unwrap_or(0),
                    Trouble::Harm(Harm::Silence { lasts, .. }) | Trouble::Suspend { lasts, .. } => *lasts,
                    Trouble::Harm(_) => 0,
                }
        });
        let network = if self.network.is_faulty() { self.network.faults_end } else { 0 };
        ends.max().unwrap_or(0).max(network)
    }

    /// By how much the store's clock is set back in all.
    pub(crate) fn set_back(&self) -> Nanos {
        let by = self.incidents.iter().map(|incident| match incident.what {
            Trouble::Harm(Harm::SetClock(by)) if by < 0 => by.unsigned_abs(),
            _ => 0,
        });
        by.sum()
    }

    /// The longest time for which some future is kept and not polled.
    pub(crate) fn longest_stall(&self) -> Nanos {
        let operations = self.processes.iter().flat_map(|plan| &plan.tasks).flatten();
        let stalls = operations.filter_map(|operation| operation.care()?.stall.as_ref());
        stalls.map(|stall| stall.lasts).max().unwrap_or(0)
    }

    /// The longest lease that some operation asks for.
    pub(crate) fn longest_lease(&self) -> Nanos {
        let operations = self.processes.iter().flat_map(|plan| &plan.tasks).flatten();
        let leases = operations.map(|operation| match operation {
            Op::Acquire { how: How::Leased(lease), .. } | Op::Extend { lease, .. } => *lease,
            Op::Acquire { how: How::TryFor { lease, .. }, .. } => lease.unwrap_or(0),
            _ => 0,
        });
        let watched = self.processes.iter().map(|plan| plan.options.watchdog_timeout());
        leases.chain(watched).max().unwrap_or(30 * SECOND)
    }

    /// As text that [`parse`](Self::parse) reads.
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

    /// As the client takes them, whose names begin with `prefix` at the store.
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
    /// Whether anything can go wrong on the way.
    pub(crate) fn is_faulty(&self) -> bool {
        let faults = [self.late, self.requests_lost, self.replies_lost, self.twice];
        let others = [self.refused, self.reordered, self.messages_cut, self.deaf];
        faults.into_iter().chain(others).any(|fault| fault > 0)
    }
}

//! [`Store`]: the store of a simulation's locks, as judges and faults see it.

use std::time::Duration;

use latchwork::backend::{self, Backend, Mode};
use latchwork::{LockKind, LockOptions};
use serde::{Deserialize, Serialize};

use crate::time;
use crate::world::{Nanos, Process, SECOND, World};

pub(crate) mod local;
mod model;
pub(crate) mod redis;
pub(crate) mod twin;

pub(crate) use self::model::Model;
pub(crate) use self::redis::SimulatedRedis;

/// Limit on the arrival of bytes from a link closed by its client; the lock counts on no more than this.
pub(crate) const LATEST_RUN: Nanos = backend::LATEST_RUN.as_secs() * SECOND;

pub(crate) trait Store: Sized + Send + Sync + 'static {
    /// True if processes share only the store and the network: each can be killed, and has a clock.
    const APART: bool = true;

    /// Limit on the time until the store notices the end of a client whose link did not report the end.
    const NOTICES_WITHIN: Nanos = 0;

    /// True if all tasks of a process belong to its client, and none to the store.
    const HAS_NO_TASKS: bool = true;

    /// True if the store learns that a writer's lease has expired, and then lets waiting readers in.
    const KNOWS_LAPSED_WRITERS: bool = true;

    type Backend: Backend + Clone;

    fn new(world: &World, network: &Network) -> Self;

    /// Returns the backend of a process's clients. The future connects, if necessary.
    fn connect(&self, process: &Process) -> impl Future<Output = Self::Backend> + Send + 'static;

    fn options(&self, options: LockOptions) -> LockOptions {
        options
    }

    fn leases(&self, kind: LockKind, name: &str) -> Vec<StoredLease>;

    /// Does harm. Returns false if this store cannot suffer such harm.
    fn harm(&self, harm: &Harm) -> bool;

    /// Called after a process was killed: its operating system closes its connections.
    fn died(&self, _process: &Process) {}

    /// Number of commands of the process that may still take effect.
    fn under_way(&self, process: &Process) -> usize;

    fn is_idle(&self, process: &Process) -> bool {
        self.under_way(process) == 0
    }

    /// Describes leftovers in store and network after the end of all clients and leases: ideally none.
    fn left_over(&self) -> Vec<String>;

    /// Describes the first breach, by a client, of the contract of backends and transports.
    fn breach(&self) -> Option<String> {
        None
    }

    /// True if a subscription of the process to a channel of this name may have been refused since `since`.
    fn may_have_refused(&self, _process: &Process, _name: &str, _since: Nanos) -> bool {
        true
    }

    /// Time at which the client was last told that this lock is held, unless the client has had the lock
    /// since; `None` if never, or unknown.
    fn told_held(&self, _client: &str, _mode: Mode, _name: &str) -> Option<Nanos> {
        None
    }

    /// Number of subscriptions of the process, except for lingering ones; `None` if unknown.
    fn subscriptions(&self, _process: &Process) -> Option<usize> {
        None
    }

    /// True if clients learn the number of other listeners that heard of their releases.
    fn counts_listeners(&self) -> bool {
        true
    }

    /// Number of commands of the process about locks that have run; a renewal counts once per lease.
    fn asked(&self, _process: &Process) -> u64 {
        0
    }

    fn commands(&self) -> u64;

    /// A number that changes whenever the result of [`leases`](Self::leases) may change, except by the mere
    /// end of a lease.
    fn changes(&self) -> u64 {
        self.commands()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredLease {
    /// Equals [`LockClient::id`].
    pub(crate) client: String,
    pub(crate) number: u64,
    pub(crate) ends: Nanos,
    pub(crate) is_shared: bool,
    /// Of a semaphore; 1 for a lock.
    pub(crate) permits: u32,
}

/// The quality of the network between clients and store while faults last. Probabilities are in thousandths.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Network {
    /// End of all faults; from then on, each one-way delay is at most [`Self::latency`].
    #[serde(with = "time")]
    pub(crate) faults_end: Nanos,
    /// Maximum one-way delay, unless late.
    #[serde(with = "time")]
    pub(crate) latency: Nanos,
    /// Probability of a late delivery, by up to [`Self::late_by`].
    pub(crate) late: u32,
    #[serde(with = "time")]
    pub(crate) late_by: Nanos,
    pub(crate) requests_lost: u32,
    pub(crate) replies_lost: u32,
    pub(crate) twice: u32,
    /// Probability that a command is refused in transit: the client learns that the command did not run.
    pub(crate) refused: u32,
    /// Probability that a command may overtake other commands of its client.
    pub(crate) reordered: u32,
    /// Probability that a message is lost together with its subscription, which is then renewed.
    pub(crate) messages_cut: u32,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) deaf: u32,
    /// Time after which a client gives up waiting for an answer.
    #[serde(with = "time")]
    pub(crate) answer_limit: Nanos,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Harm done once, at a moment of the program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Harm {
    /// The store forgets all leases, queues and tokens.
    Forget,
    /// The store returns to its state of this long ago, as if a replica took over.
    FallBack(#[serde(with = "time")] Nanos),
    /// The store forgets one name of one kind, or one key of that name.
    Evict {
        #[serde(with = "kind")]
        kind: LockKind,
        name: String,
    },
    /// The store's clock is moved by this many nanoseconds.
    SetClock(i64),
    /// The links of a process are cut. Chance decides which side notices at once, and which later.
    Cut { process: usize },
    /// The store stops answering one process, or all, for a while.
    Silence {
        process: Option<usize>,
        #[serde(with = "time")]
        lasts: Nanos,
    },
    /// Strangers publish this many messages to all channels of a name.
    Storm { name: String, messages: u32 },
}

pub(crate) fn nanos(time: Duration) -> Nanos {
    Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)
}

pub(crate) fn duration(time: Nanos) -> Duration {
    Duration::from_nanos(time)
}

mod kind {
    use latchwork::LockKind;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(kind: &LockKind, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match kind {
            LockKind::Plain => "plain",
            LockKind::Fair => "fair",
            LockKind::Semaphore => "semaphore",
            _ => "read-write",
        })
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LockKind, D::Error> {
        match &*String::deserialize(deserializer)? {
            "plain" => Ok(LockKind::Plain),
            "fair" => Ok(LockKind::Fair),
            "semaphore" => Ok(LockKind::Semaphore),
            "read-write" => Ok(LockKind::ReadWrite),
            other => Err(serde::de::Error::custom(format!("{other:?} is no kind of lock"))),
        }
    }
}

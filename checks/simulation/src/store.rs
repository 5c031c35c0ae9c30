//! [`Store`]: where the locks of a simulation are kept, as its judges and its faults see it.

use std::time::Duration;

use latchwork::backend::{Backend, Mode};
use latchwork::{LockClient, LockKind, LockOptions};
use serde::{Deserialize, Serialize};

use crate::time;
use crate::world::{Nanos, Process, World};

pub(crate) mod local;
mod model;
pub(crate) mod redis;
pub(crate) mod twin;

pub(crate) use self::model::Model;
pub(crate) use self::redis::SimulatedRedis;

/// A store, and the network before it.
pub(crate) trait Store: Sized + Send + Sync + 'static {
    /// Whether processes can be killed, and have clocks of their own: clients share nothing but the store and
    /// the network.
    const APART: bool = true;

    /// Within this time the store notices that a client is gone whose link did not bring the news.
    const NOTICES_WITHIN: Nanos = 0;

    /// Whether the tasks of a process are its client's alone, and none are the store's.
    const HAS_NO_TASKS: bool = true;

    /// Whether the store knows of a writer whose lease has ended by itself, and lets waiting readers in.
    const KNOWS_LAPSED_WRITERS: bool = true;

    /// What the clients of this store stand on.
    type Backend: Backend;

    fn new(world: &World, network: &Network) -> Self;

    /// The backend of a process's client. It may have to be connected.
    fn connect(&self, process: &Process) -> impl Future<Output = Self::Backend> + Send + 'static;

    /// What the client of a process is made with, where the program says this.
    fn options(&self, options: LockOptions) -> LockOptions {
        options
    }

    /// The leases that the store has at this moment, of locks of this kind and name.
    fn leases(&self, kind: LockKind, name: &str) -> Vec<StoredLease>;

    /// Does harm. False if it is none that can be done to this store.
    fn harm(&self, harm: &Harm) -> bool;

    /// The process was killed: its system closes what it had open.
    fn died(&self, _process: &Process) {}

    /// How many commands of the process may still take effect.
    fn under_way(&self, process: &Process) -> usize;

    /// Whether nothing of the process is under way, renewals included.
    fn is_idle(&self, process: &Process) -> bool {
        self.under_way(process) == 0
    }

    /// What is left in store and network, in words. Asked for when all clients are gone and all leases over:
    /// nothing should be.
    fn left_over(&self) -> Vec<String>;

    /// What a client has done that the contract of backends and transports rules out, in words: the first
    /// time.
    fn breach(&self) -> Option<String> {
        None
    }

    /// Whether a subscription of the process to a channel of this name may have been refused since then.
    fn may_have_refused(&self, _process: &Process, _name: &str, _since: Nanos) -> bool {
        true
    }

    /// When the process was told last that this lock, which it has not had since, is held; `None` if it was
    /// not, or that is not known.
    fn told_held(&self, _process: &Process, _mode: Mode, _name: &str) -> Option<Nanos> {
        None
    }

    /// How many subscriptions of the process it has, but for those that linger; `None` if that is not known.
    fn subscriptions(&self, _process: &Process) -> Option<usize> {
        None
    }

    /// Whether clients are told how many others have heard of their releases.
    fn counts_listeners(&self) -> bool {
        true
    }

    /// How many commands of the process that concern locks have run, each renewal of a lease by itself if it
    /// is one.
    fn asked(&self, _process: &Process) -> u64 {
        0
    }

    /// How many commands have run at the store.
    fn commands(&self) -> u64;

    /// A number that is another one whenever [`leases`](Self::leases) may say something else than before, but
    /// for leases that have ended since.
    fn changes(&self) -> u64 {
        self.commands()
    }
}

/// A lease as the store has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredLease {
    /// As [`LockClient::id`] has it.
    pub(crate) client: String,
    /// The number of the lease's id.
    pub(crate) number: u64,
    /// By the world's clock.
    pub(crate) ends: Nanos,
    /// It is a reader's.
    pub(crate) is_shared: bool,
}

/// How well the network does between clients and store, as long as the faults last. Probabilities are in
/// thousandths.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Network {
    /// Until when anything goes wrong; from then on each way takes at most [`Self::latency`].
    #[serde(with = "time")]
    pub(crate) faults_end: Nanos,
    /// A way that is not late takes up to this.
    #[serde(with = "time")]
    pub(crate) latency: Nanos,
    /// Of ways that are late, up to [`Self::late_by`].
    pub(crate) late: u32,
    #[serde(with = "time")]
    pub(crate) late_by: Nanos,
    /// Of commands that do not arrive, and say nothing.
    pub(crate) requests_lost: u32,
    /// Of replies that do not arrive.
    pub(crate) replies_lost: u32,
    /// Of commands that run twice.
    pub(crate) twice: u32,
    /// Of commands that are refused on the way: they did not run, and the client is told so.
    pub(crate) refused: u32,
    /// Of commands that may overtake others of the same client.
    pub(crate) reordered: u32,
    /// Of messages that are lost together with the subscription, which is made anew.
    pub(crate) messages_cut: u32,
    /// Of subscriptions that are refused.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) deaf: u32,
    /// After which time a client takes a command for unanswered.
    #[serde(with = "time")]
    pub(crate) answer_limit: Nanos,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Harm that is done once, at a moment of the program.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Harm {
    /// The store forgets all leases, queues and tokens.
    Forget,
    /// The store goes back to what it had so long ago: a replica takes over.
    FallBack(#[serde(with = "time")] Nanos),
    /// The store forgets one name of one kind, or one of its keys.
    Evict {
        #[serde(with = "kind")]
        kind: LockKind,
        name: String,
    },
    /// The store's clock is set by so many nanoseconds.
    SetClock(i64),
    /// The links of a process are cut. Which side notices at once, and which later, is drawn.
    Cut { process: usize },
    /// For so long the store answers no process, or one process not.
    Silence {
        process: Option<usize>,
        #[serde(with = "time")]
        lasts: Nanos,
    },
}

/// The client of a process.
pub(crate) async fn client<S: Store>(store: &S, process: &Process, options: &LockOptions) -> LockClient {
    let backend = store.connect(process).await;
    let options = store.options(options.clone());
    LockClient::with_options(backend, &options).expect("the options are in range")
}

/// As the world counts.
pub(crate) fn nanos(time: Duration) -> Nanos {
    Nanos::try_from(time.as_nanos()).unwrap_or(Nanos::MAX)
}

/// As a duration.
pub(crate) fn duration(time: Nanos) -> Duration {
    Duration::from_nanos(time)
}

/// Kinds as text.
mod kind {
    use latchwork::LockKind;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(kind: &LockKind, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(match kind {
            LockKind::Plain => "plain",
            LockKind::Fair => "fair",
            _ => "read-write",
        })
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<LockKind, D::Error> {
        match &*String::deserialize(deserializer)? {
            "plain" => Ok(LockKind::Plain),
            "fair" => Ok(LockKind::Fair),
            "read-write" => Ok(LockKind::ReadWrite),
            other => Err(serde::de::Error::custom(format!("{other:?} is no kind of lock"))),
        }
    }
}

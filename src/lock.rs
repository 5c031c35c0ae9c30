//! The lock: [`LockClient`], [`Lock`], [`Guard`], [`Owner`], over any [`Backend`].
//!
//! # How a lock is waited for
//!
//! ```text
//! try ──got it──────────────────────────────────────────► guard
//!  │ held by another, for so long
//!  ▼
//! join the channel's subscription (the first one subscribes), wait until it stands
//!  ▼
//! try again ──got it──► leave the subscription ─────────► guard
//!  │ held, for so long      ▲
//!  ▼                        │
//! sleep on the latch until a message comes, the lease is over, or the caller's patience is
//! ```
//!
//! The second try is what makes the message sufficient: whoever lets go *after* it, publishes while we are subscribed. The
//! lease's end stands beside every message as a timer, so a message that is lost costs time and never a hang. Every way
//! out, an error and a dropped future included, leaves the subscription; an attempt that was under way when its future was
//! dropped is finished in the background and undone.
//!
//! Who gives the lock back hands it to a waiter of the same client, if there is one: that is one command, without a message and
//! without a second try. Limits see to it that other processes have their chance.
//!
//! # What is told to the store
//!
//! How many holds the owner *is to have*, and never "one more" or "one less": a command that is sent again after its reply
//! was lost counts once. The client knows the number, as nobody else acts for its owners.
//!
//! # What can be watched
//!
//! With the feature `tracing`, under the target `latchwork`; fields are `lock` and `owner`, if it is about one, and these:
//!
//! | level | event | when |
//! |---|---|---|
//! | DEBUG | span `acquire` | around each acquisition, from its first attempt until the guard or the end of its patience |
//! | TRACE | `held by another`, `left` | an attempt was in vain |
//! | DEBUG | `waiting`, `left` | somebody begins to wait |
//! | TRACE | `woken`, `called` | who waits looks again: called by a message, or by its timer |
//! | DEBUG | `acquired`, `watched` | a guard is made |
//! | TRACE | `renewed` | the watchdog extended the lease |
//! | WARN | `renewal failed`, `holds`, `error` | the watchdog could not; it tries again soon |
//! | WARN | `lost`, `why` | a hold was found lost: by the watchdog, or by who looked |
//! | DEBUG | `released` | a hold was given back, by `unlock` or a drop |
//! | DEBUG | `handed over`, `to` | it was, and the owner `to` that waits here has the lock now |
//! | DEBUG | `connected`, `server`, `attempt` | there is a (new) connection for commands |
//! | WARN | `cannot connect`, `error`, `attempt` | there is none |
//! | WARN | `connection for commands lost` | the next command makes a new one |
//! | WARN | `connection for subscriptions lost`, `channels` | it is made again at once |
//! | DEBUG | `subscriptions are back`, `channels` | it was, and everybody who waits tries again |
//! | INFO | `master found`, `master`, `server` | where the master is, that was not known or was elsewhere |
//! | WARN | `Sentinel lost`, `sentinel`, `error` | another one is followed |
//!
//! Without a subscriber each costs a load and a branch, without the feature nothing.

mod acquire;
mod alarm;
mod backend;
mod client;
mod context;
mod entry;
mod error;
mod guard;
mod handle;
mod head;
mod histogram;
mod keeper;
mod lease;
mod metrics;
mod name;
mod name_mapper;
mod options;
mod origin;
mod owner;
mod releases;
mod span;
mod stats;
mod table;
mod until;
mod waiter;

pub use self::backend::{AcquireOutcome, Backend, Failure, Holder, LeaseKey, ReleaseOutcome};
pub use self::client::{LockClient, ShutdownError};
pub use self::error::LockError;
pub use self::guard::Guard;
pub use self::handle::Lock;
pub use self::histogram::Histogram;
pub use self::lease::{Lease, LeaseError};
pub use self::metrics::Metrics;
pub use self::name::{LockName, NameError, NameHasher};
pub use self::options::LockOptions;
pub use self::owner::{LeaseId, LeaseIdError, Owner};
pub use self::stats::LockStats;

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
//! # What is told to the store
//!
//! How many holds the owner *is to have*, and never "one more" or "one less": a command that is sent again after its reply
//! was lost counts once. The client knows the number, as nobody else acts for its owners.

mod acquire;
mod attempt;
mod backend;
mod client;
mod error;
mod guard;
mod hold;
mod holds;
mod lease;
mod name;
mod owner;
mod stats;
mod supervised;
mod until;
mod watchdog;

pub use self::backend::{Backend, HoldKey, Released, Tried};
pub use self::client::{Lock, LockClient, LockOptions};
pub use self::error::LockError;
pub use self::guard::Guard;
pub use self::hold::Lost;
pub use self::lease::{Lease, LeaseError};
pub use self::name::{LockName, NameError};
pub use self::owner::Owner;
pub use self::stats::LockStats;

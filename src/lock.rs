//! The lock: [`LockClient`], [`Lock`], [`Guard`], [`Owner`], over any
//! [`Backend`](crate::backend::Backend).
//!
//! # How a lock is acquired
//!
//! The store leases a name to the *client*, under an id that is new for each lease. Inside of the client a
//! [`LockEntry`](crate::lock_entry::LockEntry) passes the ownership on in memory: to an owner's inner holds,
//! and from a holder to the next waiter.
//!
//! ```text
//! held here by this owner ─────────────► a count in memory
//! held or wanted here by others ───────► queue ──handed off in memory──► guard
//!                                          └──────── the oldest waiter ──┐
//! idle ─────────────────────────────────────────────► queue head ◄───────┘
//!                                                         │ try, subscribe, try again, sleep
//!                                                         ▼
//!                                                       guard
//! ```
//!
//! Only the queue head talks to the store. The lease's end stands beside every message as a timer, so a
//! message that is lost costs time and never a hang. Every way out, an error and a dropped future included,
//! leaves the queue and the subscription; an attempt that was under way is rolled back, and a release is
//! repeated until the store has answered or the lease is over.
//!
//! A release with a waiter here costs the store nothing, until the client's [tenure](LockOptions::tenure) is
//! over: then the lease goes back, and this client asks again behind the others.
//!
//! A [fair lock](LockClient::get_fair_lock) is the same up to the release. The store has a queue, in which
//! the queue head of each client has a position, and each release goes there:
//!
//! ```text
//! release, with the next waiter of this client ─► store ──its turn─────────────────► guard
//!                                                   └─ behind other clients ─► queue head, asleep
//!                                                  a release elsewhere, which grants ────┘─► guard
//! ```
//!
//! A [read-write lock](LockClient::get_read_write_lock) is two locks. To write is a fair lock, by other
//! commands. To read is one that is shared: the readers of a client have one lease together, which newcomers
//! join in memory within the tenure, and ask the store for anew after it.
//!
//! # What can be watched
//!
//! With the feature `tracing`, under the target `latchwork`; fields are `lock`, and these:
//!
//! | level | event | when |
//! |---|---|---|
//! | DEBUG | span `acquire` | around each acquisition, from its first attempt until the guard or the end of its limit |
//! | TRACE | `held by another`, `left` | an attempt was refused |
//! | DEBUG | `waiting`, `left` | the queue head begins to wait |
//! | TRACE | `woken`, `notified` | the queue head looks again: by a message, or by its timer |
//! | DEBUG | `acquired`, `owner`, `watched` | a guard is made |
//! | DEBUG | `handed off` | a release gave the lock to a waiter of this client, in memory |
//! | TRACE | `renewed` | the watchdog extended the lease, or was told that it is there |
//! | WARN | `renewal failed`, `leases`, `error` | the watchdog could not; it tries again soon |
//! | WARN | `lost`, `reason` | a hold is lost |
//! | DEBUG | `released` | the store has a lease back |
//! | WARN | `release failed`, `error` | it is repeated; told once, until one succeeds |
//! | DEBUG | `connected`, `server` | there is a (new) connection |
//! | WARN | `cannot connect`, `error` | there is none; it is tried again after a while |
//! | WARN | `connection for commands lost`, `server`, `silent` | the next command makes a new one |
//! | WARN | `connection for subscriptions lost`, `server`, `silent` | it is made again |
//! | WARN | `not unsubscribed`, `channel`, `error` | the user is not allowed to; messages go on coming |
//! | WARN | `message of the other kind not published`, `channel`, `error` | its subscribers are not woken |
//! | WARN | `heartbeat refused`, `error` | the user is not allowed it any more |
//! | WARN | `CLIENT KILL is refused …`, `error` | told once; see the page of `redis` |
//! | WARN | `an attempt that came late was undone` | it had taken the lock for a caller that had gone |
//! | DEBUG | `subscriptions are back`, `channels` | it was, and every queue head tries again |
//! | ERROR | `panicked`, `work`, `panic` | foreign code, such as a waker, has panicked: see [`on_foreign_panic`](crate::on_foreign_panic) |
//! | INFO | `master found`, `master`, `server` | where the master is, that was not known or was elsewhere |
//! | WARN | `Sentinel lost`, `sentinel`, `error` | it does not answer, or lets no client follow; another one is followed |
//!
//! Without a subscriber each costs a load and a branch, without the feature nothing. The recipe
//! [`tracing_a_wait`] shows the events of one wait.
//!
//! [`tracing_a_wait`]:
//! https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/tracing_a_wait.rs

// Where to look:
//
// | question | module |
// |---|---|
// | What do users call? | `client`, `handle`, `read_write_lock`, `guard`, `run`, `options` |
// | How does one acquisition run? | `acquire`; `head` → `wait` as the queue head, which asks the store |
// | Which owner has the name in this client, and which is next? | `../lock_entry`: the state machine, without a store or a clock |
// | What carries out what it says? | `entry` → `release`, `extend`, `table`, `listening`, `deadlines` |
// | Where do messages come from? | `../subscription`: `registry` → `channel` → `../latch`, over a `transport` |
// | Why does no lease stay at the store? | `backend`: commands that come late; `../lock_entry/ownership/record`; `entry/release` |
// | What renews, verifies and ends leases? | `watchdog`, by the entries' `deadlines` |
// | What is a store asked? | `backend` → `command`, `mode`; `store` is one without its type, which is what an entry asks |
// | What do the entries of a client share? | `context`, `releases`, `origin` |
// | What is counted? | `metrics` → `histogram`, `prometheus` |
// | Which values are there? | `error`, `lease`, `name`, `owner` |

mod acquire;
pub(crate) mod backend;
mod client;
mod context;
mod entry;
mod error;
mod guard;
mod handle;
mod lease;
mod metrics;
pub(crate) mod name;
mod options;
pub(crate) mod origin;
mod owner;
mod read_write_lock;
mod releases;
mod run;
mod synchronous;
mod watchdog;

pub use self::backend::{Failure, Holder, LockKind, Mode};
pub use self::client::{HeldLock, LockClient, WaitingLock};
pub use self::error::{LockError, ShutdownError};
pub use self::guard::Guard;
pub use self::handle::Lock;
pub use self::lease::{Lease, LeaseError};
pub use self::metrics::histogram::Histogram;
pub use self::metrics::{LockStats, Metrics};
pub use self::name::{LockName, NameError};
pub use self::options::LockOptions;
pub use self::owner::{LeaseId, LeaseIdError, Owner};
pub use self::read_write_lock::ReadWriteLock;

/// Types whose state is consistent whenever foreign code is called (`foreign.rs`), and so after its panic.
macro_rules! unwind_safe {
    ($($type:ty),*) => {
        $(
            impl std::panic::UnwindSafe for $type {}
            impl std::panic::RefUnwindSafe for $type {}
        )*
    };
}
unwind_safe!(LockClient, Lock, Guard, LockError);

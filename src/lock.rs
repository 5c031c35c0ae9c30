//! Named locks: [`LockClient`], [`Lock`], [`Guard`], [`Owner`]; and named semaphores, [`NamedSemaphore`] and
//! [`PermitGuard`]; over any [`Backend`](crate::backend::Backend).
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use std::time::Duration;
//! use latchwork::{Lease, LockClient};
//!
//! // Over Redis: LockClient::new(Redis::connect("redis://127.0.0.1").await?)
//! let client = LockClient::local();
//!
//! // A lock: the watchdog renews the lease until the guard gives the lock back.
//! let lock = client.get_lock("orders:42")?;
//! let guard = lock.lock().await?;
//! guard.unlock().await?;
//!
//! // A limit of time: `None` if another owner has the lock after two seconds.
//! if let Some(guard) = lock.try_lock_for(Duration::from_secs(2), Lease::Watched).await? {
//!     guard.unlock().await?;
//! }
//!
//! // An owner that re-enters: only the outer hold takes the lock from the store.
//! let mine = lock.owned_by(&client.owner());
//! let (outer, inner) = (mine.lock().await?, mine.lock().await?);
//! drop((inner, outer));
//!
//! // Work that is dropped if the lock is lost.
//! let sum = lock.run(async { 40 + 2 }).await?;
//! assert_eq!(sum, 42);
//! # Ok::<(), latchwork::LockError>(()) }).unwrap();
//! ```
//!
//! # Events and spans
//!
//! With the feature `tracing`, under the target `latchwork`. Fields are `lock`, if one is concerned, and:
//!
//! | level | event | when |
//! |---|---|---|
//! | DEBUG | span `acquire` | around each acquisition, from its first attempt until the guard or the end of its limit |
//! | TRACE | `held by another`, `left` | the store refused an attempt |
//! | DEBUG | `waiting`, `label`, `holder`, `left` | a wait begins: in the queue, at the store, or at a semaphore's gate. `label` is this client's, `holder` a lease of this client, `left` the store's answer |
//! | TRACE | `woken`, `notified` | the queue head looks again, woken by a message or by its timer |
//! | DEBUG | `acquired`, `owner`, `watched`, `waited` | a guard is made, `waited` after the call |
//! | DEBUG | `gave up`, `waited` | a wait ends without the lock: its time is over, it failed, or its future was dropped |
//! | WARN | `slow wait`, `label`, `holder`, `waiters`, `longest` | a wait is longer than [`slow_wait`](LockOptions::slow_wait): once a minute for each name |
//! | DEBUG | `handed off` | a release gave the lock to a waiter of this client, in memory |
//! | TRACE | `renewed` | the watchdog extended the lease, or the store confirmed the lease |
//! | WARN | `renewal failed`, `leases`, `error` | the watchdog got no answer, and tries again soon |
//! | WARN | `lost`, `reason` | a hold is lost |
//! | DEBUG | `released` | the store has a lease back |
//! | WARN | `release failed`, `error` | the release is repeated; reported once, until a release succeeds |
//! | DEBUG | `connected`, `server` | there is a (new) connection |
//! | WARN | `cannot connect`, `error` | there is no connection; the client tries again after a while |
//! | WARN | `connection for commands lost`, `server`, `silent` | the next command makes a new connection |
//! | WARN | `connection for subscriptions lost`, `server`, `silent` | the client makes a new connection |
//! | WARN | `not unsubscribed`, `channel`, `error` | the user lacks the right to unsubscribe; messages keep coming |
//! | WARN | `heartbeat refused`, `error` | the user has lost the right to the heartbeat's command |
//! | WARN | `CLIENT KILL is refused …`, `error` | reported once; see the page of `redis` |
//! | WARN | `an attempt that came late was undone` | the attempt had taken the lock for a caller that had gone |
//! | DEBUG | `subscriptions are back`, `channels` | the connection for subscriptions is back, and every queue head tries again |
//! | ERROR | `panicked`, `work`, `panic` | foreign code, such as a waker, has panicked: see [`on_foreign_panic`](crate::on_foreign_panic) |
//! | INFO | `master found`, `master`, `server` | the client has found the master, for the first time or at another place |
//! | WARN | `Sentinel lost`, `sentinel`, `error` | the Sentinel does not answer, or lets no client follow; the client follows another Sentinel |
//!
//! Without a subscriber an event costs a load and a branch; [`tracing_a_wait`] shows the events of a wait.
//!
//! [`tracing_a_wait`]:
//! https://github.com/latchwork/latchwork/blob/main/examples/recipes/src/bin/tracing_a_wait.rs
//!
//! # How a lock is acquired
//!
//! The store leases a name to the *client*, under a new id for each lease. Inside of the client a
//! [`LockEntry`](crate::lock_entry::LockEntry) passes the ownership on in memory: to inner holds and waiters.
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
//! Only the queue head asks the store. The head also retries by a timer for the lease's end, so a lost
//! message costs only time. A waiter that leaves gives up its queue position and subscription; an attempt
//! under way is rolled back, and a release is repeated until the store answers or the lease is over.
//!
//! A release hands the lock to a waiter of this client in memory, until the client's
//! [tenure](LockOptions::tenure) is over: then the lease goes back, and this client asks behind the others.
//!
//! For a [fair lock](LockClient::get_fair_lock) the store queues each client's queue head, and each release
//! goes to the store:
//!
//! ```text
//! release, with the next waiter of this client ─► store ──its turn─────────────────► guard
//!                                                   └─ behind other clients ─► queue head, asleep
//!                                                  a release elsewhere, which grants ────┘─► guard
//! ```
//!
//! The write lock of a [read-write lock](LockClient::get_read_write_lock) is a fair lock with other commands.
//! The readers of a client share a lease, which newcomers join in memory within the tenure.

// Where to look:
//
// | question | module |
// |---|---|
// | Where do callers enter? | `client`, `handle`, `read_write_lock`, `guard`, `run`, `options`; several names: `multi_lock`, `multi_guard`; permits: `named_semaphore`, `permit_guard`, `entry/places` |
// | How does one acquisition run? | `acquire`: `head` → `wait` as the queue head, which asks the store at a limited rate; `synchronous` at an idle entry of a store that answers within the call |
// | Which owner has the name in this client, and which is next? | `../lock_entry`: the state machine, without a store or a clock |
// | Which module carries out the engine's effects? | `entry` → `release`, `extend`, `table`, `listening`, `deadlines`; `abandon_guard` for futures that are dropped or kept unpolled |
// | Where do messages come from? | `../subscription`: `registry` → `channel` → `../latch`, over a `transport`; `entry/listening` has the picture |
// | Why does no lease stay at the store? | `backend`: commands that come late; `StoreRecord` in `../lock_entry/ownership/lease`; `entry/release`; over Redis `../redis`: lost replies, `../redis/late` |
// | Which task renews, verifies and ends leases? | `watchdog`, by the entries' `deadlines` |
// | How is the store asked? | `backend` → `command`, `mode`; `store` is a backend without its type, for the entries |
// | Where is the state that a client's entries share? | `context`, `releases`, `origin` |
// | Where are the figures? | `metrics` → `histogram`, `prometheus` |
// | Where are the values? | `error`, `lease`, `name`, `owner` |

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
mod multi_guard;
mod multi_lock;
pub(crate) mod name;
mod named_semaphore;
mod options;
pub(crate) mod origin;
mod owner;
mod permit_guard;
mod read_write_lock;
mod releases;
mod run;
mod synchronous;
mod watchdog;

pub use self::backend::{Failure, Holder, LockKind, Mode};
pub use self::client::{HeldLock, LockClient, WaitingLock};
pub use self::error::{LockError, MultiLockError, ShutdownError};
pub use self::guard::Guard;
pub use self::handle::Lock;
pub use self::lease::{Lease, LeaseError};
pub use self::metrics::histogram::Histogram;
pub use self::metrics::{LockStats, Metrics};
pub use self::multi_guard::MultiGuard;
pub use self::multi_lock::MultiLock;
pub use self::name::{LockName, NameError};
pub use self::named_semaphore::{NamedSemaphore, Usage};
pub use self::options::LockOptions;
pub use self::owner::{LeaseId, LeaseIdError, Owner};
pub use self::permit_guard::PermitGuard;
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
unwind_safe!(LockClient, Lock, Guard, MultiLock, MultiGuard, NamedSemaphore, PermitGuard, LockError);

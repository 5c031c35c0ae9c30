//! A fast semaphore for async Rust, and named locks over Redis or in memory: plain, fair and read-write,
//! compatible with Redisson; and named semaphores, which count permits over all processes.
//!
//! # A lock
//!
//! ```
//! # #[cfg(feature = "local")] mod example {
//! use latchwork::LockClient;
//!
//! // A process makes one client: LockClient::local() or LockClient::new(Redis::connect("redis://…").await?).
//! async fn ship(client: &LockClient, order: u64) -> Result<(), latchwork::LockError> {
//!     let lock = client.get_lock(&format!("orders:{order}"))?;
//!     // Acquires the lock, and releases it after the work; a loss of the lock cancels the work.
//!     lock.run(async { /* the work that one task at a time may do */ }).await
//! }
//! # }
//! ```
//!
//! [`LockClient`] makes [`Lock`]s by name over a [`Backend`]: [`local::Local`] keeps locks in this process
//! (feature `local`, on by default), [`redis::Redis`] on a Redis server (feature `redis`). [`lock`] explains
//! waiting, renewals and losses; [`blocking`] is for threads without an async runtime.
//!
//! `client.get_semaphore("jobs", 5)?` makes a [`NamedSemaphore`]: at most five permits in use, over all
//! processes.
//!
//! # A semaphore in one process
//!
//! ```
//! use latchwork::AsyncSemaphore;
//!
//! static CALLS: AsyncSemaphore = AsyncSemaphore::new(10);
//!
//! async fn fetch() {
//!     let _permit = CALLS.acquire().await.expect("nothing closes it");
//!     // … at most ten tasks and threads are here at once …
//! }
//! ```
//!
//! # The primitives
//!
//! The primitives need no runtime, no server and no feature. A lock client can be built on the primitives:
//!
//! | type | is |
//! |---|---|
//! | [`AsyncSemaphore`] | permits for async tasks and threads, lock-free, first in, first out |
//! | [`StripedSemaphores`](striped::StripedSemaphores) | a fixed array of one-permit semaphores; each name selects one |
//! | [`Latch`](latch::Latch) | coalescing notification with blocking waits: an early notification stays pending for the next waiter. Not a countdown |
//! | [`LockEntry`](lock_entry::LockEntry) | the ownership of one name inside of a process: a re-entrant, fair lock under a lease of a store |
//! | [`ChannelEntry`](subscription::ChannelEntry) | the shared state of one channel's subscribers: number, readiness, latch, listeners |
//! | [`Registry`](subscription::Registry) | one subscription per channel and process, over any [`Transport`](subscription::Transport) |
//!
//! # Features
//!
//! | feature | brings |
//! |---|---|
//! | `local` (default) | locks inside of a process, without an async runtime |
//! | `redis` | locks over a Redis server, on tokio |
//! | `sentinel`, `cluster`, `tls` | `redis+sentinel://`, `redis-cluster://`, `rediss://` |
//! | `tokio` | loops over free permits or locks yield to other tokio tasks; locks in memory on tokio's clock |
//! | `tracing` | events and spans of the locks |
//! | `stream` | [`PollSemaphore`] as a `Stream` |
//! | `lock` | the locks without a store, for a `Backend` of your own |
//!
//! The repository has [examples](https://github.com/latchwork/latchwork/tree/main/examples), and pages on
//! [guarantees](https://github.com/latchwork/latchwork/blob/main/docs/guarantees.md),
//! [failures](https://github.com/latchwork/latchwork/blob/main/docs/failures.md),
//! [tests of code that locks](https://github.com/latchwork/latchwork/blob/main/docs/testing.md) and
//! [terms](https://github.com/latchwork/latchwork/blob/main/docs/glossary.md).
//!
// Where to look:
//
// | question | module |
// |---|---|
// | How does a task wait for permits? | `semaphore` → `engine`, whose head is the essay → `node`, `settle`, `capacity`, `reclaim` → `epoch` |
// | How do notifications and stripes use permits? | `latch`, `striped` |
// | What wakes the waiters of a channel? | `subscription` → `registry` → `channel` → `latch`, over a `transport` |
// | Which owner has a name in this process, and which is next? | `lock_entry` → `ownership`: a state machine without store or clock |
// | How does a `lock()` run? | `lock`, with its own index |
// | Where are leases kept? | `local` in memory, `redis` on a server |
// | How do threads without a runtime lock? | `blocking` |
// | Which helpers do all modules share? | `support`: `sync` (loom's seam), `foreign` (panics of foreign code), `event`, `moment`, `runtime`, `budget` (tokio's), `fault` (seeded by checks) |

// Links to items of disabled features lead to docs.rs.
#![cfg_attr(feature = "lock", doc = "\n[`Backend`]: backend::Backend\n")]
#![cfg_attr(
    not(feature = "lock"),
    doc = "
[`Backend`]: https://docs.rs/latchwork/latest/latchwork/backend/trait.Backend.html
[`Lock`]: https://docs.rs/latchwork/latest/latchwork/struct.Lock.html
[`LockClient`]: https://docs.rs/latchwork/latest/latchwork/struct.LockClient.html
[`blocking`]: https://docs.rs/latchwork/latest/latchwork/blocking/index.html
[`lock`]: https://docs.rs/latchwork/latest/latchwork/lock/index.html
"
)]
#![cfg_attr(
    not(feature = "local"),
    doc = "
[`local::Local`]: https://docs.rs/latchwork/latest/latchwork/local/struct.Local.html
"
)]
#![cfg_attr(
    not(feature = "redis"),
    doc = "
[`redis::Redis`]: https://docs.rs/latchwork/latest/latchwork/redis/struct.Redis.html
"
)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// Compiles the README's example.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

#[cfg(all(latchwork_loom, not(feature = "loom")))]
compile_error!("--cfg latchwork_loom needs the feature `loom`; run the models by `cargo xtask loom`");

// First, for the macros used below.
#[macro_use]
mod support;

#[cfg(feature = "lock")]
pub mod blocking;
pub mod latch;
#[cfg(feature = "local")]
pub mod local;
#[cfg(feature = "lock")]
pub mod lock;
pub mod lock_entry;
#[cfg(feature = "redis")]
pub mod redis;
pub mod semaphore;
pub mod striped;
pub mod subscription;
#[cfg(latchwork_suspend)]
#[doc(hidden)]
pub mod suspension;

#[doc(inline)]
#[cfg(feature = "lock")]
pub use crate::lock::{
    Guard, Holder, Lease, LeaseError, LeaseId, Lock, LockClient, LockError, LockKind, LockOptions, Metrics,
    MultiGuard, MultiLock, MultiLockError, NameError, NamedSemaphore, Owner, PermitGuard, ReadWriteLock,
    ShutdownError, Usage,
};
#[doc(inline)]
pub use crate::lock_entry::LossReason;
#[doc(inline)]
pub use crate::semaphore::{
    AcquireError, AsyncSemaphore, OwnedSemaphorePermit, PollSemaphore, SemaphorePermit, TryAcquireError,
};
#[doc(hidden)]
pub use crate::support::fault;
#[doc(inline)]
pub use crate::support::foreign::{ForeignPanic, foreign_panics, on_foreign_panic};

/// For a store of your own: the [`Backend`](backend::Backend) trait and the types of its commands.
///
/// Users of locks find their types at the root of the crate.
#[cfg(feature = "lock")]
pub mod backend {
    #[doc(no_inline)]
    pub use crate::lock::Failure;
    #[doc(inline)]
    pub use crate::lock::backend::{
        AcquireOutcome, AcquireRequest, AnyBackend, Backend, Channels, LATEST_RUN, LeaseKey, NextWaiter,
        Permits, QueuePosition, ReleaseOutcome,
    };
    #[doc(no_inline)]
    pub use crate::lock::{Holder, LeaseId, LeaseIdError, LockKind, LockName, Mode, NameError};
    #[doc(inline)]
    pub use crate::lock_entry::Moment;
    #[doc(no_inline)]
    pub use crate::subscription::{Inbox, Message, Registry, SubscribeError, Transport};
    #[doc(inline)]
    pub use crate::support::runtime::Runtime;
    #[doc(inline)]
    #[cfg(feature = "tokio")]
    pub use crate::support::runtime::{TokioRuntime, TokioSleep};
}

//! A fast semaphore for async Rust, and named locks over Redis or in memory: plain, fair and read-write,
//! compatible with Redisson.
//!
//! # A lock
//!
//! ```
//! # #[cfg(feature = "local")] mod example {
//! use latchwork::LockClient;
//!
//! // The client is made once, by LockClient::local() or LockClient::new(Redis::connect("redis://…").await?).
//! async fn ship(client: &LockClient, order: u64) -> Result<(), latchwork::LockError> {
//!     let lock = client.get_lock(&format!("orders:{order}"))?;
//!     // Takes the lock, and releases it afterwards. If it is lost, the work is cancelled.
//!     lock.run(async { /* the work that one task at a time may do */ }).await
//! }
//! # }
//! ```
//!
//! [`LockClient`] makes [`Lock`]s by name over a [`Backend`]: [`local::Local`] keeps them in this process
//! (feature `local`, on by default), [`redis::Redis`] on a Redis server (feature `redis`). How a lock waits,
//! renews its lease and reports a loss is told in [`lock`]. The same for threads, without an async runtime,
//! is in [`blocking`].
//!
//! # A semaphore
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
//! They need no runtime and no server, and a lock client can be built on them:
//!
//! | type | is |
//! |---|---|
//! | [`AsyncSemaphore`] | permits for async tasks and threads, lock-free, first in, first out |
//! | [`StripedSemaphores`](striped::StripedSemaphores) | a fixed array of one-permit semaphores, one of which a name picks |
//! | [`Latch`](latch::Latch) | coalescing notification with blocking waits: a notification that comes first is kept for the waiter that comes next. Does not count down |
//! | [`LockEntry`](lock_entry::LockEntry) | the ownership of one name inside of a process: a re-entrant, fair lock under a lease that a store grants |
//! | [`ChannelEntry`](subscription::ChannelEntry) | the state that all subscribers of one channel share: their number, readiness, latch, listeners |
//! | [`Registry`](subscription::Registry) | one subscription per channel and process, over any [`Transport`](subscription::Transport) |
//!
//! # Features
//!
//! | feature | brings |
//! |---|---|
//! | `local` (default) | locks inside of a process, without an async runtime |
//! | `redis` | locks over a Redis server, on tokio |
//! | `sentinel`, `cluster`, `tls` | `redis+sentinel://`, `redis-cluster://`, `rediss://` |
//! | `tokio` | loops that find free permits or locks let other tasks of a tokio runtime run; locks in memory by tokio's clock |
//! | `tracing` | events and spans of the locks |
//! | `stream` | [`PollSemaphore`] as a `Stream` |
//! | `lock` | the locks without a store, for a `Backend` of your own |
//!
//! Without any: the semaphore, and the primitives above.
//!
//! # More
//!
//! The repository has [examples](https://github.com/latchwork/latchwork/tree/main/examples), among them a
//! backend and a lock client of one's own, and pages on [what is
//! guaranteed](https://github.com/latchwork/latchwork/blob/main/docs/guarantees.md),
//! [failures](https://github.com/latchwork/latchwork/blob/main/docs/failures.md) and
//! [terms](https://github.com/latchwork/latchwork/blob/main/docs/glossary.md).
//!
// What is not built in is linked to where it is documented.
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

// So that the README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

#[cfg(all(latchwork_loom, not(feature = "loom")))]
compile_error!("--cfg latchwork_loom needs the feature `loom`; run the models by `cargo xtask loom`");

// First, so that its macro is seen below.
#[cfg(feature = "lock")]
#[macro_use]
mod trace;

#[cfg(feature = "lock")]
pub mod blocking;
#[cfg(any(feature = "lock", feature = "tokio"))]
mod budget;
mod channel_entry;
mod counter;
mod event;
// `fault!(Name)` is `false` in an ordinary build. Unit tests, and the builds that checks are made of, seed
// such faults, to see that a check finds them.
#[cfg_attr(
    any(test, latchwork_loom, latchwork_suspend, latchwork_faults, latchwork_simulation),
    path = "fault/seeded.rs"
)]
#[doc(hidden)]
pub mod fault;
mod foreign;
pub mod latch;
#[cfg(feature = "local")]
pub mod local;
#[cfg(feature = "lock")]
pub mod lock;
pub mod lock_entry;
mod message;
mod moment;
#[cfg(feature = "redis")]
pub mod redis;
mod registry;
#[cfg(feature = "lock")]
mod runtime;
pub mod semaphore;
pub mod striped;
#[cfg(latchwork_suspend)]
#[doc(hidden)]
pub mod suspension;
mod sync;
mod transport;
mod unless;

#[doc(inline)]
pub use crate::foreign::{ForeignPanic, foreign_panics, on_foreign_panic};
#[doc(inline)]
#[cfg(feature = "lock")]
pub use crate::lock::{
    Guard, Holder, Lease, LeaseError, LeaseId, Lock, LockClient, LockError, LockKind, LockOptions, Metrics,
    NameError, Owner, ReadWriteLock, ShutdownError,
};
#[doc(inline)]
pub use crate::lock_entry::LossReason;
#[doc(inline)]
pub use crate::semaphore::{
    AcquireError, AsyncSemaphore, OwnedSemaphorePermit, PollSemaphore, SemaphorePermit, TryAcquireError,
};

/// For a store of one's own: the contract of [`Backend`](backend::Backend), and what goes with its commands.
///
/// What a user of locks needs is at the root of the crate.
#[cfg(feature = "lock")]
pub mod backend {
    #[doc(no_inline)]
    pub use crate::lock::Failure;
    #[doc(inline)]
    pub use crate::lock::backend::{
        AcquireOutcome, AcquireRequest, AnyBackend, Backend, Channels, LATEST_RUN, LeaseKey, NextWaiter,
        QueuePosition, ReleaseOutcome,
    };
    #[doc(no_inline)]
    pub use crate::lock::{Holder, LeaseId, LeaseIdError, LockKind, LockName, Mode, NameError};
    #[doc(inline)]
    pub use crate::lock_entry::Moment;
    #[doc(inline)]
    pub use crate::runtime::Runtime;
    #[doc(inline)]
    #[cfg(feature = "tokio")]
    pub use crate::runtime::{TokioRuntime, TokioSleep};
    #[doc(no_inline)]
    pub use crate::subscription::{Inbox, Message, Registry, SubscribeError, Transport};
}

/// One subscription per channel and process, however many wait: for a lock client, or anything else that
/// waits for messages, of one's own.
///
/// [`Registry`](subscription::Registry) keeps the subscriptions over a
/// [`Transport`](subscription::Transport). The locks of this crate wait by it, and need none of this from a
/// user.
pub mod subscription {
    // In the files `registry`, `channel_entry`, `transport` and `message`.
    #[doc(inline)]
    pub use crate::channel_entry::{ChannelEntry, Listener};
    #[doc(inline)]
    pub use crate::registry::{Registry, RegistryStats, Subscription};
    #[doc(inline)]
    pub use crate::transport::{Inbox, Message, SubscribeError, Transport};
}

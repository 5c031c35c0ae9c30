//! The concurrency primitives under a Redisson-style distributed lock, and the lock on top.
//!
//! # The primitives
//!
//! They need no runtime and no server, and any lock client can be built on them:
//!
//! | type | is |
//! |---|---|
//! | [`AsyncSemaphore`] | permits for async tasks and threads: a counter, a lock-free queue of wakers, and a loop between them |
//! | [`StripedSemaphores`] | a fixed row of one-permit semaphores, one of which a name picks |
//! | [`Latch`] | a semaphore born with no permits, on which tasks sleep until called |
//! | [`LockEntry`] | a re-entrant, fair lock of one name inside of a process, under a lease that a store grants to the process; with a latch |
//! | [`ChannelEntry`] | what all subscribers of one channel share: their number, readiness, latch, listeners |
//! | [`Registry`] | one subscription per channel and process, over any [`Transport`] |
//!
//! # The lock
//!
//! [`LockClient`] makes [`Lock`]s by name over a [`Backend`]: [`local::Local`] keeps them in this process (feature `local`,
//! on by default), [`redis::Redis`] on a Redis server, in the form in which Redisson keeps them (feature `redis`). How it
//! waits is told in [`lock`]. The same for threads, without an async runtime, is in [`blocking`].
//!
//! # Where to look
//!
//! Arrows point down: [`blocking`] → `redis`, `local` → [`lock`] → [`registry`] → [`transport`], [`striped`], [`channel_entry`] →
//! [`latch`] → [`semaphore`]; and [`lock`] → [`lock_entry`] → [`latch`].

// So that the README's example compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
pub struct Readme;

#[cfg(all(latchwork_loom, not(feature = "loom")))]
compile_error!("--cfg latchwork_loom needs the feature `loom`; run the models by `cargo xtask loom`");

#[cfg(all(latchwork_shuttle, not(feature = "shuttle")))]
compile_error!("--cfg latchwork_shuttle needs the feature `shuttle`; run the models by `cargo xtask verify`");

// First, so that its macro is seen below.
#[cfg(feature = "lock")]
#[macro_use]
mod trace;

#[cfg(feature = "lock")]
pub mod blocking;
mod counter;
// For loom-tests, verify and unit tests alone.
pub mod channel_entry;
mod event;
#[cfg(any(test, latchwork_loom, latchwork_shuttle, latchwork_suspend, latchwork_faults))]
#[doc(hidden)]
pub mod fault;
#[cfg(not(any(test, latchwork_loom, latchwork_shuttle, latchwork_suspend, latchwork_faults)))]
mod fault;
mod foreign;
pub mod latch;
#[cfg(feature = "local")]
pub mod local;
#[cfg(feature = "lock")]
pub mod lock;
pub mod lock_entry;
mod moment;
#[cfg(feature = "redis")]
pub mod redis;
pub mod registry;
pub mod runtime;
pub mod semaphore;
pub mod striped;
#[cfg(latchwork_suspend)]
#[doc(hidden)]
pub mod suspension;
mod sync;
pub mod transport;
mod unless;

#[doc(inline)]
pub use crate::channel_entry::{ChannelEntry, Listener};
#[doc(inline)]
pub use crate::latch::{Latch, Notification};
#[cfg(feature = "lock")]
#[doc(inline)]
pub use crate::lock::{
    AcquireOutcome, Backend, Failure, FairBackend, FairReleaseOutcome, Guard, Histogram, Holder, Lease,
    LeaseError, LeaseId, LeaseIdError, LeaseKey, Lock, LockClient, LockError, LockKind, LockName,
    LockOptions, LockStats, Metrics, Moment, NameError, NameHasher, Next, Owner, Position, ReadRequest,
    ReadWriteBackend, ReadWriteHolders, ReadWriteLock, ReleaseOutcome, ShutdownError,
};
#[doc(inline)]
pub use crate::lock_entry::{LockEntry, LossReason};
#[doc(inline)]
pub use crate::registry::{Registry, RegistryStats, Subscription};
#[doc(inline)]
pub use crate::runtime::Runtime;
#[doc(inline)]
pub use crate::semaphore::{
    Acquire, AcquireError, AcquireOwned, AsyncSemaphore, OwnedSemaphorePermit, PollSemaphore,
    SemaphorePermit, TryAcquireError,
};
#[doc(inline)]
pub use crate::striped::{Stripe, StripeGuard, StripedSemaphores, StripesGuard};
#[doc(inline)]
pub use crate::transport::{Inbox, Message, SubscribeError, Transport};

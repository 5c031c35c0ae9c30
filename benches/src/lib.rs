//! Shared code of the benchmarks of `latchwork::AsyncSemaphore`, and in [`lock`] of the lock on Redis.
//!
//! * [`peers`]: the semaphores under comparison, behind one trait.
//! * [`scenarios`]: the short scenarios, each written once, for criterion and for the `ratios` tool alike.
//! * [`event`]: a scenario and its rows, for both tools.
//! * [`cores`], [`criterion`], [`mod@line`], [`queue`], [`wakers`]: tools.
//! * [`record`], [`picture`], [`small_picture`]: measurements as JSON, as bars and lines, and as the README's
//!   bars.
//!
//! The long scenarios (`depth`, `tasks`, `release_tail`) are in their bench files.

pub mod cores;
pub mod criterion;
pub mod event;
pub mod line;
#[cfg(feature = "redis")]
pub mod lock;
pub mod peers;
pub mod picture;
pub mod queue;
pub mod record;
pub mod scenarios;
pub mod small_picture;
pub mod wakers;

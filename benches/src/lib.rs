//! What the benchmarks share: those of `latchwork::AsyncSemaphore`, and in [`lock`] those of the lock on Redis.
//!
//! * [`peers`]: the semaphores under comparison, behind one trait.
//! * [`questions`]: the short questions, each written once, for criterion and for the `ratios` tool alike.
//! * [`event`]: how a question and its rows look to those two.
//! * [`cores`], [`criterion`], [`mod@line`], [`wakers`]: tools.
//!
//! The long questions (`depth`, `tasks`, `release_tail`) stand in their bench files.

pub mod cores;
pub mod criterion;
pub mod event;
pub mod line;
pub mod lock;
pub mod peers;
pub mod questions;
pub mod wakers;

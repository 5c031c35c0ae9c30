//! Properties of a lock with a queue under fault injection, with default options and timings: killed and
//! stopped processes, cut and silent links, lost replies, servers that forget, stall or are replaced, and
//! unpolled futures.
//!
//! In each test at most one client holds the lock at a time, no waiter waits for a free lock for longer than
//! a position lasts, every waiter that stays gets the lock in the end, and no key is left at the server.
//!
//! The module of each kind of lock mounts this folder beside its own `kind`.

#[cfg(target_os = "linux")]
mod clock;
mod cluster;
mod forgotten;
mod links;
pub(super) mod processes;
pub(super) mod replaced;
mod replies;
pub(super) mod stage;

use super::kind;

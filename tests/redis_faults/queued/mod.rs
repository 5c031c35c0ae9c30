//! What must hold of a lock with a queue under fault injection, with default options and timings:
//! processes that are killed or stand still, links that are cut or fall silent, replies that are lost,
//! servers that forget, stand still or are replaced, and futures that are not polled.
//!
//! On each of them at most one client has the lock at a time, a free lock is not waited for longer than a
//! position in its queue lasts, every waiter that stays gets the lock in the end, and nothing is left at the
//! server.
//!
//! The module of each kind of lock mounts this folder beside its own `kind`.

mod beliefs;
#[cfg(target_os = "linux")]
mod clock;
mod cluster;
mod forgotten;
mod forked;
mod futures;
mod links;
pub(super) mod processes;
pub(super) mod replaced;
mod replies;
pub(super) mod stage;

use super::kind;

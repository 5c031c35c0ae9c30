//! The locks' store is Redis: the real scripts, over a small server in memory.

pub(crate) mod check;
pub(crate) mod server;

//! The locks of the run, by number, and their leases.

use std::time::Duration;

/// The watched lease: short, so that many end.
pub(crate) const LEASE: Duration = Duration::from_millis(2400);
/// Of the caller's own, now and then: a release that is lost is noticed by it.
pub(crate) const LONG_LEASE: Duration = Duration::from_secs(10);

/// The locks that all compete for. Those with greater numbers are some task's own.
pub(crate) const NAMES: u32 = 20;
/// The locks before which some of each process crowd, so that no queue is ever empty: a plain one, a fair one
/// and a read-write lock.
pub(crate) const CROWDED: u32 = 100;
const CROWDED_FAIR: u32 = 101;
const CROWDED_READ_WRITE: u32 = 102;
pub(crate) const ALL_CROWDED: [u32; 3] = [CROWDED, CROWDED_FAIR, CROWDED_READ_WRITE];

/// As what a name is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockKind {
    Plain,
    Fair,
    ReadWrite,
}

impl LockKind {
    pub(crate) fn of(name: u32) -> Self {
        match name {
            CROWDED => Self::Plain,
            CROWDED_FAIR => Self::Fair,
            CROWDED_READ_WRITE | 16..NAMES => Self::ReadWrite,
            0..16 if name % 8 >= 6 => Self::Fair,
            // One of each process's own.
            NAMES.. if name % 4 == 3 => Self::ReadWrite,
            _ => Self::Plain,
        }
    }

    /// Whether the store keeps a queue of its exclusive waiters.
    pub(crate) fn queues(self) -> bool {
        self != Self::Plain
    }
}

/// The lock's name on the server.
pub(crate) fn lock_name(name: u32) -> String {
    format!("long-run:{name}")
}

/// An owner of one of these asks for a token.
pub(crate) fn is_fenced(name: u32) -> bool {
    name.is_multiple_of(4) || name == 7
}

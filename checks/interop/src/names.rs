//! The locks of the stage, by number, and their leases.

use std::time::Duration;

/// The watched lease: short, so that many end.
pub(crate) const LEASE: Duration = Duration::from_millis(2400);
/// Of the caller's own, now and then: a release that is lost is noticed by it.
pub(crate) const LONG_LEASE: Duration = Duration::from_secs(10);

/// The locks that all compete for. Those with greater numbers are some task's own.
pub(crate) const NAMES: u32 = 20;
/// The names that all members compete for beside Redisson: fewer names, as there are fewer tasks.
/// `Player.java` knows their kinds, too.
pub(crate) const BESIDE_REDISSON: [u32; 8] = [0, 1, 2, 3, 6, 16, 17, 18];
/// The locks before which some of each process crowd, so that no queue is ever empty: a plain one, a fair one
/// and a read-write lock.
pub(crate) const CROWDED: [u32; 3] = [100, 101, 102];

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
            100 => Self::Plain,
            101 => Self::Fair,
            102 | 16..NAMES => Self::ReadWrite,
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
    format!("stage:{name}")
}

/// An owner of one of these asks for a token.
pub(crate) fn is_fenced(name: u32) -> bool {
    name.is_multiple_of(4) || name == 7
}

//! The locks of the stage, by number, and their leases.

use std::time::Duration;

/// The watched lease: short, so that many expire.
pub(crate) const LEASE: Duration = Duration::from_millis(2400);
/// An occasional lease time of the caller's own: long enough to notice a lost release.
pub(crate) const LONG_LEASE: Duration = Duration::from_secs(10);

/// Number of shared locks. Greater numbers are the locks of single tasks.
pub(crate) const NAMES: u32 = 20;
/// The shared locks of a run beside Redisson: fewer, for fewer tasks. `Player.java` knows their kinds, too.
pub(crate) const BESIDE_REDISSON: [u32; 8] = [0, 1, 2, 3, 6, 16, 17, 18];
/// The crowded locks: of each kind one, with several tasks of every process; no queue is ever empty.
pub(crate) const CROWDED: [u32; 3] = [100, 101, 102];

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
            // One private lock of each process.
            NAMES.. if name % 4 == 3 => Self::ReadWrite,
            _ => Self::Plain,
        }
    }

    /// True if the store keeps a queue of the lock's exclusive waiters.
    pub(crate) fn queues(self) -> bool {
        self != Self::Plain
    }
}

pub(crate) fn lock_name(name: u32) -> String {
    format!("stage:{name}")
}

pub(crate) fn is_fenced(name: u32) -> bool {
    name.is_multiple_of(4) || name == 7
}

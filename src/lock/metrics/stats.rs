//! What a lock's waiters went through, in numbers.

use crate::counter::Counter;
use crate::lock_entry::LockEntry;

/// A snapshot of what happened to one name through a client, since the first of the [`Lock`](crate::Lock)s
/// that are alive was made.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// # let client = latchwork::LockClient::local();
/// let lock = client.get_lock("orders:42")?;
/// lock.lock().await?.unlock().await?;
/// let stats = lock.stats();
/// assert_eq!((stats.acquisitions, stats.hand_offs), (1, 0));
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LockStats {
    /// Times the lock was taken.
    pub acquisitions: u64,
    /// Hand-offs in memory: releases that gave the lock to a waiter of the same client, without a command.
    pub hand_offs: u64,
    /// Messages that woke a waiter which then got the lock.
    pub wakes_useful: u64,
    /// Messages that woke a waiter which then found the lock held by another.
    pub wakes_spurious: u64,
}

#[derive(Debug, Default)]
pub(in crate::lock) struct Counters {
    pub(in crate::lock) wakes_useful: Counter,
    pub(in crate::lock) wakes_spurious: Counter,
}

impl Counters {
    /// What is counted here, and what the engine counts.
    pub(in crate::lock) fn snapshot(&self, state: &LockEntry) -> LockStats {
        LockStats {
            acquisitions: state.acquisitions(),
            hand_offs: state.hand_offs(),
            wakes_useful: self.wakes_useful.get(),
            wakes_spurious: self.wakes_spurious.get(),
        }
    }
}

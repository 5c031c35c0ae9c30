//! [`HeldLock`] and [`WaitingLock`]: what a client holds and waits for now.

use std::time::Duration;

use crate::lock::backend::Mode;
use crate::lock::name::LockName;
use crate::lock::owner::{LeaseId, Owner};

/// A lock that a client holds, with one of its owners: see [`LockClient::held`](crate::LockClient::held).
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// # let client = latchwork::LockClient::local();
/// let guard = client.get_lock("orders:42")?.lock().await?;
/// for held in client.held() {
///     println!("{} ({}), by {} for {:?}", held.name, held.mode, held.owner, held.held_for);
///     assert!(held.owner == *guard.owner() && held.is_watched);
/// }
/// # Ok::<(), latchwork::LockError>(()) }).unwrap();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldLock {
    /// The lock.
    pub name: LockName,
    /// As what it is held.
    pub mode: Mode,
    /// The owner that has it.
    pub owner: Owner,
    /// How often the owner has it: its guards, and its holds that were [forgotten](crate::Guard::forget).
    pub holds: u32,
    /// The lease that it stands on, as [`Lock::holder`](crate::Lock::holder) says it in every process.
    pub lease: LeaseId,
    /// For how long the owner has had it, by the backend's clock.
    pub held_for: Duration,
    /// For how long it has it still if the lease is not renewed or extended; [`Duration::MAX`] if that never
    /// ends.
    pub left: Duration,
    /// Whether the watchdog renews the lease for this owner.
    pub is_watched: bool,
    /// How many acquisitions of this client wait for it.
    pub waiters: usize,
}

/// A lock that acquisitions of a client wait for: see [`LockClient::waiting`](crate::LockClient::waiting).
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// # let client = latchwork::LockClient::local();
/// for wait in client.waiting() {
///     println!("{} acquisitions wait for {} ({})", wait.waiters, wait.name, wait.mode);
/// }
/// # });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WaitingLock {
    /// The lock.
    pub name: LockName,
    /// As what it is asked for.
    pub mode: Mode,
    /// How many acquisitions wait, the one that competes at the store included.
    pub waiters: usize,
    /// For how long the one has waited that competes at the store; `None` if none does, as the lock is held
    /// in this process.
    pub competes_for: Option<Duration>,
}

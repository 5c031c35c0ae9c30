//! [`Backend`]: where the locks are kept.

use std::error::Error;
use std::time::Duration;

use crate::registry::Registry;
use crate::runtime::Runtime;
use crate::transport::Transport;

use super::name::LockName;
use super::owner::Owner;

/// What an attempt to take a lock found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// The owner has it now, once more than before.
    Acquired,
    /// Another owner has it.
    Held {
        /// How long that owner's lease lasts if nobody renews it; [`Duration::MAX`] if it never ends.
        left: Duration,
    },
}

/// What giving a hold back came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// That was the owner's last hold: the lock is free, and a message says so.
    Free,
    /// The owner has more holds.
    StillHeld,
    /// The owner had none, so nothing was changed.
    NotHeld,
}

/// One owner's hold on one name, as [`Backend::renew`] takes them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HoldKey {
    /// The lock.
    pub name: LockName,
    /// Who holds it.
    pub owner: Owner,
}

/// Where the locks are kept: in this process's memory, on a server, in files.
///
/// Every method is one atomic step on the store. A lock is held by at most one [`Owner`], any number of times, until that
/// owner has given back each hold or its lease is over.
///
/// # What an implementation must keep
///
/// * When a lock becomes free by [`release`](Self::release) or [`force_release`](Self::force_release), a
///   [`Message::Unlock`](crate::Message::Unlock) is published on its [`channel`](Self::channel), after it is free.
/// * No future hangs for ever: a store that does not answer is an error after a limit of the backend's own.
/// * A future that is dropped may or may not have had its effect; the lock finishes attempts that it abandons (see
///   [`Runtime::spawn`]) rather than dropping them.
/// * Durations count in whole milliseconds at least; the lock refuses anything finer before it comes here.
pub trait Backend: Send + Sync + 'static {
    /// Why the store could not do what was asked.
    type Error: Error + Send + Sync + 'static;
    /// How its messages come here.
    type Transport: Transport;
    /// Its clock, timers and background work.
    type Runtime: Runtime;

    /// Who waits for what in this process, over the transport. All clients of one backend share it, so that a message wakes
    /// one waiter of the process, not one of each client.
    fn registry(&self) -> &Registry<Self::Transport>;

    /// Clock, timers and background work.
    fn runtime(&self) -> &Self::Runtime;

    /// The channel on which the release of `name` is published.
    fn channel(&self, name: &LockName) -> String;

    /// Whether the store may have done what `error` was the answer to.
    ///
    /// An attempt whose outcome is unknown is undone. False is for errors that say nothing was run at all.
    fn may_have_run(&self, error: &Self::Error) -> bool {
        let _ = error;
        true
    }

    /// Takes the lock if it is free or `owner` has it already; the lease then lasts for `lease` from now at least. A lease that
    /// already lasts longer is not shortened.
    fn try_acquire(
        &self,
        name: &LockName,
        owner: &Owner,
        lease: Duration,
    ) -> impl Future<Output = Result<Tried, Self::Error>> + Send;

    /// Gives one hold back.
    fn release(
        &self,
        name: &LockName,
        owner: &Owner,
    ) -> impl Future<Output = Result<Released, Self::Error>> + Send;

    /// Frees the lock, whoever has it. True if somebody had.
    fn force_release(&self, name: &LockName) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Makes each lease last for `lease` from now at least. One answer for each hold, in order: whether the owner still has
    /// it.
    fn renew(
        &self,
        holds: &[HoldKey],
        lease: Duration,
    ) -> impl Future<Output = Result<Vec<bool>, Self::Error>> + Send;

    /// How often `owner` has the lock; 0 if it has not.
    fn hold_count(
        &self,
        name: &LockName,
        owner: &Owner,
    ) -> impl Future<Output = Result<u64, Self::Error>> + Send;

    /// How long the lease lasts; `None` if nobody has the lock, [`Duration::MAX`] if the lease never ends.
    fn remaining(
        &self,
        name: &LockName,
    ) -> impl Future<Output = Result<Option<Duration>, Self::Error>> + Send;
}

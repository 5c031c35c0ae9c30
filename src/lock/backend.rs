//! [`Backend`]: where the locks are kept.

use std::error::Error;
use std::time::Duration;

use crate::lock_entry::Moment;
use crate::registry::Registry;
use crate::runtime::Runtime;
use crate::transport::Transport;

use super::kind::LockKind;
use super::name::{LockName, NameError};
use super::owner::LeaseId;

/// What an attempt to take a lock came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireOutcome {
    /// The lease is granted, or granted anew.
    Acquired {
        /// The last of the fencing tokens that were asked for; 0 if none were.
        last_token: u64,
    },
    /// Another id has the lock.
    Held {
        /// When to ask again at the latest, if no message comes before: how long its lease lasts if nobody renews it, [`Duration::MAX`] if it
        /// never ends; less if it is a lock whose release nobody may hear of.
        left: Duration,
    },
}

/// What a release came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseOutcome {
    /// The lock is free, and a message says so.
    Released {
        /// How many subscribers the message went to, beside those of this process; 0 if that is not known. For fairness between processes
        /// only.
        heard: usize,
    },
    /// The id did not have the lock, so nothing was changed.
    NotHeld,
}

/// Who has a lock, as the store tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The lease; `None` if what is there is not of the form of a [`LeaseId`].
    pub id: Option<LeaseId>,
    /// How long the lease lasts if nobody renews it; [`Duration::MAX`] if it never ends.
    pub left: Duration,
}

/// One lease of one name, as [`Backend::renew`] takes them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LeaseKey {
    /// The lock.
    pub name: LockName,
    /// The lease.
    pub id: LeaseId,
}

/// What an error of a backend says about the command that met it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Failure {
    /// The store answered, and refused. The command did not run; without a change of configuration or rights it never will.
    Refused,
    /// The store could not be reached. The command did not run; trying again may help.
    Unreachable,
    /// There was no answer. The command may have run.
    Indeterminate,
    /// The store answered: the name is held as another kind of lock. Nothing was changed.
    OtherKind(LockKind),
}

/// Where the locks are kept: in this process's memory, on a server, in files.
///
/// Every method is one atomic step on the store. A name is free, or leased to one [`LeaseId`] until that is released or the lease is over.
/// The store knows nothing of owners, counts and waiters: all of that is kept inside of the client.
///
/// | asked for | free | leased to this id | leased to another |
/// |---|---|---|---|
/// | [`try_acquire`](Self::try_acquire) | leased | lasts for `lease` from now at least | [`Held`](AcquireOutcome::Held) |
/// | [`release`](Self::release) | [`NotHeld`](ReleaseOutcome::NotHeld) | freed | `NotHeld` |
/// | [`renew`](Self::renew) | false | lasts for `lease` from now at least; true | false |
///
/// # Commands that come late
///
/// Commands of one id may be under way side by side, may run twice, and may run in another order than they were sent in. One that has failed as
/// [`Failure::Indeterminate`], or whose future was dropped, may still run, after its error and after commands that were sent later. One that
/// has failed otherwise did not run, and never will; one that was answered does not run any more.
///
/// All of that is harmless by three rules, which the client and the store keep together:
///
/// * **No command makes a lease shorter** but a release. What comes late can only make it last longer, so the client's belief, which goes by what
///   was confirmed, is never longer than the store's.
/// * A client never uses an id again that it has released: a release or a renewal that comes late finds nothing.
/// * An attempt that may come late is undone by [`roll_back`](Self::roll_back), which does not take effect before it does.
///
/// The client releases a lease until its latest possible end by all commands that it sent, answered or not. Tokens that are reserved twice leave
/// a gap.
///
/// # Fencing tokens
///
/// A number that rises from one reservation of a name to the next, whoever makes it, for as long as the store lasts; it need not rise by
/// one. `try_acquire` reserves as many consecutive ones as it is asked for.
///
/// # What an implementation must keep
///
/// * When a lock becomes free by [`release`](Self::release) or [`force_release`](Self::force_release), a
///   [`Message::Unlock`](crate::Message::Unlock) is published on its [`channel`](Self::channel), after it is free.
/// * No future hangs for ever: a store that does not answer is an error after a limit of the backend's own.
/// * A future runs on whichever executor polls it, and may be begun on one and finished on another.
/// * A future that is dropped may or may not have had its effect; what was acquired so is [rolled back](Self::roll_back).
/// * A method that panics counts as one that did not answer. In a call of the caller's the panic goes on, once what was begun is rolled back or
///   is to be repeated in the background; there, it is reported, and the command is repeated. It costs no other name anything.
/// * Durations count in whole milliseconds at least; the lock refuses anything finer before it comes here.
pub trait Backend: Send + Sync + 'static {
    /// Why the store could not do what was asked.
    type Error: Error + Send + Sync + 'static;
    /// How its messages come here.
    type Transport: Transport;
    /// Its clock, timers and background work.
    type Runtime: Runtime;

    /// Whether each future is ready when it is polled for the first time, as with a store in memory.
    ///
    /// An acquisition of a lock that is free is one call then, without a future of its own, and a guard that is dropped gives its lock back
    /// without an allocation. A future that is pending all the same is dropped, and the
    /// command is given once more in the background.
    const ANSWERS_AT_ONCE: bool = false;

    /// The channels that this process waits on, over the transport. All clients of one backend share it, so that a message wakes
    /// one waiter of the process, not one of each client.
    fn registry(&self) -> &Registry<Self::Transport>;

    /// Clock, timers and background work.
    fn runtime(&self) -> &Self::Runtime;

    /// The channel on which the release of `name` is published.
    fn channel(&self, name: &LockName) -> String;

    /// What `error` says about the command that met it.
    fn failure(&self, error: &Self::Error) -> Failure {
        let _ = error;
        Failure::Indeterminate
    }

    /// How often a connection to the store was made anew, after it had stood. For [`Metrics`](crate::Metrics) only.
    fn reconnects(&self) -> u64 {
        0
    }

    /// Whether the store can keep a lock under `name`; asked by [`LockClient::get_lock`](crate::LockClient::get_lock).
    ///
    /// # Errors
    ///
    /// [`NameError`] says why it cannot.
    fn check_name(&self, name: &LockName) -> Result<(), NameError> {
        let _ = name;
        Ok(())
    }

    /// Which part of the store keeps `name`, as a number of any kind, if one part can be slow or gone while the others are not.
    ///
    /// Names of different groups are [renewed](Self::renew) by different calls, side by side, so that a part that is gone costs only
    /// its own locks. A group may change at any time.
    fn renewal_group(&self, name: &LockName) -> u64 {
        let _ = name;
        0
    }

    /// Leases `name` to `id` for `lease` from now if it is free. If it is leased to `id` already, makes that last for as long at least. With `tokens`
    /// above 0, reserves so many fencing tokens.
    ///
    /// `now` is the time by the [runtime's](Self::runtime) clock, which the caller has looked at anyway. A store that counts leases by that
    /// clock may count this one from then; others leave it.
    fn try_acquire(
        &self,
        name: &LockName,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
        now: Moment,
    ) -> impl Future<Output = Result<AcquireOutcome, Self::Error>> + Send;

    /// Frees the lock if `id` has it.
    fn release(
        &self,
        name: &LockName,
        id: &LeaseId,
    ) -> impl Future<Output = Result<ReleaseOutcome, Self::Error>> + Send;

    /// As [`release`](Self::release), after a [`try_acquire`](Self::try_acquire) that was given up. It may still be on its way, and this
    /// must not take effect before it does.
    ///
    /// A store whose commands take effect in the order in which they are sent needs nothing of its own.
    fn roll_back(
        &self,
        name: &LockName,
        id: &LeaseId,
    ) -> impl Future<Output = Result<ReleaseOutcome, Self::Error>> + Send {
        self.release(name, id)
    }

    /// Makes each lease last for `lease` from now at least. One answer for each lease, in order: whether it still has its lock.
    fn renew(
        &self,
        leases: &[LeaseKey],
        lease: Duration,
    ) -> impl Future<Output = Result<Vec<bool>, Self::Error>> + Send;

    /// Frees the lock, whoever has it. True if somebody had.
    fn force_release(&self, name: &LockName) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Who has the lock; `None` if it is free.
    fn holder(&self, name: &LockName) -> impl Future<Output = Result<Option<Holder>, Self::Error>> + Send;
}

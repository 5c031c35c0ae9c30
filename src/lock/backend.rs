//! [`Backend`]: where the locks are kept.

use std::error::Error;
use std::time::Duration;

use crate::registry::Registry;
use crate::runtime::Runtime;
use crate::transport::Transport;

use super::name::{LockName, NameError};
use super::owner::Owner;

/// What an attempt to take a lock found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tried {
    /// The owner has it now, as often as was asked for.
    Acquired {
        /// The fencing token, if one was asked for.
        token: Option<u64>,
    },
    /// Another owner has it.
    Held {
        /// How long that owner's lease lasts if nobody renews it; [`Duration::MAX`] if it never ends.
        left: Duration,
    },
    /// Nobody has it, and more than one hold was asked for: the owner's earlier ones are gone, and nothing was changed. Never
    /// the answer when one hold is asked for.
    Lost,
}

/// What giving a hold back came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Released {
    /// No hold was to be left: the lock is free, and a message says so.
    Free,
    /// The owner has the holds that were to be left.
    StillHeld,
    /// The owner had none, so nothing was changed.
    NotHeld,
}

/// What handing a lock over came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandedOver {
    /// The next owner has it now, once.
    Done {
        /// Its fencing token, if one was asked for.
        token: Option<u64>,
    },
    /// The owner that was to hand it over did not have it, so nothing was changed.
    NotHeld,
    /// This store cannot do it in one step, and nothing was changed.
    Unsupported,
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
/// # Counting
///
/// [`try_acquire`](Self::try_acquire) and [`release`](Self::release) say how many holds the owner is to have when they are
/// done, and not how many more or less. The caller knows the number and sends one owner's changes of one name one after
/// another, so the store takes it as it comes, whatever number it had, and a command that runs twice counts once. What the store
/// has to say is whether the owner has the lock *at all*, because that can end without the caller:
///
/// | asked for | free | held by this owner, however often | held by another |
/// |---|---|---|---|
/// | `try_acquire` of 1 | taken: [`Acquired`](Tried::Acquired) | set to 1: `Acquired` | [`Held`](Tried::Held) |
/// | `try_acquire` of *n* > 1 | unchanged: [`Lost`](Tried::Lost) | set to *n*: `Acquired` | `Held` |
/// | `release` to *n* > 0 | [`NotHeld`](Released::NotHeld) | set to *n*: [`StillHeld`](Released::StillHeld) | `NotHeld` |
/// | `release` to 0 | `NotHeld` | freed: [`Free`](Released::Free) | `NotHeld` |
///
/// Every one of them, and [`renew`](Self::renew), leaves the same behind when it runs again, and but for the last row answers the
/// same. An implementation that itself sends `release` to 0 again, after a reply that was lost, answers `Free` where it finds
/// nothing held: the first one has freed it, or it was lost before, and that cannot be told any more.
///
/// # Fencing tokens
///
/// A number that rises from one acquisition of a name to the next, whoever makes it, for as long as the store lasts; it need not
/// rise by one. A `try_acquire` that asks for one makes a new one if it changes how often the owner has the lock. If the owner
/// has it that often already, the command is one that was sent again, and it is told the owner's token.
///
/// # What an implementation must keep
///
/// * When a lock becomes free by [`release`](Self::release) or [`force_release`](Self::force_release), a
///   [`Message::Unlock`](crate::Message::Unlock) is published on its [`channel`](Self::channel), after it is free.
/// * No future hangs for ever: a store that does not answer is an error after a limit of the backend's own.
/// * A future runs on whichever executor polls it, and may be begun on one and finished on another: by the caller first, and on
///   the [`Runtime`] when the caller has gone away.
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

    /// Whether the store may have done what `error` was the answer to.
    ///
    /// An attempt whose outcome is unknown is [taken back](Self::take_back), to the number of holds before it. False is for
    /// errors that say nothing was run at all.
    fn may_have_run(&self, error: &Self::Error) -> bool {
        let _ = error;
        true
    }

    /// Makes `owner` have the lock `holds` times (at least once) if it has it already, or if it is free and `holds` is 1; the lease
    /// then lasts for `lease` from now at least. A lease that already lasts longer is not shortened. See [Counting](#counting).
    ///
    /// With `fenced`, what is acquired has a token: see [Fencing tokens](#fencing-tokens).
    fn try_acquire(
        &self,
        name: &LockName,
        owner: &Owner,
        holds: u64,
        lease: Duration,
        fenced: bool,
    ) -> impl Future<Output = Result<Tried, Self::Error>> + Send;

    /// Leaves `owner` the lock `left` times if it has it; 0 frees it. The lease stays as it is. See [Counting](#counting).
    fn release(
        &self,
        name: &LockName,
        owner: &Owner,
        left: u64,
    ) -> impl Future<Output = Result<Released, Self::Error>> + Send;

    /// As [`release`](Self::release), after an attempt of which it is not known whether it ran. It may still be on its way, and this
    /// must not take effect before it does.
    ///
    /// A store whose commands take effect in the order in which they are sent needs nothing of its own.
    fn take_back(
        &self,
        name: &LockName,
        owner: &Owner,
        left: u64,
    ) -> impl Future<Output = Result<Released, Self::Error>> + Send {
        self.release(name, owner, left)
    }

    /// Gives the lock from one owner, who has it once, to `next`, who waits for it in this process and has it once then, for `lease`
    /// from now. As one step, and without a message: nobody but `next` is concerned. Run twice, it answers the same twice.
    ///
    /// It saves a command and a wake-up for each of many who wait here. A store that cannot do it leaves it out: then the lock is
    /// given back, and whoever hears of that first has it.
    ///
    /// With `fenced`, what `next` acquires has a token: see [Fencing tokens](#fencing-tokens).
    fn hand_over(
        &self,
        name: &LockName,
        owner: &Owner,
        next: &Owner,
        lease: Duration,
        fenced: bool,
    ) -> impl Future<Output = Result<HandedOver, Self::Error>> + Send {
        let _ = (name, owner, next, lease, fenced);
        std::future::ready(Ok(HandedOver::Unsupported))
    }

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

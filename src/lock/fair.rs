//! [`FairBackend`]: a store that keeps a queue for each name, over all clients.

use std::time::Duration;

use crate::lock_entry::Moment;

use super::backend::{AcquireOutcome, Backend};
use super::name::LockName;
use super::owner::LeaseId;

/// A position in the store's queue of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// For how long its waiter has waited. The queue is in the order in which the waiters began to wait.
    pub waited: Duration,
    /// For how long the position is kept if it is not asked for again. A lease that the store grants to it unasked ends then, too.
    pub kept: Duration,
}

/// Who of the releasing client waits next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Next {
    /// The lease that is asked for, new.
    pub id: LeaseId,
    /// How long it is to last from the release on.
    pub lease: Duration,
    /// How many fencing tokens to reserve.
    pub tokens: u64,
    /// Its position, should others come first.
    pub position: Position,
}

/// What a release of a fair lock came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FairReleaseOutcome {
    /// The lock is free, or granted to another waiter. The next waiter of this client, if one was named, is in the queue.
    Released,
    /// The next waiter of this client has the lock.
    GrantedToNext {
        /// The last of the fencing tokens that were asked for; 0 if none were.
        last_token: u64,
    },
    /// The id did not have the lock. It is in the queue no more, and the next waiter has not been put there.
    NotHeld,
}

/// A store that keeps a queue for each name, over all clients: for [`LockClient::fair_lock`](crate::LockClient::fair_lock).
///
/// A name is held as a fair lock or as a plain one at a time; an operation on the other kind fails with
/// [`Failure::OtherKind`](super::Failure::OtherKind), and changes nothing. [`renew`](Backend::renew) and [`holder`](Backend::holder) serve both.
///
/// # The queue
///
/// It has ids. An id has a position in it from the [`try_acquire_fair`](Self::try_acquire_fair) on that asked for one and did not get the
/// lock, until it gets the lock, is [released](Self::release_fair), or has not been asked for again for as long as its
/// [`Position::kept`] says.
///
/// As soon as the lock is free (by a release, by force, or because its lease is over and somebody asks), the store leases it to the first id in
/// the queue whose client can be told, for what is left of its position, and delivers
/// [`Message::Granted`](crate::Message::Granted) with the id's number on the client's [grant channel](Self::grant_channel). An id whose client
/// is known to listen no more keeps its position and is passed over.
///
/// So a client that is granted a lease never asks, and one that died costs the others nothing, or at most the time its position is kept.
///
/// A message may come late, twice or never, and others may publish what looks like one. So a grant says
/// something that only the store can know, from the waiter's own
/// [`try_acquire_fair`](Self::try_acquire_fair), and the backend delivers
/// [`Message::Granted`](crate::Message::Granted) only for that; what else comes is a hint to ask at most. The
/// client believes a grant for as long as the position was kept by what it has sent itself, and asks again
/// before that is over. For an id whose position may have ended meanwhile it believes none, and uses another
/// one.
///
/// All of it may run twice: a client never uses an id again that it has released.
pub trait FairBackend: Backend {
    /// The channel on which the client with this id is told that it was granted `name`.
    fn grant_channel(&self, name: &LockName, client: &str) -> String;

    /// The channel on which the release of `name` is published by clients that know nothing of the queue, as
    /// those of another library, if there are such. A waiter that hears of it asks.
    fn foreign_channel(&self, name: &LockName) -> Option<String> {
        let _ = name;
        None
    }

    /// Whether a client may take a grant's message for the lease itself. Otherwise it asks by
    /// [`try_acquire_fair`](Self::try_acquire_fair) once more before it believes it, and names no [`Next`] when it releases.
    fn grants_suffice(&self) -> bool {
        true
    }

    /// Leases `name` to `id` for `lease` from now if it is free and nobody in the queue comes before `id` and can be told; if it is leased to `id`
    /// already, for as long at least. With `tokens` above 0, reserves so many fencing tokens then.
    ///
    /// Otherwise `id` gets `position`, or keeps the one it has for as long as this one says. Without `position` it does not wait. (A store whose
    /// clock may be set back gives it the earlier of both places, so that newcomers do not come before it.)
    fn try_acquire_fair(
        &self,
        name: &LockName,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
        position: Option<Position>,
        now: Moment,
    ) -> impl Future<Output = Result<AcquireOutcome, Self::Error>> + Send;

    /// Takes `id` out of the queue, and frees the lock if `id` has it. The lock goes to the first of the queue and `next`, then.
    fn release_fair(
        &self,
        name: &LockName,
        id: &LeaseId,
        next: Option<&Next>,
    ) -> impl Future<Output = Result<FairReleaseOutcome, Self::Error>> + Send;

    /// As [`release_fair`](Self::release_fair) without a next waiter, after a [`try_acquire_fair`](Self::try_acquire_fair) that was given up.
    /// It may still be on its way, and this must not take effect before it does.
    ///
    /// A store whose commands take effect in the order in which they are sent needs nothing of its own.
    fn roll_back_fair(
        &self,
        name: &LockName,
        id: &LeaseId,
    ) -> impl Future<Output = Result<FairReleaseOutcome, Self::Error>> + Send {
        self.release_fair(name, id, None)
    }

    /// Frees the lock, whoever has it, for the first of the queue. True if somebody had it.
    fn force_release_fair(&self, name: &LockName) -> impl Future<Output = Result<bool, Self::Error>> + Send;
}

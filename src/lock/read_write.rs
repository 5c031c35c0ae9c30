//! [`ReadWriteBackend`]: a store that keeps locks for many readers or one writer.

use std::time::Duration;

use crate::lock_entry::Moment;

use super::backend::{AcquireOutcome, Backend, Holder, LeaseKey};
use super::fair::{FairReleaseOutcome, Next, Position};
use super::name::LockName;
use super::owner::LeaseId;

/// What an attempt to read asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadRequest<'a> {
    /// How long the lease is to last.
    pub lease: Duration,
    /// Whether a fencing token is wanted.
    pub fenced: bool,
    /// It waits: for how long it has waited, and for how long the store is to remember that.
    pub position: Option<Position>,
    /// The lease under which the same owner writes: it gets in beside itself.
    pub under: Option<&'a LeaseId>,
}

/// Who has a read-write lock: a writer, readers, or a writer that reads as well.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadWriteHolders {
    /// Who writes.
    pub writer: Option<Holder>,
    /// Who reads, in no particular order.
    pub readers: Vec<Holder>,
}

/// A store that keeps locks for many readers or one writer: for [`LockClient::read_write`](crate::LockClient::read_write).
///
/// A name is held as one kind of lock at a time; an operation on another kind fails with [`Failure::OtherKind`](super::Failure::OtherKind), and
/// changes nothing. Each lease is one id's, to read or to write, and lasts as long as was asked for it, whoever else comes and leaves.
///
/// # Turns
///
/// Writers queue as [fair locks'](super::FairBackend) waiters do, are told in the same way that they were granted the lock, and hear on the
/// [channel of the name](Self::read_write_channel), too, where others say that it is free. Readers that wait listen there only, and ask whenever
/// they hear of something.
///
/// * An id may read if nobody writes, and no writer that can be told began to wait before it.
/// * When a writer leaves, the readers that wait are let in before the next writer: a
///   [`Message::ReadUnlock`](crate::Message::ReadUnlock) is published, for a second no writer gets the lock, and whoever began to wait before that
///   may read, although writers wait.
/// * When nobody reads any more, the first writer of the queue is granted the lock: as soon as all who were let in have come or given up, or
///   else when that second is over and somebody asks.
/// * What can be granted to nobody is free, and a [`Message::Unlock`](crate::Message::Unlock) says so, or a `ReadUnlock` if readers wait, or others
///   may of whom the store does not know. A `ReadUnlock` is published as well when those are gone for whom readers had to wait: the last writer
///   leaves the queue, or a lease that others wait for ends earlier than it would have.
///
/// So a writer waits for those who read and one turn of readers, and a reader for one writer.
///
/// All of it may run twice: a client never uses an id again that it has released.
pub trait ReadWriteBackend: Backend {
    /// The channel on which whoever waits for `name` is told to ask.
    fn read_write_channel(&self, name: &LockName) -> String;

    /// The channel on which the client with this id is told that it was granted `name` to write.
    fn write_grant_channel(&self, name: &LockName, client: &str) -> String;

    /// Whether a client may take a grant's message for the lease itself: see
    /// [`FairBackend::grants_suffice`](super::FairBackend::grants_suffice).
    fn write_grants_suffice(&self) -> bool {
        true
    }

    /// Leases `name` to `id` to write, for exactly `lease` from now, if `id` writes already, or if nobody has it, nobody in the queue comes before
    /// `id` and can be told, and it is not the readers' turn. With `tokens` above 0, reserves so many fencing tokens then.
    ///
    /// Otherwise `id` gets `position`, or keeps the one it has for as long as this one says. Without `position` it does not wait. (A store whose
    /// clock may be set back gives it the earlier of both places, so that newcomers do not come before it.)
    fn try_write(
        &self,
        name: &LockName,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
        position: Option<Position>,
        now: Moment,
    ) -> impl Future<Output = Result<AcquireOutcome, Self::Error>> + Send;

    /// Takes `id` out of the writers' queue, and frees the lock if `id` writes. Those who read beside it read on. The lock goes to the readers
    /// that wait, or else to the first of the queue and `next`, which is in the queue then if the lock is not its.
    fn release_write(
        &self,
        name: &LockName,
        id: &LeaseId,
        next: Option<&Next>,
    ) -> impl Future<Output = Result<FairReleaseOutcome, Self::Error>> + Send;

    /// As [`release_write`](Self::release_write) without a next writer, after a [`try_write`](Self::try_write) that was given up. It may still be
    /// on its way, and this must not take effect before it does.
    fn roll_back_write(
        &self,
        name: &LockName,
        id: &LeaseId,
    ) -> impl Future<Output = Result<FairReleaseOutcome, Self::Error>> + Send {
        self.release_write(name, id, None)
    }

    /// Leases `name` to `id` to read, for at least `read.lease` from now, if `id` reads already, if `read.under` writes, or if it may by the rules
    /// above. With `read.fenced`, says a fencing token that is greater than each that was reserved to write before, and the same for all
    /// who ask for one until the next is reserved to write: readers fence off what a writer does late, and not each other.
    ///
    /// Otherwise the id is remembered to wait, for as long as its position says; without a position it is not.
    fn try_read(
        &self,
        name: &LockName,
        id: &LeaseId,
        read: &ReadRequest<'_>,
        now: Moment,
    ) -> impl Future<Output = Result<AcquireOutcome, Self::Error>> + Send;

    /// `id` reads no more, and does not wait to. True if it did read.
    fn release_read(
        &self,
        name: &LockName,
        id: &LeaseId,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// As [`release_read`](Self::release_read), after a [`try_read`](Self::try_read) that was given up. It may still be on its way, and this must
    /// not take effect before it does.
    fn roll_back_read(
        &self,
        name: &LockName,
        id: &LeaseId,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send {
        self.release_read(name, id)
    }

    /// [`renew`](Backend::renew) for leases to write.
    fn renew_writes(
        &self,
        leases: &[LeaseKey],
        lease: Duration,
    ) -> impl Future<Output = Result<Vec<bool>, Self::Error>> + Send;

    /// [`renew`](Backend::renew) for leases to read.
    fn renew_reads(
        &self,
        leases: &[LeaseKey],
        lease: Duration,
    ) -> impl Future<Output = Result<Vec<bool>, Self::Error>> + Send;

    /// Frees the lock, whoever has it, for those who wait. True if somebody had it.
    fn force_release_read_write(
        &self,
        name: &LockName,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// Who has the lock.
    fn read_write_holders(
        &self,
        name: &LockName,
    ) -> impl Future<Output = Result<ReadWriteHolders, Self::Error>> + Send;
}

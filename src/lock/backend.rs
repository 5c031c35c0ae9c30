//! [`Backend`]: the store of the locks.

mod command;
mod mode;
mod store;

use std::error::Error;
use std::time::Duration;

use crate::subscription::registry::Registry;
use crate::subscription::transport::Transport;
use crate::support::runtime::Runtime;

use crate::lock::name::{LockName, NameError};
use crate::lock::owner::LeaseId;

pub use self::command::{
    AcquireOutcome, AcquireRequest, Channels, Failure, Holder, LeaseKey, NextWaiter, Permits, QueuePosition,
    ReleaseOutcome,
};
pub(in crate::lock) use self::mode::LONGEST_POSITION;
pub use self::mode::{LockKind, Mode};
pub use self::store::AnyBackend;
pub(super) use self::store::{Boxed, CommandFuture, Failed, Store};

/// The latest time at which an unanswered command may run: no closed connection sends its data for longer.
pub const LATEST_RUN: Duration = Duration::from_secs(120);

#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store of locks",
    label = "expected a `Backend`, such as `Redis` or `Local`",
    note = "await a connection and take its value: `LockClient::new(Redis::connect(url).await?)`"
)]
/// The store of the locks, in this process's memory, on a server or in files.
///
/// [`LockClient::new`](crate::LockClient::new) takes any backend. Implement this trait to keep locks in a
/// store of your own; each command is one atomic step. A name is free, or leased to one [`LeaseId`] ([to
/// read](Mode::Read), to many) until its release or end. Owners, hold counts and waiters stay in the client.
///
/// # Examples
///
/// Send the commands for a plain lock, as a client does:
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// use std::time::{Duration, Instant};
/// use latchwork::backend::{
///     AcquireOutcome, AcquireRequest, Backend, LeaseId, LeaseKey, LockName, Mode, ReleaseOutcome,
/// };
/// use latchwork::local::Local;
///
/// let (store, name) = (Local::new(), LockName::new("orders:42")?);
/// let one: LeaseId = "8743c9c0-0795-4907-87fd-6c719a6b4586:1".parse()?;
/// let other: LeaseId = "0b1a3a5e-4bd2-4b4b-9f0e-2a8f5b0f7f11:1".parse()?;
/// let lease = Duration::from_secs(30);
/// let request = |id: &LeaseId| AcquireRequest::new(id.clone(), lease, Instant::now().into());
///
/// let outcome = store.acquire(Mode::Plain, &name, &request(&one)).await?;
/// assert_eq!(outcome, AcquireOutcome::Acquired { last_token: 0 });
/// let outcome = store.acquire(Mode::Plain, &name, &request(&other)).await?;
/// assert!(matches!(outcome, AcquireOutcome::Held { left } if left <= lease));
///
/// let key = LeaseKey { name: name.clone(), id: one.clone() };
/// assert_eq!(store.renew(Mode::Plain, &[key], lease).await?, [true]);
/// let outcome = store.release(Mode::Plain, &name, &other, None).await?;
/// assert_eq!(outcome, ReleaseOutcome::NotHeld);
/// let outcome = store.release(Mode::Plain, &name, &one, None).await?;
/// assert_eq!(outcome, ReleaseOutcome::Released { receivers: 0 });
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
///
/// Test an implementation by the suite of the package `latchwork-conformance`:
///
/// ```text
/// latchwork_conformance::suite!(plain: || FileLocks::new(&directory()));
/// ```
///
/// A failed test names the broken sentence of this contract. The suite does not delay, lose or double
/// commands: a store behind a network also needs tests with injected faults. [A backend of your own] is the
/// guide; [`examples/own_backend`] is a complete backend with these tests.
///
/// [A backend of your own]: https://github.com/latchwork/latchwork/blob/main/docs/own-backend.md
/// [`examples/own_backend`]: https://github.com/latchwork/latchwork/tree/main/examples/own_backend
///
/// # The three parts of a backend
///
/// | part | task | use by a client |
/// |---|---|---|
/// | `Backend`, the commands | takes one atomic step on the store per command | sends the commands, and relies on the answers |
/// | [`Transport`], the messages | tells a channel's [`Inbox`](crate::backend::Inbox) of messages from the store, of readiness of the subscription, and of a possible loss of messages | subscribes before the wait, and asks the store again after a message: only a [grant](#fair-locks) counts as an acquisition |
/// | [`Runtime`], the surroundings | provides a clock, timers, and tasks that outlive their caller | reads no other clock; renews leases and repeats releases in background tasks |
///
/// The commands publish on the [`channels`](Self::channels) to which the transport subscribes. The client
/// counts each lease from the send time of its command, by the clock of the [runtime](Self::runtime). A
/// store without messages has a transport that polls the store; a backend without an executor uses
/// `local::ThreadRuntime`.
///
/// # Plain locks
///
/// A backend for [plain](Mode::Plain) locks alone implements the methods without a default, and ignores the
/// [`Mode`].
///
/// | command | name is free | leased to this id | leased to another id |
/// |---|---|---|---|
/// | [`acquire`](Self::acquire) | leased | lasts for at least `lease` from now | [`Held`](AcquireOutcome::Held) |
/// | [`release`](Self::release) | [`NotHeld`](ReleaseOutcome::NotHeld) | freed | `NotHeld` |
/// | [`renew`](Self::renew) | false | lasts for at least `lease` from now; true | false |
///
/// A name is held as one [kind](crate::LockKind) of lock at a time: a command for another changes nothing and
/// fails with [`Failure::OtherKind`].
///
/// # What each command must keep
///
/// | command | one atomic step | effect of a second or late run | answer or message |
/// |---|---|---|---|
/// | `acquire` | the test that the name is free, the lease, the tokens, the position | at most a longer lease; a gap in the tokens | a message to the waiter that is granted the free lock |
/// | `release` | the test that `id` has the name, the end of the lease, the grant to the next waiter | the second run finds nothing | a message that the name is free, or to the waiter that has it |
/// | `roll_back` | as `release`, never before the `acquire` to undo | as `release` | as `release` |
/// | `renew` | each lease by itself | at most a longer lease | none |
/// | `force_release` | the test that the name is held, the end of the leases, the grant to the next waiter | frees a later lease: a client sends the command once | as `release` |
/// | `holders` | one look at the name | changes nothing | none |
///
/// # What else an implementation must keep
///
/// * No future hangs for ever: a missing answer is an error after a limit of the backend's own.
/// * A future runs on any executor, and may begin on one and finish on another.
/// * A dropped future may take effect; the client [rolls back](Self::roll_back) a dropped acquisition.
/// * A command that panics counts as unanswered ([`Failure::Indeterminate`]). The panic is
///   [reported](crate::on_foreign_panic), reaches no caller, and affects no other name.
/// * Durations count in whole milliseconds at least; the lock refuses finer leases before any command.
///
/// # Fencing tokens
///
/// `acquire` reserves as many consecutive tokens as requested, all greater than every token that any client
/// has reserved for the name before; gaps are allowed.
///
/// # Messages
///
/// After [`release`](Self::release) or [`force_release`](Self::force_release) of a plain lock, the store
/// publishes [`Message::Unlock`](crate::backend::Message::Unlock) on the name's [channel](Self::channels). A
/// message is a hint, and may be lost, late or doubled: a lost message costs only time.
///
/// # Fair locks
///
/// The store has a queue of ids for each name.
///
/// * An `acquire` with a position that does not get the lock enqueues its id. The id leaves the queue when it
///   gets the lock, is released, or has not asked again for as long as [`QueuePosition::kept`].
/// * An attempt gets the lock if the lock is free and no earlier id in the queue has a reachable client.
///   Otherwise the id is enqueued, or keeps its position. (A store whose clock may be set back keeps the
///   earlier of the old and the new position, so that newcomers do not overtake.)
/// * As soon as the lock is free (by a release, by force, or because its lease has ended and a client asks),
///   the store leases the lock to the first id in the queue with a reachable client, until the end of its
///   position, and delivers [`Message::Granted`](crate::backend::Message::Granted) with the id's number on
///   the client's own [channel](Self::channels). An id with an unreachable client keeps its position.
/// * A release that names a [`NextWaiter`] enqueues that waiter before the grant.
///
/// A grant's message may come late, twice or never, and others may publish a forgery. So a grant carries a
/// secret of the waiter's own `acquire`, which only the store can know, and the backend delivers `Granted`
/// only for a message with the secret. The client believes a grant for as long as its own commands have kept
/// the position, and asks again before that time ends. If the position of an id may have ended meanwhile, the
/// client asks under a new id.
///
/// # Read-write locks
///
/// Each lease belongs to one id, and lasts independently of other leases. Writers queue like the waiters of
/// fair locks. Waiting readers listen only on the name's channel, and ask after each message; their position
/// says how long the store remembers that they wait.
///
/// * An id may read if there is no writer and no reachable writer began to wait earlier, or if the id reads
///   [under](AcquireRequest::under) a lease that writes.
/// * When a writer leaves, the waiting readers enter before the next writer. The store publishes a
///   [`Message::ReadUnlock`](crate::backend::Message::ReadUnlock) and gives no writer the lock for one
///   second; readers that began to wait before may read although writers wait. (A store may miss a writer
///   whose lease has ended by itself.)
/// * After the last reader has left, the store grants the lock to the first writer of the queue: as soon as
///   all readers let in by the message have come or given up, or else once that second is over and a client
///   asks. A reader that asks then, and began to wait before that writer, may still read first.
/// * If no waiter can be granted the lock, the store publishes `Unlock`, or `ReadUnlock` if readers wait or
///   may wait without the store's knowledge. The store also publishes `ReadUnlock` when the last writer
///   leaves the queue, or when a lease ends early, and readers have waited for either.
/// * A reader's fencing token is greater than each token reserved earlier to write, and equal for all readers
///   until the next reservation to write: readers fence off late writes, and not each other.
/// * A released writer that also reads goes on reading; a released reader also leaves the queue.
///
/// # Semaphores
///
/// Under the mode [`Permits`](Mode::Permits) a name has many leases, each for a number of permits.
///
/// * An `acquire` is granted if the permits in use, with the requested ones, are at most the request's own
///   [`capacity`](Permits::capacity), and if no earlier id with a reachable client is queued. A request for
///   several permits gets all or none. The store keeps no capacity.
/// * As soon as permits are free, the store grants the first ids of the queue their permits, each by its own
///   capacity, as a fair lock's. If the first id does not fit, no later id is granted.
/// * [`Held`](AcquireOutcome::Held) says when the earliest lease ends. Then one waiter of each client asks,
///   and the store grants all permits that the ended leases leave.
///
/// # Commands that come late
///
/// A client may have several commands under way at a time; each may run twice, and in another order than
/// sent. After [`Failure::Indeterminate`], or after its future was dropped, a command may still run; after
/// any other failure it never runs. An answered command does not run again, unless
/// [`may_run_again`](Self::may_run_again) says so, and its answer is the answer of its last run.
///
/// Three rules, which the client and the store keep together, make late commands harmless:
///
/// * **No command makes a lease shorter** but a release. A late command can only prolong a lease, so the
///   client's belief, which counts confirmed time only, never outlasts the lease in the store.
/// * A client never uses an id again that it has released: a late release or renewal finds nothing.
/// * An attempt that may come late is undone by [`roll_back`](Self::roll_back), never taking effect first.
///
/// The client repeats a release until the latest possible end of the lease by all commands sent, answered or
/// not, and a rollback for [`LATEST_RUN`] longer. A doubled reservation leaves a gap in the tokens.
pub trait Backend: Send + Sync + Sized + 'static {
    /// The reason why the store failed to run a command.
    type Error: Error + Send + Sync + 'static;
    /// The receiver of the store's messages.
    type Transport: Transport;
    /// The clock, timers and background tasks.
    type Runtime: Runtime;

    /// True if each future is ready at its first poll, as of a store in memory.
    ///
    /// Each command then takes effect in the client's own call, without a boxed future, and dropping a guard
    /// releases its lock without an allocation. A pending future is dropped and its command sent again.
    const ANSWERS_AT_ONCE: bool = false;

    /// The subscriptions, one per channel, of all clients of this backend: a message wakes one waiter.
    fn registry(&self) -> &Registry<Self::Transport>;

    /// The clock, timers and background tasks of all clients.
    fn runtime(&self) -> &Self::Runtime;

    /// True if the store keeps locks of this mode: of read-write locks both modes, or neither.
    fn supports(&self, mode: Mode) -> bool {
        mode == Mode::Plain
    }

    /// The channels on which the client with the id `client` listens while it waits for `name`.
    ///
    /// * [`Plain`](Mode::Plain): the channel of the name's releases.
    /// * [`Fair`](Mode::Fair), [`Write`](Mode::Write): the client's own channel for grants of the name; and
    ///   as the common channel, if the store has one, the channel that tells all clients of a free lock.
    /// * [`Read`](Mode::Read): the channel that tells all clients.
    /// * [`Permits`](Mode::Permits): the client's own channel for grants of the name.
    fn channels(&self, mode: Mode, name: &LockName, client: &str) -> Channels;

    /// True if a client may take a grant's message for the lease itself. Otherwise the client confirms each
    /// grant by an [`acquire`](Self::acquire), and names no [`NextWaiter`] at a release.
    fn grants_suffice(&self) -> bool {
        true
    }

    /// True if the store remembers which clients wait for a plain lock, and a release calls one of them, on
    /// that client's [own](Channels::own) channel. A waiter listens to the [common](Channels::common) channel
    /// only after the answer [`HeldUncalled`](AcquireOutcome::HeldUncalled).
    fn calls_waiters(&self) -> bool {
        false
    }

    /// Tells if the command that failed with `error` may have run.
    fn failure(&self, error: &Self::Error) -> Failure {
        let _ = error;
        Failure::Indeterminate
    }

    /// True if an answered attempt by this id may run once more, as a copy of its command may be under way. A
    /// client asks after each answer, and after each error but [`Indeterminate`](Failure::Indeterminate). In
    /// the end the client [rolls back](Self::roll_back) such an id, and the rollback undoes the late copy.
    fn may_run_again(&self, id: &LeaseId) -> bool {
        let _ = id;
        false
    }

    /// The number of connections that replaced a broken one, for [`Metrics`](crate::Metrics) only.
    fn reconnects(&self) -> u64 {
        0
    }

    /// The number of commands that wait in this process to be sent, for [`Metrics`](crate::Metrics) only.
    fn commands_waiting(&self) -> u64 {
        0
    }

    /// Checks that the store can keep a lock under `name`. A client calls this when it makes a lock.
    ///
    /// # Errors
    ///
    /// [`NameError`] says why the store cannot.
    fn check_name(&self, name: &LockName) -> Result<(), NameError> {
        let _ = name;
        Ok(())
    }

    /// A number for the part of the store that keeps `name`, if parts can be slow or fail separately.
    ///
    /// A client [renews](Self::renew) the leases of different groups by separate concurrent calls, so a
    /// failed part costs only its own locks. A group may change at any time.
    fn renewal_group(&self, name: &LockName) -> u64 {
        let _ = name;
        0
    }

    /// Leases `name` to `request.id` if the rules of the mode allow, and reserves the requested tokens. If
    /// the id already has the lock, makes its lease last for at least as long.
    ///
    /// # Cancel safety
    ///
    /// The client may drop the future of any command at any time. The command may then run or not, at once or
    /// later: the client rolls a dropped acquisition back.
    ///
    /// # Errors
    ///
    /// The backend's own errors, as for every command; [`failure`](Self::failure) classifies each.
    fn acquire(
        &self,
        mode: Mode,
        name: &LockName,
        request: &AcquireRequest,
    ) -> impl Future<Output = Result<AcquireOutcome, Self::Error>> + Send;

    /// Frees the lock if `id` has it, and takes `id` out of the queue. If the lock has a queue, the store
    /// then enqueues `next` and grants the freed lock to the first waiter.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire): the client repeats the release until an answer, or the lease's end.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire).
    fn release(
        &self,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
    ) -> impl Future<Output = Result<ReleaseOutcome, Self::Error>> + Send;

    /// Undoes an [`acquire`](Self::acquire) that the client has given up: as [`release`](Self::release)
    /// without a next waiter, but never taking effect before that `acquire`, which may still be under way.
    ///
    /// The default suits a store whose commands take effect in the order in which they are sent.
    ///
    /// # Cancel safety
    ///
    /// As [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire).
    fn roll_back(
        &self,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
    ) -> impl Future<Output = Result<ReleaseOutcome, Self::Error>> + Send {
        self.release(mode, name, id, None)
    }

    /// Makes each lease last for at least `lease` from now. The answer is true for each lease still held, in
    /// order.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire): a dropped renewal may have prolonged some of the leases.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire), for all leases at once: no lease counts as lost by an error.
    fn renew(
        &self,
        mode: Mode,
        leases: &[LeaseKey],
        lease: Duration,
    ) -> impl Future<Output = Result<Vec<bool>, Self::Error>> + Send;

    /// Frees the lock from all its leases. True if the lock was held.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire), but never repeated, as another owner may have the lock by then.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire).
    fn force_release(
        &self,
        mode: Mode,
        name: &LockName,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// The leases on the lock: one at most, except [to read](Mode::Read) and of [permits](Mode::Permits). For
    /// a plain or fair lock, the store may also report holders of another kind under the name.
    ///
    /// # Cancel safety
    ///
    /// The command changes nothing.
    ///
    /// # Errors
    ///
    /// The errors of [`acquire`](Self::acquire).
    fn holders(
        &self,
        mode: Mode,
        name: &LockName,
    ) -> impl Future<Output = Result<Vec<Holder>, Self::Error>> + Send;

    /// Erases the type of the backend.
    ///
    /// Override only in a library, by the same body under `#[inline(never)]`: the library then compiles the
    /// backend's futures once, instead of each crate that makes a client.
    fn erased(self) -> AnyBackend {
        AnyBackend::new(self)
    }
}

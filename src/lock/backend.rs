//! [`Backend`]: where the locks are kept.

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
    AcquireOutcome, AcquireRequest, Channels, Failure, Holder, LeaseKey, NextWaiter, QueuePosition,
    ReleaseOutcome,
};
pub use self::mode::{LockKind, Mode};
pub use self::store::AnyBackend;
pub(super) use self::store::{Boxed, CommandFuture, Failed, Store};

/// How late a command may run that was not answered: no system sends for longer what a closed connection has
/// left.
pub const LATEST_RUN: Duration = Duration::from_secs(120);

/// Where the locks are kept: in this process's memory, on a server, in files.
///
/// Each command is one atomic step on the store. A name is free, or leased to one [`LeaseId`] (to
/// [read](Mode::Read), to many) until that is released or the lease is over. The store knows nothing of
/// owners, counts and waiting futures: all of that is kept inside of the client.
///
/// A backend for [plain](Mode::Plain) locks implements what has no default, and passes over the [`Mode`]s, as
/// it is never called with another one. One that keeps [others](Self::supports), too, keeps what is said of
/// them below.
///
/// | asked for | free | leased to this id | leased to another |
/// |---|---|---|---|
/// | [`acquire`](Self::acquire) | leased | lasts for `lease` from now at least | [`Held`](AcquireOutcome::Held) |
/// | [`release`](Self::release) | [`NotHeld`](ReleaseOutcome::NotHeld) | freed | `NotHeld` |
/// | [`renew`](Self::renew) | false | lasts for `lease` from now at least; true | false |
///
/// A name is held as one [kind](crate::LockKind) of lock at a time: a command for another kind fails with
/// [`Failure::OtherKind`], and changes nothing.
///
/// # What each command must keep
///
/// | command | atomic | may run twice, or late | tells |
/// |---|---|---|---|
/// | `acquire` | whether the name is free, the lease, the tokens, the position | leases for longer at most; tokens leave a gap | the waiter to which it grants what came free |
/// | `release` | whether `id` has it, its end, the grant to the next | the second one finds nothing | that it is free, or the waiter that has it |
/// | `roll_back` | as `release`, and not before the `acquire` that it undoes | the same | the same |
/// | `renew` | each lease by itself | lasts for longer at most | nothing |
/// | `force_release` | whether it was held, its end, the grant to the next | frees what came after: it is sent once | as `release` |
/// | `holders` | what one look sees | changes nothing | nothing |
///
/// # The three parts of a backend
///
/// | part | what it does | what a client does with it |
/// |---|---|---|
/// | `Backend`, the commands | each is one atomic step on the store | gives them, and believes their answers |
/// | [`Transport`], the messages | tells the [`Inbox`](crate::backend::Inbox) of a channel what the store publishes on it, that the subscription is ready, and that messages may have been lost | subscribes before it waits, and asks once more when it is told: a message is never taken for a lock, but a [grant](#fair-locks) |
/// | [`Runtime`], the surroundings | a clock, timers, tasks that outlive their caller | goes by that clock alone; renews leases and repeats releases in such tasks |
///
/// They meet in three places. [`channels`](Self::channels) names what the commands publish on and the
/// transport subscribes to. The [registry](Self::registry) has one subscription per channel for all clients
/// of the process, over the transport. And each lease that a command asks for is counted by the
/// [runtime](Self::runtime)'s clock from the moment at which the command was sent. A store without messages
/// of its own has a transport that polls it; a backend without an executor takes `local::ThreadRuntime`.
///
/// # How a backend is tested
///
/// By the suite that those of this crate have to pass, the package `latchwork-conformance`, which makes a
/// test of each property:
///
/// ```text
/// latchwork_conformance::suite!(plain: || FileLocks::new(&directory()));
/// ```
///
/// It says which sentence of this page does not hold, and what was seen. [A backend of your own] goes through
/// the steps, and [`examples/own_backend`] is a complete one with these tests. What the suite does not show
/// is what becomes of commands that are late, lost or doubled: where the store is behind a network, that
/// takes tests with faults in between.
///
/// [A backend of your own]: https://github.com/latchwork/latchwork/blob/main/docs/own-backend.md
/// [`examples/own_backend`]: https://github.com/latchwork/latchwork/tree/main/examples/own_backend
///
/// # Commands that come late
///
/// Commands of a client, of one id or of several, may be under way side by side, may run twice, and may run
/// in another order than they were sent in. One that has failed as [`Failure::Indeterminate`], or whose
/// future was dropped, may still run, after its error and after commands that were sent later. One that has
/// failed otherwise did not run, and never will; one that was answered does not run any more, unless
/// [`may_run_again`](Self::may_run_again) says so, and its answer is that of its last run.
///
/// All of that is harmless by three rules, which the client and the store keep together:
///
/// * **No command makes a lease shorter** but a release. What comes late can only make it last longer, so the
///   client's belief, which goes by what was confirmed, is never longer than the store's.
/// * A client never uses an id again that it has released: a release or a renewal that comes late finds
///   nothing.
/// * An attempt that may come late is undone by [`roll_back`](Self::roll_back), which does not take effect
///   before it does.
///
/// The client releases a lease until its latest possible end by all commands that it sent, answered or not;
/// it rolls back for [`LATEST_RUN`] longer. Tokens that are reserved twice leave a gap.
///
/// # Fencing tokens
///
/// A number that rises from one reservation of a name to the next, whichever client makes it, for as long as
/// the store lasts; it need not rise by one. `acquire` reserves as many consecutive ones as it is asked for.
///
/// # Messages
///
/// When a plain lock becomes free by [`release`](Self::release) or [`force_release`](Self::force_release), a
/// [`Message::Unlock`](crate::backend::Message::Unlock) is published on its [channel](Self::channels), after
/// it is free. A message may be lost, late or doubled: it is a hint, and costs time when it is missing.
///
/// # Fair locks
///
/// The store has a queue of ids for each name. An id has a position in it from the `acquire` on that asked
/// for one and did not get the lock, until it gets the lock, is released, or has not been asked for again for
/// as long as its [`QueuePosition::kept`] says. An attempt gets the lock if it is free and no id in the queue
/// comes before this one and can be told; otherwise it gets its position, or keeps the one that it has. (A
/// store whose clock may be set back gives it the earlier of both places, so that newcomers do not come
/// before it.)
///
/// As soon as the lock is free (by a release, by force, or because its lease is over and a client asks), the
/// store leases it to the first id in the queue whose client can be told, for what is left of its position,
/// and delivers [`Message::Granted`](crate::backend::Message::Granted) with the id's number on the client's
/// own [channel](Self::channels). An id whose client is known to listen no more keeps its position and is
/// passed over. A release that names a [`NextWaiter`] puts it into the queue before it grants.
///
/// So a client that is granted a lease never asks, and one that died costs the others nothing, or at most the
/// time its position is kept.
///
/// A grant's message may come late, twice or never, and others may publish what looks like one. So a grant
/// says something that only the store can know, from the waiter's own `acquire`, and the backend delivers
/// `Granted` only for that; what else comes is a hint to ask at most. The client believes a grant for as long
/// as the position was kept by what it has sent itself, and asks again before that is over. For an id whose
/// position may have ended meanwhile it believes none, and uses another one.
///
/// # Read-write locks
///
/// Each lease is one id's, to read or to write, and lasts as long as was asked for it, whichever others come
/// and go. Writers queue as the waiters of fair locks do. Readers that wait listen on the name's channel
/// alone, and ask whenever they hear of something; their position says how long the store is to remember that
/// they wait.
///
/// * An id may read if there is no writer, and no writer that can be told began to wait before it; or if the
///   lease that it reads [under](AcquireRequest::under) writes.
/// * When a writer leaves, the readers that wait are let in before the next writer: a
///   [`Message::ReadUnlock`](crate::backend::Message::ReadUnlock) is published, for a second no writer gets
///   the lock, and those that began to wait before that may read, although writers wait. (A store may not
///   know of a writer whose lease has ended by itself.)
/// * When there are no readers any more, the first writer of the queue is granted the lock: as soon as all
///   that were let in have come or given up, or else when that second is over and a client asks. A reader
///   that asks then, and began to wait before that writer, may still read before it.
/// * What can be granted to no waiter is free, and a `Message::Unlock` says so, or a `ReadUnlock` if readers
///   wait, or others may of which the store does not know. A `ReadUnlock` is published as well when those are
///   gone for which readers had to wait: the last writer leaves the queue, or a lease that others wait for
///   ends earlier than it would have.
/// * A reader's fencing token is greater than each that was reserved to write before, and the same for all
///   readers until the next is reserved to write: readers fence off what a writer does late, and not each
///   other.
/// * A writer that is released goes on reading if it reads; a reader that is released waits no more either.
///
/// So a writer waits for those that read and one turn of readers, and a reader for one writer.
///
/// # What an implementation must keep beside that
///
/// * No future hangs for ever: a store that does not answer is an error after a limit of the backend's own.
/// * A future runs on whichever executor polls it, and may be begun on one and finished on another.
/// * A future that is dropped may or may not have had its effect; what was acquired so is [rolled
///   back](Self::roll_back).
/// * A command that panics counts as one that did not answer ([`Failure::Indeterminate`]). The panic is
///   [reported](crate::on_foreign_panic), and goes on in no caller. It costs no other name anything.
/// * Durations count in whole milliseconds at least; the lock refuses anything finer before it comes here.
///
/// # Examples
///
/// The commands for a plain lock, as a client gives them:
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
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
pub trait Backend: Send + Sync + Sized + 'static {
    /// Why the store could not do what was asked.
    type Error: Error + Send + Sync + 'static;
    /// How its messages come here.
    type Transport: Transport;
    /// Its clock, timers and background work.
    type Runtime: Runtime;

    /// Whether each future is ready when it is polled for the first time, as with a store in memory.
    ///
    /// A command takes effect in the client's own call then, without a future of its own, and a guard that is
    /// dropped gives its lock back without an allocation. A future that is pending all the same is dropped,
    /// and the command is given once more in the background.
    const ANSWERS_AT_ONCE: bool = false;

    /// The channels that this process waits on, over the transport. All clients of one backend share it, so
    /// that a message wakes one waiter of the process, not one of each client.
    fn registry(&self) -> &Registry<Self::Transport>;

    /// Clock, timers and background work.
    fn runtime(&self) -> &Self::Runtime;

    /// Whether the store keeps locks of this mode; asked when the client makes one. Of read-write locks it
    /// keeps both sides, or none.
    fn supports(&self, mode: Mode) -> bool {
        mode == Mode::Plain
    }

    /// Where the client with the id `client` listens that waits for `name`.
    ///
    /// * [`Plain`](Mode::Plain): the channel on which the release of the name is published.
    /// * [`Fair`](Mode::Fair), [`Write`](Mode::Write): the channel on which this client is told that it was
    ///   granted the name; and in common the one on which all are told that it is free, if there is one.
    /// * [`Read`](Mode::Read): the channel on which all are told.
    fn channels(&self, mode: Mode, name: &LockName, client: &str) -> Channels;

    /// Whether a client may take a grant's message for the lease itself. Otherwise it asks by
    /// [`acquire`](Self::acquire) once more before it believes it, and names no [`NextWaiter`] when it
    /// releases.
    fn grants_suffice(&self) -> bool {
        true
    }

    /// What `error` says about the command that met it.
    fn failure(&self, error: &Self::Error) -> Failure {
        let _ = error;
        Failure::Indeterminate
    }

    /// Whether an attempt by this id that was answered may run once more: it was sent twice, and what was
    /// sent first may be on its way still. Asked once after each answer, which includes an error that is not
    /// [`Indeterminate`](Failure::Indeterminate), of a backend that does not answer at once; not if the
    /// caller has gone. If so, what there is of the id is [rolled
    /// back](Self::roll_back) in the end, by which it has to be undone however late it comes.
    fn may_run_again(&self, id: &LeaseId) -> bool {
        let _ = id;
        false
    }

    /// How often a connection to the store was made anew, after it had stood. For [`Metrics`](crate::Metrics)
    /// only.
    fn reconnects(&self) -> u64 {
        0
    }

    /// How many commands wait in this process until there is room for them. For [`Metrics`](crate::Metrics)
    /// only.
    fn commands_waiting(&self) -> u64 {
        0
    }

    /// Whether the store can keep a lock under `name`; asked when the client makes one.
    ///
    /// # Errors
    ///
    /// [`NameError`] says why it cannot.
    fn check_name(&self, name: &LockName) -> Result<(), NameError> {
        let _ = name;
        Ok(())
    }

    /// Which part of the store keeps `name`, as a number of any kind, if one part can be slow or gone while
    /// the others are not.
    ///
    /// Names of different groups are [renewed](Self::renew) by different calls, side by side, so that a part
    /// that is gone costs only its own locks. A group may change at any time.
    fn renewal_group(&self, name: &LockName) -> u64 {
        let _ = name;
        0
    }

    /// Leases `name` to `request.id` if it may have it by the rules of its mode, and reserves the tokens that
    /// it asks for. If the id has the lock already, makes its lease last for as long at least.
    ///
    /// # Cancel safety
    ///
    /// The client may drop the future, of this as of each command, at any time. The command may then run or
    /// not, at once or later: the client rolls an acquisition back.
    ///
    /// # Errors
    ///
    /// The backend's own, of this as of each command; [`failure`](Self::failure) says what each means.
    fn acquire(
        &self,
        mode: Mode,
        name: &LockName,
        request: &AcquireRequest,
    ) -> impl Future<Output = Result<AcquireOutcome, Self::Error>> + Send;

    /// Frees the lock if `id` has it, and takes `id` out of the queue. With a queue, the lock goes to the
    /// first of it, `next` included, which is in the queue then if the lock is not its.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire): the client sends it again until it is answered, or the lease is over.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire).
    fn release(
        &self,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
    ) -> impl Future<Output = Result<ReleaseOutcome, Self::Error>> + Send;

    /// As [`release`](Self::release) without a next waiter, after an [`acquire`](Self::acquire) that was
    /// given up. It may still be on its way, and this must not take effect before it does.
    ///
    /// A store whose commands take effect in the order in which they are sent needs nothing of its own.
    ///
    /// # Cancel safety
    ///
    /// As [`release`](Self::release).
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire).
    fn roll_back(
        &self,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
    ) -> impl Future<Output = Result<ReleaseOutcome, Self::Error>> + Send {
        self.release(mode, name, id, None)
    }

    /// Makes each lease last for `lease` from now at least. One answer for each lease, in order: whether it
    /// still has its lock.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire): a renewal that is dropped may have lengthened some of the leases.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire). An error is one for all leases: none of them is taken to be lost
    /// by it.
    fn renew(
        &self,
        mode: Mode,
        leases: &[LeaseKey],
        lease: Duration,
    ) -> impl Future<Output = Result<Vec<bool>, Self::Error>> + Send;

    /// Frees the lock, whichever id has it: of a read-write lock, from the writer and all readers. True if it
    /// was held.
    ///
    /// # Cancel safety
    ///
    /// As [`acquire`](Self::acquire); it is not sent again, as another owner may have the lock by then.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire).
    fn force_release(
        &self,
        mode: Mode,
        name: &LockName,
    ) -> impl Future<Output = Result<bool, Self::Error>> + Send;

    /// The leases that the lock has: one at most, but [to read](Mode::Read). Asked for a plain or fair lock,
    /// the store may say that the name is held as another kind, too.
    ///
    /// # Cancel safety
    ///
    /// It changes nothing.
    ///
    /// # Errors
    ///
    /// Those of [`acquire`](Self::acquire).
    fn holders(
        &self,
        mode: Mode,
        name: &LockName,
    ) -> impl Future<Output = Result<Vec<Holder>, Self::Error>> + Send;

    /// The same backend without its type.
    ///
    /// Only worth overriding in a library, by the same body under `#[inline(never)]`: then what the backend's
    /// futures stand on is compiled there, and not once more in each crate that makes a client.
    fn erased(self) -> AnyBackend {
        AnyBackend::new(self)
    }
}

//! [`Commands`]: what an entry asks of the store, by the kind of its lock.

use std::pin::Pin;
use std::time::Duration;

use crate::lock_entry::Moment;

use super::backend::{AcquireOutcome, Backend, Holder, LeaseKey, ReleaseOutcome};
use super::fair::{FairReleaseOutcome, Next, Position};
use super::lease::Lease;
use super::name::LockName;
use super::owner::LeaseId;
use super::table::{Table, Tables};

/// For how long a waiter that is dead or stands still may hold up the others.
const LONGEST_POSITION: Duration = Duration::from_secs(10);

/// What is asked for by an attempt.
pub(super) struct Ask {
    pub(super) id: LeaseId,
    pub(super) lease: Duration,
    pub(super) tokens: u64,
    /// At the store, if it is not its turn. Not of plain locks.
    pub(super) position: Option<Position>,
    /// The lease under which the owner writes. Of readers only.
    pub(super) under: Option<LeaseId>,
    pub(super) sent: Moment,
}

/// As what a name is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Plain,
    Fair,
    Read,
    Write,
}

impl Kind {
    /// Whether the store has a queue of its waiters, and grants them the lock.
    pub(super) fn is_granted(self) -> bool {
        matches!(self, Self::Fair | Self::Write)
    }
}

/// What an entry asks of the store.
///
/// Only who makes a lock of another kind has to know that the backend can keep one, and everything else is the same code for all kinds.
pub(super) enum Commands<B: Backend> {
    Plain,
    Of(&'static dyn KindCommands<B>),
}

impl<B: Backend> Clone for Commands<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Commands<B> {}

/// The commands of one kind, callable where the backend is known as a [`Backend`] only.
pub(super) trait KindCommands<B: Backend>: Send + Sync {
    fn kind(&self) -> Kind;

    /// The channel by which the store tells this client that it may have the lock.
    fn channel(&self, backend: &B, name: &LockName, client: &str) -> String;

    /// A second one, on which all clients are told.
    fn common_channel(&self, _backend: &B, _name: &LockName) -> Option<String> {
        None
    }

    /// Whether a grant's message may be taken for the lease.
    fn grants_suffice(&self, backend: &B) -> bool;

    fn try_acquire<'a>(
        &self,
        backend: &'a B,
        name: &'a LockName,
        ask: &'a Ask,
    ) -> Answer<'a, B, AcquireOutcome>;

    fn release<'a>(
        &self,
        backend: &'a B,
        name: &'a LockName,
        id: &'a LeaseId,
        next: Option<&'a Next>,
    ) -> Answer<'a, B, FairReleaseOutcome>;

    fn roll_back<'a>(
        &self,
        backend: &'a B,
        name: &'a LockName,
        id: &'a LeaseId,
    ) -> Answer<'a, B, FairReleaseOutcome>;

    fn renew<'a>(&self, backend: &'a B, leases: &'a [LeaseKey], lease: Duration) -> Answer<'a, B, Vec<bool>>;

    fn force_release<'a>(&self, backend: &'a B, name: &'a LockName) -> Answer<'a, B, bool>;

    fn holders<'a>(&self, backend: &'a B, name: &'a LockName) -> Answer<'a, B, Vec<Holder>>;
}

/// A future of a backend's.
pub(super) type Answer<'a, B, T> =
    Pin<Box<dyn Future<Output = Result<T, <B as Backend>::Error>> + Send + 'a>>;

impl<B: Backend> Commands<B> {
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::Plain => Kind::Plain,
            Self::Of(kind) => kind.kind(),
        }
    }

    /// Where the entries are.
    pub(super) fn table<T>(self, tables: &Tables<T>) -> &Table<T> {
        match self.kind() {
            Kind::Plain => &tables.plain,
            Kind::Fair => &tables.fair,
            Kind::Read => &tables.read,
            Kind::Write => &tables.write,
        }
    }

    /// For how long the store remembers a waiter, if it does: as short as what a renewed lease needs, since so long a waiter that is dead or
    /// stands still holds up the others.
    pub(super) fn position(self, renewed_lease: Duration) -> Option<Duration> {
        match self {
            Self::Plain => None,
            Self::Of(_) => {
                // Stores count in milliseconds.
                let third = Duration::from_millis((renewed_lease.min(Lease::MAX) / 3).as_millis() as u64);
                Some(third.clamp(Lease::MIN, LONGEST_POSITION))
            }
        }
    }

    /// Where the store tells this client that it may have the lock, or may ask for it.
    pub(super) fn channels(self, backend: &B, name: &LockName, client: &str) -> (String, Option<String>) {
        match self {
            Self::Plain => (backend.channel(name), None),
            Self::Of(kind) => (kind.channel(backend, name, client), kind.common_channel(backend, name)),
        }
    }

    pub(super) async fn try_acquire(
        self,
        backend: &B,
        name: &LockName,
        ask: &Ask,
    ) -> Result<AcquireOutcome, B::Error> {
        match self {
            Self::Plain => backend.try_acquire(name, &ask.id, ask.lease, ask.tokens, ask.sent).await,
            Self::Of(kind) => kind.try_acquire(backend, name, ask).await,
        }
    }

    pub(super) async fn release(
        self,
        backend: &B,
        name: &LockName,
        id: &LeaseId,
    ) -> Result<ReleaseOutcome, B::Error> {
        match self {
            Self::Plain => backend.release(name, id).await,
            Self::Of(kind) => kind.release(backend, name, id, None).await.map(ReleaseOutcome::from),
        }
    }

    pub(super) async fn roll_back(
        self,
        backend: &B,
        name: &LockName,
        id: &LeaseId,
    ) -> Result<ReleaseOutcome, B::Error> {
        match self {
            Self::Plain => backend.roll_back(name, id).await,
            Self::Of(kind) => kind.roll_back(backend, name, id).await.map(ReleaseOutcome::from),
        }
    }

    pub(super) async fn renew(
        self,
        backend: &B,
        leases: &[LeaseKey],
        lease: Duration,
    ) -> Result<Vec<bool>, B::Error> {
        match self {
            Self::Plain => backend.renew(leases, lease).await,
            Self::Of(kind) => kind.renew(backend, leases, lease).await,
        }
    }

    pub(super) async fn force_release(self, backend: &B, name: &LockName) -> Result<bool, B::Error> {
        match self {
            Self::Plain => backend.force_release(name).await,
            Self::Of(kind) => kind.force_release(backend, name).await,
        }
    }

    /// Who has the lock: one at most, unless it is shared.
    pub(super) async fn holders(self, backend: &B, name: &LockName) -> Result<Vec<Holder>, B::Error> {
        match self {
            Self::Plain => backend.holder(name).await.map(Vec::from_iter),
            Self::Of(kind) => kind.holders(backend, name).await,
        }
    }
}

/// Who else heard of it is nobody's business: the store has told whose turn it is.
impl From<FairReleaseOutcome> for ReleaseOutcome {
    fn from(outcome: FairReleaseOutcome) -> Self {
        match outcome {
            FairReleaseOutcome::Released | FairReleaseOutcome::GrantedToNext { .. } => {
                Self::Released { heard: 0 }
            }
            FairReleaseOutcome::NotHeld => Self::NotHeld,
        }
    }
}

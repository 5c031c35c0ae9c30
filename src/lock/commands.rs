//! [`Commands`]: what an entry asks of the store, by the kind of its lock.

use std::marker::PhantomData;
use std::pin::Pin;
use std::time::Duration;

use crate::lock_entry::Moment;

use super::backend::{AcquireOutcome, Backend, ReleaseOutcome};
use super::fair::{FairBackend, FairReleaseOutcome, Next, Position};
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
    /// In the store's queue, if it is not its turn. Of fair locks only.
    pub(super) position: Option<Position>,
    pub(super) sent: Moment,
}

/// What an entry asks of the store.
///
/// Only who makes a fair lock has to know that the backend can keep one, and everything else is the same code for both kinds.
pub(super) enum Commands<B: Backend> {
    Plain,
    Fair(&'static dyn FairCommands<B>),
}

impl<B: Backend> Clone for Commands<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Commands<B> {}

/// The methods of a [`FairBackend`], callable where it is known as a [`Backend`] only.
pub(super) trait FairCommands<B: Backend>: Send + Sync {
    fn grant_channel(&self, backend: &B, name: &LockName, client: &str) -> String;

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

    fn force_release<'a>(&self, backend: &'a B, name: &'a LockName) -> Answer<'a, B, bool>;
}

/// A future of a backend's.
pub(super) type Answer<'a, B, T> =
    Pin<Box<dyn Future<Output = Result<T, <B as Backend>::Error>> + Send + 'a>>;

struct OfBackend<B>(PhantomData<fn() -> B>);

impl<B: FairBackend> FairCommands<B> for OfBackend<B> {
    fn grant_channel(&self, backend: &B, name: &LockName, client: &str) -> String {
        backend.grant_channel(name, client)
    }

    fn grants_suffice(&self, backend: &B) -> bool {
        backend.grants_suffice()
    }

    fn try_acquire<'a>(
        &self,
        backend: &'a B,
        name: &'a LockName,
        ask: &'a Ask,
    ) -> Answer<'a, B, AcquireOutcome> {
        let Ask { id, lease, tokens, position, sent } = ask;
        Box::pin(backend.try_acquire_fair(name, id, *lease, *tokens, *position, *sent))
    }

    fn release<'a>(
        &self,
        backend: &'a B,
        name: &'a LockName,
        id: &'a LeaseId,
        next: Option<&'a Next>,
    ) -> Answer<'a, B, FairReleaseOutcome> {
        Box::pin(backend.release_fair(name, id, next))
    }

    fn roll_back<'a>(
        &self,
        backend: &'a B,
        name: &'a LockName,
        id: &'a LeaseId,
    ) -> Answer<'a, B, FairReleaseOutcome> {
        Box::pin(backend.roll_back_fair(name, id))
    }

    fn force_release<'a>(&self, backend: &'a B, name: &'a LockName) -> Answer<'a, B, bool> {
        Box::pin(backend.force_release_fair(name))
    }
}

impl<B: Backend> Commands<B> {
    pub(super) fn fair() -> Self
    where
        B: FairBackend,
    {
        Self::Fair(&OfBackend(PhantomData))
    }

    /// Where the entries are.
    pub(super) fn table<T>(self, tables: &Tables<T>) -> &Table<T> {
        match self {
            Self::Plain => &tables.plain,
            Self::Fair(_) => &tables.fair,
        }
    }

    /// For how long the store keeps a waiter's position, if it has a queue: as short as what a renewed lease needs, since so long a waiter
    /// that is dead or stands still holds up the others.
    pub(super) fn position(self, renewed_lease: Duration) -> Option<Duration> {
        match self {
            Self::Plain => None,
            Self::Fair(_) => {
                // Stores count in milliseconds.
                let third = Duration::from_millis((renewed_lease.min(Lease::MAX) / 3).as_millis() as u64);
                Some(third.clamp(Lease::MIN, LONGEST_POSITION))
            }
        }
    }

    /// The channel by which the store tells this client that it may have the lock.
    pub(super) fn channel(self, backend: &B, name: &LockName, client: &str) -> String {
        match self {
            Self::Plain => backend.channel(name),
            Self::Fair(fair) => fair.grant_channel(backend, name, client),
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
            Self::Fair(fair) => fair.try_acquire(backend, name, ask).await,
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
            Self::Fair(fair) => fair.release(backend, name, id, None).await.map(ReleaseOutcome::from),
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
            Self::Fair(fair) => fair.roll_back(backend, name, id).await.map(ReleaseOutcome::from),
        }
    }

    pub(super) async fn force_release(self, backend: &B, name: &LockName) -> Result<bool, B::Error> {
        match self {
            Self::Plain => backend.force_release(name).await,
            Self::Fair(fair) => fair.force_release(backend, name).await,
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

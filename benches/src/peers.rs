//! The semaphores under comparison, behind one trait.

mod raw;
mod seed;

use std::pin::Pin;
use std::task::{Context, Poll};

pub use self::raw::{Raw, RawPermit};
pub use self::seed::{Seed, SeedAcquire, SeedPermit};

/// What every row can do.
pub trait Peer: Send + Sync + Sized + 'static {
    /// The row's name.
    const NAME: &'static str;

    /// Gives itself back when it is dropped.
    type Permit<'a>: Send;

    /// What `acquire`'s future gives: the permit, or a result with it inside. Unwrapped by the caller, as
    /// users do it.
    type Acquired<'a>: Send;

    /// A semaphore with so many permits, first come first served if there is a choice.
    fn new(permits: usize) -> Self;

    /// Free permits.
    fn available(&self) -> usize;

    /// Takes a permit if one is free.
    fn try_acquire(&self) -> Option<Self::Permit<'_>>;

    /// Takes a permit, waiting for it.
    fn acquire(&self) -> impl Future<Output = Self::Acquired<'_>> + Send;

    /// The permit in what `acquire` gave.
    fn permit(acquired: Self::Acquired<'_>) -> Self::Permit<'_>;
}

/// A row that waiters can stand in line at: every one but [`Raw`].
pub trait Queueing: Peer {
    /// Adds permits.
    fn add(&self, n: usize);
}

/// A row that gives several permits at once.
pub trait Many: Peer {
    /// Takes `n` permits, waiting for them.
    fn acquire_many(&self, n: u32) -> impl Future<Output = Self::Acquired<'_>> + Send;
}

/// Polls an acquire that has to be ready.
///
/// # Panics
///
/// If it is not.
#[inline]
pub fn poll_ready<'a, P: Peer>(
    acquire: Pin<&mut impl Future<Output = P::Acquired<'a>>>,
    context: &mut Context<'_>,
) -> P::Permit<'a> {
    match acquire.poll(context) {
        Poll::Ready(acquired) => P::permit(acquired),
        Poll::Pending => panic!("{}: there was a permit for this waiter", P::NAME),
    }
}

/// Polls an acquire that has to wait.
///
/// # Panics
///
/// If it does not.
#[inline]
pub fn poll_pending<'a, P: Peer>(
    acquire: Pin<&mut impl Future<Output = P::Acquired<'a>>>,
    context: &mut Context<'_>,
) {
    assert!(acquire.poll(context).is_pending(), "{}: there was no permit for this waiter", P::NAME);
}

/// Calls a generic function for each semaphore and makes an array of what it gives.
#[macro_export]
macro_rules! each_peer {
    ($function:ident($($argument:expr),*)) => {
        [
            $function::<$crate::peers::Latchwork>($($argument),*),
            $function::<$crate::peers::Tokio>($($argument),*),
            $function::<$crate::peers::Asyncband>($($argument),*),
            $function::<$crate::peers::AsyncLock>($($argument),*),
            $function::<$crate::peers::Intrusive>($($argument),*),
            $function::<$crate::peers::Seed>($($argument),*),
        ]
    };
}

/// `latchwork::AsyncSemaphore`.
#[derive(Debug)]
pub struct Latchwork(pub(crate) latchwork::AsyncSemaphore);

impl Peer for Latchwork {
    const NAME: &'static str = "latchwork";
    type Permit<'a> = latchwork::SemaphorePermit<'a>;
    type Acquired<'a> = Result<Self::Permit<'a>, latchwork::AcquireError>;

    fn new(permits: usize) -> Self {
        Self(latchwork::AsyncSemaphore::new(permits))
    }

    #[inline]
    fn available(&self) -> usize {
        self.0.available_permits()
    }

    #[inline]
    fn try_acquire(&self) -> Option<Self::Permit<'_>> {
        self.0.try_acquire().ok()
    }

    #[inline]
    fn acquire(&self) -> impl Future<Output = Self::Acquired<'_>> + Send {
        self.0.acquire()
    }

    #[inline]
    fn permit(acquired: Self::Acquired<'_>) -> Self::Permit<'_> {
        acquired.expect("never closed")
    }
}

impl Queueing for Latchwork {
    #[inline]
    fn add(&self, n: usize) {
        self.0.add_permits(n);
    }
}

/// `tokio::sync::Semaphore`.
#[derive(Debug)]
pub struct Tokio(pub(crate) tokio::sync::Semaphore);

impl Peer for Tokio {
    const NAME: &'static str = "tokio";
    type Permit<'a> = tokio::sync::SemaphorePermit<'a>;
    type Acquired<'a> = Result<Self::Permit<'a>, tokio::sync::AcquireError>;

    fn new(permits: usize) -> Self {
        Self(tokio::sync::Semaphore::new(permits))
    }

    #[inline]
    fn available(&self) -> usize {
        self.0.available_permits()
    }

    #[inline]
    fn try_acquire(&self) -> Option<Self::Permit<'_>> {
        self.0.try_acquire().ok()
    }

    #[inline]
    fn acquire(&self) -> impl Future<Output = Self::Acquired<'_>> + Send {
        self.0.acquire()
    }

    #[inline]
    fn permit(acquired: Self::Acquired<'_>) -> Self::Permit<'_> {
        acquired.expect("never closed")
    }
}

impl Queueing for Tokio {
    #[inline]
    fn add(&self, n: usize) {
        self.0.add_permits(n);
    }
}

/// `asyncband::semaphore::Semaphore`.
#[derive(Debug)]
pub struct Asyncband(pub(crate) asyncband::semaphore::Semaphore);

impl Peer for Asyncband {
    const NAME: &'static str = "asyncband";
    type Permit<'a> = asyncband::semaphore::SemaphorePermit<'a>;
    type Acquired<'a> = Self::Permit<'a>;

    fn new(permits: usize) -> Self {
        Self(asyncband::semaphore::Semaphore::new(permits))
    }

    #[inline]
    fn available(&self) -> usize {
        self.0.available_permits()
    }

    #[inline]
    fn try_acquire(&self) -> Option<Self::Permit<'_>> {
        self.0.try_acquire(1)
    }

    #[inline]
    fn acquire(&self) -> impl Future<Output = Self::Acquired<'_>> + Send {
        self.0.acquire(1)
    }

    #[inline]
    fn permit(acquired: Self::Acquired<'_>) -> Self::Permit<'_> {
        acquired
    }
}

impl Queueing for Asyncband {
    #[inline]
    fn add(&self, n: usize) {
        self.0.release(n);
    }
}

/// `async_lock::Semaphore`. Not fair: a permit that comes back is anybody's, and a waiter is told to try for
/// it.
#[derive(Debug)]
pub struct AsyncLock(async_lock::Semaphore);

impl Peer for AsyncLock {
    const NAME: &'static str = "async-lock";
    type Permit<'a> = async_lock::SemaphoreGuard<'a>;
    type Acquired<'a> = Self::Permit<'a>;

    fn new(permits: usize) -> Self {
        Self(async_lock::Semaphore::new(permits))
    }

    #[inline]
    fn available(&self) -> usize {
        self.0.available_permits()
    }

    #[inline]
    fn try_acquire(&self) -> Option<Self::Permit<'_>> {
        self.0.try_acquire()
    }

    #[inline]
    fn acquire(&self) -> impl Future<Output = Self::Acquired<'_>> + Send {
        self.0.acquire()
    }

    #[inline]
    fn permit(acquired: Self::Acquired<'_>) -> Self::Permit<'_> {
        acquired
    }
}

impl Queueing for AsyncLock {
    #[inline]
    fn add(&self, n: usize) {
        self.0.add_permits(n);
    }
}

/// `futures_intrusive::sync::Semaphore`, told to be fair.
#[derive(Debug)]
pub struct Intrusive(pub(crate) futures_intrusive::sync::Semaphore);

impl Peer for Intrusive {
    const NAME: &'static str = "intrusive";
    type Permit<'a> = futures_intrusive::sync::SemaphoreReleaser<'a>;
    type Acquired<'a> = Self::Permit<'a>;

    fn new(permits: usize) -> Self {
        Self(futures_intrusive::sync::Semaphore::new(true, permits))
    }

    #[inline]
    fn available(&self) -> usize {
        self.0.permits()
    }

    #[inline]
    fn try_acquire(&self) -> Option<Self::Permit<'_>> {
        self.0.try_acquire(1)
    }

    #[inline]
    fn acquire(&self) -> impl Future<Output = Self::Acquired<'_>> + Send {
        self.0.acquire(1)
    }

    #[inline]
    fn permit(acquired: Self::Acquired<'_>) -> Self::Permit<'_> {
        acquired
    }
}

impl Queueing for Intrusive {
    #[inline]
    fn add(&self, n: usize) {
        self.0.release(n);
    }
}

//! The semaphores under comparison, behind one trait.

mod raw;
mod seed;

use std::pin::Pin;
use std::task::{Context, Poll};

pub use self::raw::{Raw, RawPermit};
pub use self::seed::{Seed, SeedAcquire, SeedPermit};

/// A row of every table.
pub trait Peer: Send + Sync + Sized + 'static {
    /// The row's name.
    const NAME: &'static str;

    /// Releases the permit on drop.
    type Permit<'a>: Send;

    /// Output of `acquire`'s future: the permit, or a result with the permit, unwrapped by the caller.
    type Acquired<'a>: Send;

    /// A semaphore with `permits` permits, first come first served if there is a choice.
    fn new(permits: usize) -> Self;

    /// The number of free permits.
    fn available(&self) -> usize;

    /// Acquires a permit if one is free.
    fn try_acquire(&self) -> Option<Self::Permit<'_>>;

    /// Acquires a permit, waiting if necessary.
    fn acquire(&self) -> impl Future<Output = Self::Acquired<'_>> + Send;

    /// The permit in the output of `acquire`.
    fn permit(acquired: Self::Acquired<'_>) -> Self::Permit<'_>;
}

/// A row with a queue of waiters: all but [`Raw`].
pub trait Queueing: Peer {
    /// Adds permits.
    fn add(&self, n: usize);
}

/// A row with acquisitions of several permits at once.
pub trait Many: Peer {
    /// Acquires `n` permits, waiting if necessary.
    fn acquire_many(&self, n: u32) -> impl Future<Output = Self::Acquired<'_>> + Send;
}

/// Polls an acquire that has to be ready. Panics if the acquire is pending.
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

/// Polls an acquire that has to wait. Panics if the acquire is ready.
#[inline]
pub fn poll_pending<'a, P: Peer>(
    acquire: Pin<&mut impl Future<Output = P::Acquired<'a>>>,
    context: &mut Context<'_>,
) {
    assert!(
        acquire.poll(context).is_pending(),
        "{}: expected the waiter to wait, as no permit is free",
        P::NAME
    );
}

/// Calls a generic function for each semaphore and returns an array of the results.
#[macro_export]
macro_rules! each_peer {
    ($function:ident($($argument:expr),*)) => {
        [
            $function::<$crate::peers::Latchwork>($($argument),*),
            $function::<$crate::peers::Tokio>($($argument),*),
            $function::<$crate::peers::Asyncband>($($argument),*),
            $function::<$crate::peers::AsyncLock>($($argument),*),
            $function::<$crate::peers::Intrusive>($($argument),*),
            $function::<$crate::peers::Maitake>($($argument),*),
            $function::<$crate::peers::Seed>($($argument),*),
        ]
    };
}

/// Implements a row for a crate's semaphore, with the crate's name of each method.
macro_rules! peer {
    (
        $(#[$doc:meta])*
        $row:ident($visibility:vis $semaphore:ty) $name:literal, $permit:ty, $acquired:ty;
        new: $new:expr,
        available: $available:ident,
        try_acquire: |$tried:ident| $try:expr,
        acquire: |$waited:ident| $acquire:expr,
        permit: |$given:ident| $taken:expr,
        add: $add:ident,
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $row($visibility $semaphore);

        impl Peer for $row {
            const NAME: &'static str = $name;
            type Permit<'a> = $permit;
            type Acquired<'a> = $acquired;

            fn new(permits: usize) -> Self {
                Self(($new)(permits))
            }

            #[inline]
            fn available(&self) -> usize {
                self.0.$available()
            }

            #[inline]
            fn try_acquire(&self) -> Option<Self::Permit<'_>> {
                let $tried = &self.0;
                $try
            }

            #[inline]
            fn acquire(&self) -> impl Future<Output = Self::Acquired<'_>> + Send {
                let $waited = &self.0;
                $acquire
            }

            #[inline]
            fn permit($given: Self::Acquired<'_>) -> Self::Permit<'_> {
                $taken
            }
        }

        impl Queueing for $row {
            #[inline]
            fn add(&self, n: usize) {
                self.0.$add(n);
            }
        }
    };
}

peer! {
    /// `latchwork::AsyncSemaphore`.
    Latchwork(pub(crate) latchwork::AsyncSemaphore) "latchwork",
    latchwork::SemaphorePermit<'a>, Result<Self::Permit<'a>, latchwork::AcquireError>;
    new: latchwork::AsyncSemaphore::new,
    available: available_permits,
    try_acquire: |semaphore| semaphore.try_acquire().ok(),
    acquire: |semaphore| semaphore.acquire(),
    permit: |acquired| acquired.expect("never closed"),
    add: add_permits,
}

peer! {
    /// `tokio::sync::Semaphore`.
    Tokio(pub(crate) tokio::sync::Semaphore) "tokio",
    tokio::sync::SemaphorePermit<'a>, Result<Self::Permit<'a>, tokio::sync::AcquireError>;
    new: tokio::sync::Semaphore::new,
    available: available_permits,
    try_acquire: |semaphore| semaphore.try_acquire().ok(),
    acquire: |semaphore| semaphore.acquire(),
    permit: |acquired| acquired.expect("never closed"),
    add: add_permits,
}

peer! {
    /// `asyncband::semaphore::Semaphore`.
    Asyncband(pub(crate) asyncband::semaphore::Semaphore) "asyncband",
    asyncband::semaphore::SemaphorePermit<'a>, Self::Permit<'a>;
    new: asyncband::semaphore::Semaphore::new,
    available: available_permits,
    try_acquire: |semaphore| semaphore.try_acquire(1),
    acquire: |semaphore| semaphore.acquire(1),
    permit: |acquired| acquired,
    add: release,
}

peer! {
    /// `async_lock::Semaphore`. Not fair: a released permit is free for all, and a waiter is woken to try.
    AsyncLock(async_lock::Semaphore) "async-lock",
    async_lock::SemaphoreGuard<'a>, Self::Permit<'a>;
    new: async_lock::Semaphore::new,
    available: available_permits,
    try_acquire: |semaphore| semaphore.try_acquire(),
    acquire: |semaphore| semaphore.acquire(),
    permit: |acquired| acquired,
    add: add_permits,
}

peer! {
    /// `futures_intrusive::sync::Semaphore`, in fair mode.
    Intrusive(pub(crate) futures_intrusive::sync::Semaphore) "intrusive",
    futures_intrusive::sync::SemaphoreReleaser<'a>, Self::Permit<'a>;
    new: |permits| futures_intrusive::sync::Semaphore::new(true, permits),
    available: permits,
    try_acquire: |semaphore| semaphore.try_acquire(1),
    acquire: |semaphore| semaphore.acquire(1),
    permit: |acquired| acquired,
    add: release,
}

peer! {
    /// `maitake_sync::semaphore::Semaphore`.
    Maitake(pub(crate) maitake_sync::semaphore::Semaphore) "maitake",
    maitake_sync::semaphore::Permit<'a>, Result<Self::Permit<'a>, maitake_sync::Closed>;
    new: maitake_sync::semaphore::Semaphore::new,
    available: available_permits,
    try_acquire: |semaphore| semaphore.try_acquire(1).ok(),
    acquire: |semaphore| semaphore.acquire(1),
    permit: |acquired| acquired.expect("never closed"),
    add: add_permits,
}

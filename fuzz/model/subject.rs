//! The semaphore's futures and permits, borrowed or owned, each made by the method for its size.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use latchwork::semaphore::{Acquire, AcquireOwned};
use latchwork::{AsyncSemaphore, OwnedSemaphorePermit, SemaphorePermit, TryAcquireError};

#[derive(Default)]
pub(crate) struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        // Ordering: Relaxed, one thread.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Bell {
    pub(crate) fn rung(&self) -> usize {
        // Ordering: Relaxed, one thread.
        self.0.load(Ordering::Relaxed)
    }
}

pub(crate) enum Future<'a> {
    Borrowed(Acquire<'a>),
    Owned(AcquireOwned),
}

impl<'a> Future<'a> {
    pub(crate) fn new(semaphore: &'a Arc<AsyncSemaphore>, min: usize, max: usize, owned: bool) -> Self {
        let shared = || Arc::clone(semaphore);
        match (u32::try_from(min), owned) {
            // `acquire_up_to` has no owned twin.
            _ if max > min => Self::Borrowed(semaphore.acquire_up_to(min..=max)),
            (Ok(1), false) => Self::Borrowed(semaphore.acquire()),
            (Ok(1), true) => Self::Owned(shared().acquire_owned()),
            (Ok(few), false) => Self::Borrowed(semaphore.acquire_many(few)),
            (Ok(few), true) => Self::Owned(shared().acquire_many_owned(few)),
            (Err(_), false) => Self::Borrowed(semaphore.acquire_weight(min)),
            (Err(_), true) => Self::Owned(shared().acquire_weight_owned(min)),
        }
    }

    /// The error means closed, the only error.
    pub(crate) fn poll(&mut self, bell: &Arc<Bell>) -> Poll<Result<Permit<'a>, ()>> {
        let waker = Waker::from(Arc::clone(bell));
        let mut context = Context::from_waker(&waker);
        match self {
            Self::Borrowed(future) => Pin::new(future)
                .poll(&mut context)
                .map(|acquired| acquired.map(Permit::Borrowed).map_err(drop)),
            Self::Owned(future) => {
                Pin::new(future).poll(&mut context).map(|acquired| acquired.map(Permit::Owned).map_err(drop))
            }
        }
    }
}

pub(crate) enum Permit<'a> {
    Borrowed(SemaphorePermit<'a>),
    Owned(OwnedSemaphorePermit),
}

impl<'a> Permit<'a> {
    pub(crate) fn try_acquire(
        semaphore: &'a Arc<AsyncSemaphore>,
        permits: usize,
        owned: bool,
    ) -> Result<Self, TryAcquireError> {
        let shared = || Arc::clone(semaphore);
        match (u32::try_from(permits), owned) {
            (Ok(1), false) => semaphore.try_acquire().map(Self::Borrowed),
            (Ok(1), true) => shared().try_acquire_owned().map(Self::Owned),
            (Ok(few), false) => semaphore.try_acquire_many(few).map(Self::Borrowed),
            (Ok(few), true) => shared().try_acquire_many_owned(few).map(Self::Owned),
            (Err(_), false) => semaphore.try_acquire_weight(permits).map(Self::Borrowed),
            (Err(_), true) => shared().try_acquire_weight_owned(permits).map(Self::Owned),
        }
    }

    pub(crate) fn num_permits(&self) -> usize {
        match self {
            Self::Borrowed(permit) => permit.num_permits(),
            Self::Owned(permit) => permit.num_permits(),
        }
    }

    pub(crate) fn split(&mut self, permits: usize) -> Option<Self> {
        match self {
            Self::Borrowed(permit) => permit.split(permits).map(Self::Borrowed),
            Self::Owned(permit) => permit.split(permits).map(Self::Owned),
        }
    }

    /// Returns `other` if it is of the other kind.
    pub(crate) fn merge(&mut self, other: Self) -> Result<(), Self> {
        match (self, other) {
            (Self::Borrowed(permit), Self::Borrowed(other)) => permit.merge(other),
            (Self::Owned(permit), Self::Owned(other)) => permit.merge(other),
            (_, other) => return Err(other),
        }
        Ok(())
    }

    pub(crate) fn forget(self) {
        match self {
            Self::Borrowed(permit) => permit.forget(),
            Self::Owned(permit) => permit.forget(),
        }
    }
}

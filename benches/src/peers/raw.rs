//! A lower bound for the cost of a permit on this machine.

use std::future::{self, Future};
use std::sync::atomic::{AtomicIsize, Ordering::AcqRel, Ordering::Acquire};
use std::task::Poll;

use super::{Many, Peer};

/// A `fetch_sub` to acquire, a `fetch_add` to release. No semaphore: a permit need not be free.
#[derive(Debug)]
pub struct Raw(AtomicIsize);

/// The permit of [`Raw`].
#[derive(Debug)]
pub struct RawPermit<'a> {
    counter: &'a AtomicIsize,
    permits: isize,
}

impl Raw {
    #[inline]
    fn take(&self, permits: isize) -> RawPermit<'_> {
        self.0.fetch_sub(permits, AcqRel);
        RawPermit { counter: &self.0, permits }
    }
}

impl Drop for RawPermit<'_> {
    #[inline]
    fn drop(&mut self) {
        self.counter.fetch_add(self.permits, AcqRel);
    }
}

impl Peer for Raw {
    const NAME: &'static str = "raw";
    type Permit<'a> = RawPermit<'a>;
    type Acquired<'a> = RawPermit<'a>;

    fn new(permits: usize) -> Self {
        Self(AtomicIsize::new(permits as isize))
    }

    #[inline]
    fn available(&self) -> usize {
        self.0.load(Acquire) as usize
    }

    #[inline]
    fn try_acquire(&self) -> Option<RawPermit<'_>> {
        Some(self.take(1))
    }

    #[inline]
    fn acquire(&self) -> impl Future<Output = RawPermit<'_>> + Send {
        future::poll_fn(|_| Poll::Ready(self.take(1)))
    }

    #[inline]
    fn permit(acquired: Self::Acquired<'_>) -> Self::Permit<'_> {
        acquired
    }
}

impl Many for Raw {
    #[inline]
    fn acquire_many(&self, n: u32) -> impl Future<Output = RawPermit<'_>> + Send {
        future::poll_fn(move |_| Poll::Ready(self.take(n as isize)))
    }
}

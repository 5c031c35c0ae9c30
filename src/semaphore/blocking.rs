//! Blocking acquisition: the same futures in the same queue, with the thread asleep between polls.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::support::foreign;
use crate::support::sync;

use super::AsyncSemaphore;
use super::error::{AcquireError, TryAcquireError};
use super::permit::{OwnedSemaphorePermit, SemaphorePermit};

/// Polls `acquire`. If pending, calls the wakers collected so far, before the thread sleeps.
fn sleeping<F: Future + Unpin>(mut acquire: F) -> impl Future<Output = F::Output> {
    poll_fn(move |context| {
        let polled = Pin::new(&mut acquire).poll(context);
        if polled.is_pending() {
            foreign::call_those_behind();
        }
        polled
    })
}

/// Blocks this thread on `acquire`. Before each sleep, calls the wakers collected by this thread.
pub(crate) fn block_on<F: Future + Unpin>(acquire: F) -> F::Output {
    sync::block_on(sleeping(acquire))
}

/// As [`block_on`], for `timeout` at most.
pub(crate) fn block_on_timeout<F: Future + Unpin>(acquire: F, timeout: Duration) -> Option<F::Output> {
    // A deadline beyond the clock's range never comes.
    sync::block_on_until(sleeping(acquire), Instant::now().checked_add(timeout))
}

impl AsyncSemaphore {
    /// Acquires a permit. If no permit is free, blocks this thread until one is granted.
    ///
    /// In async code, only for permits held for a moment, without an await: blocks the executor's thread.
    ///
    /// # Errors
    ///
    /// [`AcquireError`] once the semaphore is closed.
    pub fn blocking_acquire(&self) -> Result<SemaphorePermit<'_>, AcquireError> {
        block_on(self.acquire())
    }

    /// As [`blocking_acquire`](Self::blocking_acquire), for `n` permits.
    ///
    /// # Errors
    ///
    /// [`AcquireError`] once the semaphore is closed.
    pub fn blocking_acquire_many(&self, n: u32) -> Result<SemaphorePermit<'_>, AcquireError> {
        block_on(self.acquire_many(n))
    }

    /// As [`blocking_acquire`](Self::blocking_acquire), for a semaphore behind an [`Arc`].
    ///
    /// # Errors
    ///
    /// [`AcquireError`] once the semaphore is closed.
    pub fn blocking_acquire_owned(self: Arc<Self>) -> Result<OwnedSemaphorePermit, AcquireError> {
        block_on(self.acquire_owned())
    }

    /// As [`blocking_acquire_many`](Self::blocking_acquire_many), for a semaphore behind an [`Arc`].
    ///
    /// # Errors
    ///
    /// [`AcquireError`] once the semaphore is closed.
    pub fn blocking_acquire_many_owned(
        self: Arc<Self>,
        n: u32,
    ) -> Result<OwnedSemaphorePermit, AcquireError> {
        block_on(self.acquire_many_owned(n))
    }

    /// Acquires `n` permits. If fewer are free, blocks this thread for up to `timeout`; zero only tries.
    ///
    /// # Errors
    ///
    /// [`TryAcquireError::NoPermits`] after the timeout, [`TryAcquireError::Closed`] once closed.
    ///
    /// # Panics
    ///
    /// If `n` exceeds [`MAX_PERMITS`](Self::MAX_PERMITS).
    ///
    /// ```
    /// use std::time::Duration;
    /// use latchwork::{AsyncSemaphore, TryAcquireError};
    ///
    /// let semaphore = AsyncSemaphore::new(1);
    /// let held = semaphore.blocking_acquire_timeout(1, Duration::from_secs(1))?;
    /// let late = semaphore.blocking_acquire_timeout(1, Duration::from_millis(10));
    /// assert_eq!(late.unwrap_err(), TryAcquireError::NoPermits);
    /// # Ok::<(), TryAcquireError>(())
    /// ```
    #[track_caller]
    pub fn blocking_acquire_timeout(
        &self,
        n: usize,
        timeout: Duration,
    ) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        within(timeout, self.acquire_weight(n), || self.try_acquire_weight(n))
    }

    /// As [`blocking_acquire_timeout`](Self::blocking_acquire_timeout), for a semaphore behind an [`Arc`].
    ///
    /// # Errors
    ///
    /// Errors and panics are as for [`blocking_acquire_timeout`](Self::blocking_acquire_timeout).
    #[track_caller]
    pub fn blocking_acquire_timeout_owned(
        self: Arc<Self>,
        n: usize,
        timeout: Duration,
    ) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        within(timeout, Arc::clone(&self).acquire_weight_owned(n), || self.try_acquire_weight_owned(n))
    }

    /// As [`drain`](Self::drain), blocking this thread for up to `timeout`. True if no permit is held.
    pub fn blocking_drain_timeout(&self, timeout: Duration) -> bool {
        block_on_timeout(pin!(self.drain()), timeout).is_some()
    }
}

fn within<P>(
    timeout: Duration,
    acquire: impl Future<Output = Result<P, AcquireError>> + Unpin,
    try_acquire: impl FnOnce() -> Result<P, TryAcquireError>,
) -> Result<P, TryAcquireError> {
    // Not in the queue even for a moment: other tasks and threads could not take permits meanwhile.
    if timeout.is_zero() {
        return try_acquire();
    }
    match block_on_timeout(acquire, timeout) {
        Some(Ok(permit)) => Ok(permit),
        Some(Err(_closed)) => Err(TryAcquireError::Closed),
        None => Err(TryAcquireError::NoPermits),
    }
}

//! Work that ends with the lock: [`Lock::run`] and [`Guard::run`].

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use crate::lock::error::LockError;
use crate::lock::guard::Guard;
use crate::lock::handle::Lock;

impl Lock {
    /// Takes the lock as [`lock`](Self::lock) does, runs `work`, and gives the lock back. If the hold is lost
    /// before `work` is ready, `work` is dropped there and then: it does not go on without the lock.
    ///
    /// See [`Guard::run`] for what the outcomes mean.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`, and gives the lock back if it was taken.
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock): then `work` was not polled. [`LockError::Lost`] as of [`Guard::run`].
    ///
    /// # Examples
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
    /// # async fn settle_invoices() -> usize { 7 }
    /// # block_on(async {
    /// # let client = latchwork::LockClient::local();
    /// let settled = client.get_lock("invoices")?.run(settle_invoices()).await?;
    /// assert_eq!(settled, 7);
    /// # Ok::<(), latchwork::LockError>(()) }).unwrap();
    /// ```
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, LockError> {
        self.lock().await?.run(work).await
    }
}

impl Guard {
    /// Runs `work` under this hold, and gives the hold back. If the hold is lost before `work` is ready,
    /// `work` is dropped there and then: it does not go on without the lock.
    ///
    /// `Ok` says that `work` was ready before any loss was known, and that the hold was there to be given
    /// back. That its release was not answered is no error here: the work is done, and the release is
    /// repeated in the background.
    ///
    /// `work` is dropped at one of its `await`s, as by any timeout: what it has begun in other tasks or
    /// threads goes on. It does not stop between two `await`s, so what it writes to other systems is only
    /// safe from a later holder with a [token](Self::fencing_token) that these check.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`, and gives the hold back.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the hold was lost: `work` was dropped before it was ready; or it was ready, its
    /// output is dropped, and the store says at the release that the lock had been taken away before.
    /// [`LockError::OtherKind`] if it was taken away, and the name is held as another kind of lock then.
    /// [`LockError::Forked`] if the work was ready in a child that it forked off.
    ///
    /// # Examples
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
    /// # block_on(async {
    /// # let client = latchwork::LockClient::local();
    /// let lock = client.get_lock("invoices")?;
    /// if let Some(guard) = lock.try_lock().await? {
    ///     guard.run(async { /* … the work of one process at a time … */ }).await?;
    /// }
    /// # Ok::<(), latchwork::LockError>(()) }).unwrap();
    /// ```
    pub async fn run<T>(self, work: impl Future<Output = T>) -> Result<T, LockError> {
        let outcome = {
            let (mut lost, mut work) = (pin!(self.lost()), pin!(work));
            poll_fn(|context| {
                // First: work whose lock is known to be lost is not to take another step.
                if let Poll::Ready(reason) = lost.as_mut().poll(context) {
                    return Poll::Ready(Err(reason));
                }
                work.as_mut().poll(context).map(Ok)
            })
            .await
        };
        let output = match outcome {
            Ok(output) => output,
            // Dropped, the guard gives back what is left of the hold, if anything is.
            Err(reason) => return Err(LockError::lost(self.name(), *self.owner(), reason)),
        };
        match self.unlock().await {
            // The work is done, and its lease ends by itself at the latest.
            Ok(()) | Err(LockError::ReleasePending { .. } | LockError::RuntimeEnded) => Ok(output),
            Err(error) => Err(error),
        }
    }
}

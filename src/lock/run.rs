//! Work that ends with the lock: [`Lock::run`] and [`Guard::run`], and variants that pass the guard.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;

use crate::lock::error::LockError;
use crate::lock::guard::Guard;
use crate::lock::handle::Lock;

impl Lock {
    /// Takes the lock as [`lock`](Self::lock) does, runs `work`, and gives the lock back. If the hold is lost
    /// before `work` is ready, `work` is dropped at once. [`Guard::run`] tells the meaning of the outcomes.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`, and gives the lock back if it was taken.
    ///
    /// # Errors
    ///
    /// Those of [`lock`](Self::lock), with `work` never polled. [`LockError::Lost`] as of [`Guard::run`].
    pub async fn run<T>(&self, work: impl Future<Output = T>) -> Result<T, LockError> {
        self.lock().await?.run(work).await
    }

    /// As [`run`](Self::run), for work that looks at its guard: to send the [token](Guard::fencing_token)
    /// along, or to [ask](Guard::ensure_held) before a step that cannot be undone. `work` is an async
    /// closure, `async |guard| …`: the future of `|guard| async move …` could not borrow the guard, and the
    /// compiler says "type annotations needed".
    ///
    /// # Cancel safety
    ///
    /// Same as [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Same as [`run`](Self::run).
    ///
    /// # Examples
    ///
    /// ```
    /// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
    /// # async fn write(_: u64) {}
    /// # block_on(async {
    /// # let client = latchwork::LockClient::local();
    /// let account = client.get_lock("account:7")?.fenced();
    /// account.run_with(async |guard| write(guard.fencing_token().expect("it is fenced")).await).await?;
    /// # Ok::<(), latchwork::LockError>(()) }).unwrap();
    /// ```
    pub async fn run_with<T>(&self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, LockError> {
        self.lock().await?.run_with(work).await
    }
}

impl Guard {
    /// Runs `work` under this hold, and gives the hold back. If the hold is lost before `work` is ready,
    /// `work` is dropped at once.
    ///
    /// `Ok`: `work` was ready before any known loss, and the hold was there to be given back. An unanswered
    /// release is no error here: the work is done, and the release is repeated in the background.
    ///
    /// `work` is dropped at one of its `await`s, as by any timeout; tasks and threads of `work` go on, so
    /// fence its writes to other systems by a [token](Self::fencing_token).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`, and gives the hold back.
    ///
    /// # Errors
    ///
    /// [`LockError::Lost`] if the hold was lost: `work` was dropped; or `work` was ready, its output is
    /// dropped, and the store says that the lock had been taken away. [`LockError::OtherKind`] if the name is
    /// also held as another kind. [`LockError::Forked`] if `work` was ready in a child that it forked off.
    ///
    /// # Examples
    ///
    /// ```
    /// # tokio::runtime::Runtime::new().unwrap().block_on(async {
    /// # let client = latchwork::LockClient::local();
    /// let lock = client.get_lock("invoices")?;
    /// if let Some(guard) = lock.try_lock().await? {
    ///     guard.run(async { /* … the work of one process at a time … */ }).await?;
    /// }
    /// # Ok::<(), latchwork::LockError>(()) }).unwrap();
    /// ```
    pub async fn run<T>(self, work: impl Future<Output = T>) -> Result<T, LockError> {
        self.run_with(async |_| work.await).await
    }

    /// As [`run`](Self::run), for work that looks at this guard: to send the [token](Self::fencing_token)
    /// along, or to [ask](Self::ensure_held) before a step that cannot be undone.
    ///
    /// # Cancel safety
    ///
    /// Same as [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Same as [`run`](Self::run).
    pub async fn run_with<T>(self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, LockError> {
        let output = {
            let work = pin!(async { work(&self).await });
            let output = unless_lost(work, pin!(self.lost())).await;
            output.map_err(|reason| LockError::lost(self.name(), *self.owner(), reason))?
        };
        after_work(self.unlock().await, output)
    }
}

/// Returns the output of `work`, or the loss that came first.
pub(super) async fn unless_lost<T, L>(
    mut work: Pin<&mut impl Future<Output = T>>,
    mut lost: Pin<&mut impl Future<Output = L>>,
) -> Result<T, L> {
    // Polled first, as `lost` reads the clock: work without its lock must not take another step.
    poll_fn(|context| match lost.as_mut().poll(context) {
        Poll::Ready(loss) => Poll::Ready(Err(loss)),
        Poll::Pending => work.as_mut().poll(context).map(Ok),
    })
    .await
}

/// Returns the output of work that is done, unless its release says that a hold was lost before.
pub(super) fn after_work<T>(unlocked: Result<(), LockError>, output: T) -> Result<T, LockError> {
    match unlocked {
        Err(error) if !is_of_release_only(&error) => Err(error),
        _ => Ok(output),
    }
}

/// True if the work before the release was done under the lock. The lease ends by itself at the latest.
pub(super) fn is_of_release_only(error: &LockError) -> bool {
    matches!(error, LockError::ReleasePending { .. } | LockError::RuntimeEnded)
}

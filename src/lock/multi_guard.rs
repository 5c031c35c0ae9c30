//! [`MultiGuard`]: one hold on several locks.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use crate::lock_entry::LossReason;

use crate::lock::error::LockError;
use crate::lock::guard::Guard;
use crate::lock::name::LockName;
use crate::lock::run::{after_work, is_of_release_only, unless_lost};

/// Greatest number of commands of one call under way: each wake-up polls all that are.
pub(super) const AT_ONCE: usize = 64;

/// One hold on all locks of a [`MultiLock`](crate::MultiLock). Dropping the guard gives all back, as dropping
/// a [`Guard`] does.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async { let client = latchwork::LockClient::local();
/// let accounts = [client.get_lock("alice")?.fenced(), client.get_lock("bob")?.fenced()];
/// let guard = client.get_multi_lock(&accounts)?.lock().await?;
/// assert!(guard.is_held() && guard.fencing_token("bob").is_some());
/// tokio::select! {
///     () = async { /* the work */ } => guard.unlock().await?,
///     (name, reason) = guard.lost() => eprintln!("stopped: {name} was lost, {reason}"),
/// }
/// # Ok::<(), latchwork::LockError>(()) }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "dropping a guard gives the locks back at once"]
pub struct MultiGuard {
    /// At least one, in the order of names.
    guards: Vec<Guard>,
}

impl MultiGuard {
    pub(super) fn new(guards: Vec<Guard>) -> Self {
        Self { guards }
    }

    /// The holds on the single locks, in the order of names.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// Converts into the holds on the single locks, in the order of names: to give some back earlier.
    pub fn into_guards(self) -> Vec<Guard> {
        self.guards
    }

    /// The fencing token of `name`, if the name is one of the set and its lock is
    /// [fenced](crate::Lock::fenced). The name is the store's, as [`LockName`] has it.
    pub fn fencing_token(&self, name: &str) -> Option<u64> {
        self.guards.iter().find(|guard| guard.name().as_str() == name)?.fencing_token()
    }

    /// True if all locks are still held, as far as this process knows: see [`Guard::is_held`].
    pub fn is_held(&self) -> bool {
        self.guards.iter().all(Guard::is_held)
    }

    /// Returns how long all leases last without a renewal, the least of [`Guard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.guards.iter().map(Guard::remaining).min().unwrap_or_default()
    }

    /// Waits until one of the locks is lost, and returns its name and the reason: see [`Guard::lost`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn lost(&self) -> (LockName, LossReason) {
        let (guard, reason) = self.first_lost().await;
        (guard.name().clone(), reason)
    }

    async fn first_lost(&self) -> (&Guard, LossReason) {
        let mut all: Vec<_> = self.guards.iter().map(|guard| (guard, Box::pin(guard.lost()))).collect();
        let first = poll_fn(|task| {
            let mut polled =
                all.iter_mut().map(|(guard, lost)| lost.as_mut().poll(task).map(|why| (*guard, why)));
            polled.find(Poll::is_ready).unwrap_or(Poll::Pending)
        });
        first.await
    }

    /// Asks the store if all locks are still held: see [`Guard::ensure_held`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    ///
    /// Those of [`Guard::ensure_held`], for the first name that fails.
    pub async fn ensure_held(&self) -> Result<(), LockError> {
        for some in self.guards.chunks(AT_ONCE) {
            join(some.iter().map(Guard::ensure_held)).await.into_iter().collect::<Result<(), _>>()?;
        }
        Ok(())
    }

    /// Gives all locks back, each as [`Guard::unlock`] does.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future, or not polling it after its first poll, does not keep the locks: the background
    /// finishes the releases.
    ///
    /// # Errors
    ///
    /// Those of [`Guard::unlock`], which tells their meaning for the work. All locks are given back, whatever
    /// fails. Of several errors, the first by name that tells of work without protection, or else the first.
    pub async fn unlock(self) -> Result<(), LockError> {
        let mut outcome = Ok(());
        for unlocked in join(self.guards.into_iter().map(Guard::unlock)).await {
            outcome = match (outcome, unlocked) {
                (Ok(()), unlocked) => unlocked,
                (Err(first), Err(worse)) if is_of_release_only(&first) && !is_of_release_only(&worse) => {
                    Err(worse)
                }
                (outcome, _) => outcome,
            };
        }
        outcome
    }

    /// Runs `work` under this hold, and gives all locks back. If one is lost before `work` is ready, `work`
    /// is dropped at once. The outcomes mean the same as those of [`Guard::run`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops `work`, and gives all locks back.
    ///
    /// # Errors
    ///
    /// Those of [`Guard::run`], with the name of the lock.
    pub async fn run<T>(self, work: impl Future<Output = T>) -> Result<T, LockError> {
        self.run_with(async |_| work.await).await
    }

    /// As [`run`](Self::run), for work that looks at this guard: to send [tokens](Self::fencing_token) along,
    /// or to [ask](Self::ensure_held) before a step that cannot be undone.
    ///
    /// # Cancel safety
    ///
    /// Same as [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Same as [`run`](Self::run).
    pub async fn run_with<T>(self, work: impl AsyncFnOnce(&MultiGuard) -> T) -> Result<T, LockError> {
        let output = {
            let work = pin!(async { work(&self).await });
            let output = unless_lost(work, pin!(self.first_lost())).await;
            output.map_err(|(guard, reason)| LockError::lost(guard.name(), *guard.owner(), reason))?
        };
        after_work(self.unlock().await, output)
    }
}

/// Awaits all futures, begun in order at the first poll. Each later poll goes to the first [`AT_ONCE`] that
/// are pending: polls of all at each wake-up would be as many as the square of their number.
pub(super) async fn join<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut all: Vec<_> = futures.map(|future| (Box::pin(future), None)).collect();
    let mut at_once = usize::MAX;
    poll_fn(|task| {
        let mut polled = Poll::Ready(());
        let mut pending = all.iter_mut().filter(|(_, output)| output.is_none());
        let mut left = at_once;
        while left > 0
            && let Some((future, output)) = pending.next()
        {
            match future.as_mut().poll(task) {
                Poll::Ready(ready) => *output = Some(ready),
                Poll::Pending => (polled, left) = (Poll::Pending, left - 1),
            }
        }
        at_once = AT_ONCE;
        polled
    })
    .await;
    all.into_iter().filter_map(|(_, output)| output).collect()
}

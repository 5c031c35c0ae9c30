//! The job: tasks that increment plain numbers, each number behind a lock.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use latchwork::Lock;
use tokio::task::{JoinSet, yield_now};

use crate::outcome::{EnterOutcome, LockOutcome, Tally};
use crate::plan::Plan;
use crate::{Error, clock};

/// A number that comes out right only for one task at a time, and traces of a second task.
pub(crate) trait Number: Send + Sync + 'static {
    /// Leaves a trace while the caller is inside, and checks for traces of others.
    fn enter(&self) -> impl Future<Output = Result<EnterOutcome, Error>> + Send;
    fn read(&self) -> impl Future<Output = Result<u64, Error>> + Send;
    fn write(&self, number: u64) -> impl Future<Output = Result<(), Error>> + Send;
    /// Removes the trace, and notes the time: the release follows at once.
    fn leave(&self) -> impl Future<Output = Result<(), Error>> + Send;
}

/// A lock, its number, and the observations of its tasks.
struct Contended<N> {
    lock: Lock,
    number: N,
    tally: Mutex<Tally>,
}

impl<N: Number> Contended<N> {
    async fn increment(&self) -> Result<(), Error> {
        let waiting_since = clock::now();
        let guard = self.lock.lock().await?;
        let acquired = clock::now();

        let entered = self.number.enter().await?;
        let number = self.number.read().await?;
        // Here a second holder would read the same number, and one of the two increments would be lost.
        yield_now().await;
        self.number.write(number + 1).await?;
        self.number.leave().await?;

        // Dropping the guard releases the lock as well, but cannot report that it was lost.
        guard.unlock().await?;

        let mut tally = self.tally.lock().unwrap_or_else(PoisonError::into_inner);
        tally.add_turn(waiting_since, acquired, &entered);
        Ok(())
    }
}

/// Runs `tasks` of `plan` to their end: the first error ends them all. `behind` are the locks, in the plan's
/// order, each with its number; `done` counts the increments.
pub(crate) async fn run<N: Number>(
    plan: &Plan,
    tasks: Range<u32>,
    behind: Vec<(Lock, N)>,
    done: &Arc<AtomicU64>,
) -> Result<Vec<LockOutcome>, Error> {
    let contended: Vec<_> = behind
        .into_iter()
        .map(|(lock, number)| Arc::new(Contended { lock, number, tally: Mutex::default() }))
        .collect();

    // An early return, by an error or by dropping this future, ends the tasks by dropping the set.
    let mut running = JoinSet::new();
    for task in tasks {
        let contended = Arc::clone(&contended[plan.lock_of(task)]);
        let increments = plan.increments_of(task);
        let done = Arc::clone(done);
        running.spawn(async move {
            for _ in 0..increments {
                contended.increment().await?;
                done.fetch_add(1, Ordering::Relaxed);
                // The lock is not fair: a task that asked again at once would get it before the woken waiter
                // runs, and each task would make all its increments in a row.
                yield_now().await;
            }
            Ok::<(), Error>(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }

    let outcome = |contended: &Arc<Contended<N>>| {
        let tally = contended.tally.lock().unwrap_or_else(PoisonError::into_inner);
        LockOutcome::new(contended.lock.stats(), tally.clone())
    };
    Ok(contended.iter().map(outcome).collect())
}

//! Work that is finished even if nobody waits for it any more, or nobody polls it.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use crate::runtime::Runtime;
use crate::sync::{Event, Mutex};

use super::span;
use super::told::told;

/// Runs `work` as a task of its own, and waits for what it comes to.
///
/// Begun by the first poll. From then on `work` goes on to its end, even if this future is dropped, and what it came to is
/// then dropped as well. It also goes on if this future is kept and not polled: were it polled by its caller, a caller that
/// awaits something else meanwhile would keep everybody behind it waiting.
pub(super) async fn supervised<R: Runtime, T: Send + 'static>(
    runtime: &R,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, RuntimeEnded> {
    let slot = Arc::new(Slot { outcome: Mutex::new(Outcome::Awaited), told: Event::new() });
    let supervisor = Supervisor(Arc::clone(&slot));
    runtime.spawn(span::here(async move {
        let outcome = work.await;
        supervisor.tell(Outcome::Is(outcome));
    }));
    told(&slot.told, || slot.take()).await
}

struct Slot<T> {
    outcome: Mutex<Outcome<T>>,
    told: Event,
}

enum Outcome<T> {
    Awaited,
    Is(T),
    /// The task was dropped before its end.
    Never,
}

impl<T> Slot<T> {
    fn take(&self) -> Option<Result<T, RuntimeEnded>> {
        match std::mem::replace(&mut *self.outcome.lock(), Outcome::Awaited) {
            Outcome::Awaited => None,
            Outcome::Is(outcome) => Some(Ok(outcome)),
            Outcome::Never => Some(Err(RuntimeEnded)),
        }
    }
}

/// The task's end of the slot. Dropped before it has told anything, it tells that there will be nothing.
struct Supervisor<T>(Arc<Slot<T>>);

impl<T> Supervisor<T> {
    fn tell(self, outcome: Outcome<T>) {
        *self.0.outcome.lock() = outcome;
    }
}

impl<T> Drop for Supervisor<T> {
    fn drop(&mut self) {
        {
            let mut outcome = self.0.outcome.lock();
            if matches!(*outcome, Outcome::Awaited) {
                *outcome = Outcome::Never;
            }
        }
        self.0.told.notify(usize::MAX);
    }
}

/// The backend's runtime has ended, and the command with it.
#[derive(Debug)]
pub(super) struct RuntimeEnded;

impl fmt::Display for RuntimeEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "the runtime that the backend's commands run on has ended; keep it for as long as the client",
        )
    }
}

impl Error for RuntimeEnded {}

#[cfg(test)]
mod tests {
    use std::future::{pending, poll_fn};
    use std::pin::pin;
    use std::task::Poll;

    use super::super::by_hand::{ByHand, poll};
    use super::*;

    #[test]
    fn work_goes_on_without_who_waits_for_it_and_its_outcome_is_dropped() {
        let runtime = ByHand::default();
        let outcome = Arc::new(());
        let work = {
            let (outcome, mut polls) = (Arc::clone(&outcome), 0);
            async move {
                poll_fn(|_| {
                    polls += 1;
                    if polls > 1 { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                outcome
            }
        };
        {
            let mut waits = pin!(supervised(&runtime, work));
            assert!(runtime.take().is_none(), "begun before it was polled");
            assert!(poll(waits.as_mut()).is_pending());
        }
        let mut task = runtime.take().expect("begun by the poll");
        assert!(poll(&mut task).is_pending());
        assert_eq!(Arc::strong_count(&outcome), 2);
        assert!(poll(&mut task).is_ready());
        assert_eq!(Arc::strong_count(&outcome), 1);
    }

    #[test]
    fn end_of_the_runtime_is_told() {
        let runtime = ByHand::default();
        let mut waits = pin!(supervised(&runtime, pending::<()>()));
        assert!(poll(waits.as_mut()).is_pending());
        drop(runtime.take());
        assert!(matches!(poll(waits.as_mut()), Poll::Ready(Err(RuntimeEnded))));
    }
}

//! Work that its caller polls, and that is finished in the background if the caller goes away.

use std::pin::Pin;
use std::task::{Context, Poll};

use crate::runtime::Runtime;

use super::span;

/// Runs `work` wherever it is awaited. If that is dropped before its end, `work` goes on as a task, and what it comes to is dropped
/// as well.
///
/// Cheaper than a task from the beginning, and only for work that nobody but the caller waits for: while the caller does not poll
/// it, it stands still.
///
/// `work` is on the heap, as it cannot be moved once it has been polled.
pub(super) fn finished<R: Runtime, F>(runtime: &R, work: Pin<Box<F>>) -> impl Future<Output = F::Output>
where
    F: Future<Output: Send> + Send + 'static,
{
    Finished { runtime, work: Some(work) }
}

struct Finished<'a, R: Runtime, F: Future<Output: Send> + Send + 'static> {
    runtime: &'a R,
    /// `None` once it has come to its end.
    work: Option<Pin<Box<F>>>,
}

impl<R: Runtime, F: Future<Output: Send> + Send + 'static> Future for Finished<'_, R, F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // Not there while it is polled: what panics is not to be polled again.
        let mut work = self.work.take().expect("polled after its end");
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            self.work = Some(work);
        }
        polled
    }
}

impl<R: Runtime, F: Future<Output: Send> + Send + 'static> Drop for Finished<'_, R, F> {
    fn drop(&mut self) {
        if let Some(work) = self.work.take() {
            self.runtime.spawn(span::here(async move { drop(work.await) }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{poll_fn, ready};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::pin;
    use std::sync::Arc;

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
                    if polls > 2 { Poll::Ready(()) } else { Poll::Pending }
                })
                .await;
                outcome
            }
        };
        assert!(poll(pin!(finished(&runtime, Box::pin(work)))).is_pending());
        let mut task = runtime.take().expect("goes on in the background");
        assert!(poll(&mut task).is_pending(), "begun anew, or not polled before");
        assert_eq!(Arc::strong_count(&outcome), 2);
        assert!(poll(&mut task).is_ready());
        assert_eq!(Arc::strong_count(&outcome), 1);
    }

    #[test]
    fn nothing_is_left_to_do_once_it_has_come_to_its_end() {
        let runtime = ByHand::default();
        assert!(poll(pin!(finished(&runtime, Box::pin(ready(()))))).is_ready());
        assert!(runtime.take().is_none());
    }

    #[test]
    fn work_that_panics_is_not_polled_again() {
        let runtime = ByHand::default();
        let work = poll_fn(|_| -> Poll<()> { panic!("on purpose") });
        let panicked = catch_unwind(AssertUnwindSafe(|| poll(pin!(finished(&runtime, Box::pin(work))))));
        assert!(panicked.is_err() && runtime.take().is_none());
    }
}

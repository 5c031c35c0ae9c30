//! Futures polled by the test, and wakers that run code.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Wake, Waker};

struct Run<F: Fn() + Send + Sync>(F);

impl<F: Fn() + Send + Sync> Wake for Run<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// A waker that runs a closure on each wake-up.
pub(crate) fn waker(run: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Run(run)))
}

/// A waker, and the number of its wake-ups.
pub(crate) fn bell() -> (Waker, Arc<AtomicUsize>) {
    let rung = Arc::new(AtomicUsize::new(0));
    let rings = Arc::clone(&rung);
    // Ordering: Relaxed, read by the waking thread.
    (waker(move || _ = rings.fetch_add(1, Ordering::Relaxed)), rung)
}

pub(crate) fn poll_by<F: Future + Unpin>(future: &mut F, waker: &Waker) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(waker))
}

pub(crate) fn poll<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    poll_by(future, Waker::noop())
}

pub(crate) fn is_ready<F: Future + Unpin>(future: &mut F) -> bool {
    poll(future).is_ready()
}

//! [`Bell`]: a waker that records calls, and counts its clones.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Wake, Waker};

/// A source of wakers for polls.
#[derive(Clone, Debug)]
pub struct Bell(Arc<Rung>);

#[derive(Debug)]
struct Rung(AtomicBool);

impl Wake for Rung {
    fn wake(self: Arc<Self>) {
        // A thread may be stopped in a waker as well.
        #[cfg(latchwork_suspend)]
        latchwork::suspension::wakes();
        // Ordering: Relaxed, so a bell lends the code under test no order.
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Bell {
    /// A silent bell.
    pub fn new() -> Self {
        Self(Arc::new(Rung(AtomicBool::new(false))))
    }

    /// A waker that rings the bell. All wakers of one bell are equal.
    pub fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.0))
    }

    /// True if the bell was rung since the last [`silence`](Self::silence).
    pub fn is_rung(&self) -> bool {
        // Ordering: Relaxed, see `wake`.
        self.0.0.load(Ordering::Relaxed)
    }

    /// Resets the bell to not rung.
    pub fn silence(&self) {
        // Ordering: Relaxed, see `wake`.
        self.0.0.store(false, Ordering::Relaxed);
    }

    /// The number of wakers that could still ring the bell.
    pub fn copies(&self) -> usize {
        Arc::strong_count(&self.0) - 1
    }

    /// Polls with this bell's waker.
    pub fn poll<F: Future + Unpin>(&self, future: &mut F) -> Poll<F::Output> {
        std::pin::Pin::new(future).poll(&mut std::task::Context::from_waker(&self.waker()))
    }
}

impl Default for Bell {
    fn default() -> Self {
        Self::new()
    }
}

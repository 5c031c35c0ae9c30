//! [`Bell`]: a waker that tells whether it was called, and how many copies of it there are.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Wake, Waker};

/// What a future is polled with.
#[derive(Clone, Debug)]
pub struct Bell(Arc<Rung>);

#[derive(Debug)]
struct Rung(AtomicBool);

impl Wake for Rung {
    fn wake(self: Arc<Self>) {
        // A thread may be stopped in a waker as well.
        #[cfg(latchwork_suspend)]
        latchwork::suspension::wakes();
        // Ordering: Relaxed, so that a bell lends the code under test no order that it does not make itself.
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Bell {
    /// A bell that was not rung.
    pub fn new() -> Self {
        Self(Arc::new(Rung(AtomicBool::new(false))))
    }

    /// Rings it. All wakers of one bell are the same waker.
    pub fn waker(&self) -> Waker {
        Waker::from(Arc::clone(&self.0))
    }

    /// Whether it was rung.
    pub fn is_rung(&self) -> bool {
        // Ordering: Relaxed, see `wake`.
        self.0.0.load(Ordering::Relaxed)
    }

    /// It was heard; from now on it is not rung.
    pub fn silence(&self) {
        // Ordering: Relaxed, see `wake`.
        self.0.0.store(false, Ordering::Relaxed);
    }

    /// Wakers that still could ring it.
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

//! Wakers that run code, or count.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

struct Acts<F>(F);

impl<F: Fn() + Send + Sync> Wake for Acts<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

/// Returns a waker that runs `act` at each wake-up.
pub fn waker(act: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Acts(act)))
}

/// Counts the wake-ups of its wakers.
#[derive(Clone, Debug, Default)]
pub struct Bell(Arc<AtomicUsize>);

impl Bell {
    /// Returns a waker whose calls are counted.
    pub fn waker(&self) -> Waker {
        let bell = self.clone();
        waker(move || bell.ring())
    }

    /// Returns a waker whose counted calls panic.
    pub fn waker_that_panics(&self) -> Waker {
        let bell = self.clone();
        waker(move || {
            bell.ring();
            panic!("on purpose");
        })
    }

    /// Counts one more, as a wake-up does.
    pub fn ring(&self) {
        // Ordering: SeqCst here and below for simplicity; a test needs no less.
        self.0.fetch_add(1, Ordering::SeqCst);
    }

    /// The wake-ups so far, or since the last [`take`](Self::take).
    pub fn rung(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    /// Returns true if the bell has rung since the last call.
    pub fn take(&self) -> bool {
        self.0.swap(0, Ordering::SeqCst) > 0
    }
}

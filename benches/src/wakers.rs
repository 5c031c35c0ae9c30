//! The wakers of the hand-polled scenarios.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

/// A waker that counts its wake-ups and its clones.
///
/// Not `Waker::noop`: a runtime's waker counts references, so each clone by a semaphore costs two atomic
/// operations on a shared word, and a wake-up has a cost, too. With a no-op waker needless clones would be
/// free. And the counts show that every due task was woken, and that no clone of a waker was left behind.
#[derive(Debug)]
pub struct Counting {
    wakes: Arc<Wakes>,
    waker: Waker,
}

#[derive(Debug)]
struct Wakes(AtomicU64);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Ordering: Relaxed, a count that is read on the same thread.
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Counting {
    /// A new waker.
    pub fn new() -> Self {
        let wakes = Arc::new(Wakes(AtomicU64::new(0)));
        Self { waker: Waker::from(Arc::clone(&wakes)), wakes }
    }

    /// A context to poll with.
    pub fn context(&self) -> Context<'_> {
        Context::from_waker(&self.waker)
    }

    /// The number of wake-ups so far.
    pub fn wakes(&self) -> u64 {
        // Ordering: Relaxed, as in `wake_by_ref`.
        self.wakes.0.load(Ordering::Relaxed)
    }

    /// Checks that no semaphore has kept a clone. Panics if a semaphore has kept one.
    pub fn assert_no_copies(&self) {
        // Counts `wakes` and `waker`.
        assert_eq!(Arc::strong_count(&self.wakes), 2, "expected no copy of the waker");
    }
}

impl Default for Counting {
    fn default() -> Self {
        Self::new()
    }
}

struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.unpark();
    }
}

/// A waker that unparks this thread. One for each thread: only the semaphore allocates.
pub fn unparker() -> Waker {
    Waker::from(Arc::new(Parked(thread::current())))
}

/// Runs a future on this thread, blocking it; `unparker` is this thread's.
pub fn block_on<F: Future>(future: F, unparker: &Waker) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(unparker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        thread::park();
    }
}

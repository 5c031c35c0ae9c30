//! Redisson's `AsyncSemaphore` as in releases 3.16.1 to 4.6.0: a counter, a queue, and the loop `tryRun`.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::AcqRel;

use loom::sync::atomic::AtomicIsize;
use loom::sync::{Mutex, Notify};

/// The defect of the twin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No defect: the repaired loop, to show that the model itself can pass.
    None,
    /// After an empty poll the loop returns the permit and ends, without another look at the queue.
    NoSecondLook,
}

/// The semaphore; a waiter is a `Notify`.
#[derive(Debug)]
pub struct Published {
    counter: AtomicIsize,
    queue: Mutex<VecDeque<Arc<Notify>>>,
    fault: Fault,
}

impl Published {
    /// A semaphore with so many permits and this fault.
    pub fn new(permits: isize, fault: Fault) -> Self {
        Self { counter: AtomicIsize::new(permits), queue: Mutex::new(VecDeque::new()), fault }
    }

    /// Acquires a permit, blocking until then.
    pub fn acquire(&self) {
        let waiter = Arc::new(Notify::new());
        self.queue.lock().unwrap().push_back(Arc::clone(&waiter));
        self.try_run();
        waiter.wait();
    }

    /// Releases a permit.
    pub fn release(&self) {
        // Ordering: AcqRel throughout, as strong as Java's: the fault is in the loop, not in the orderings.
        self.counter.fetch_add(1, AcqRel);
        self.try_run();
    }

    fn try_run(&self) {
        loop {
            // Ordering: as in `release`.
            if self.counter.fetch_sub(1, AcqRel) > 0 {
                let waiter = self.queue.lock().unwrap().pop_front();
                if let Some(waiter) = waiter {
                    waiter.notify();
                    return;
                }
                // Ordering: as in `release`.
                self.counter.fetch_add(1, AcqRel);
                if self.fault == Fault::NoSecondLook || self.queue.lock().unwrap().is_empty() {
                    return;
                }
                continue;
            }
            // Ordering: as in `release`.
            if self.counter.fetch_add(1, AcqRel) < 0 {
                return;
            }
        }
    }
}

//! The model: a count of free permits and a queue, written as plainly as possible.
//!
//! The model can be cloned, compared and hashed: `checks/threads` checks histories of several threads against
//! the model, and includes this file by its path. Code for one user of the file may be dead in the other.

use std::task::Poll;

use latchwork::{AsyncSemaphore, TryAcquireError};

pub(crate) type Id = usize;

/// Permits are free or held. All other figures follow.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Model {
    /// Negative: a deficit, which the next releases make up for.
    free: i128,
    /// Intended number of permits. Negative if permits were forgotten while a deficit waits for them.
    capacity: i128,
    closed: bool,
    /// True if permits are a latch's notifications, which do not add up.
    is_latch: bool,
    /// Oldest first.
    queue: Vec<Waiter>,
    /// The waiters woken since the last `take_woken`.
    woken: Vec<Id>,
}

/// A waiter stays in the queue until its future has been polled, or dropped, once more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiter {
    id: Id,
    need: usize,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum State {
    Waiting,
    Granted,
    Closed,
}

#[allow(dead_code, reason = "see above")]
impl Model {
    pub(crate) fn new(permits: usize) -> Self {
        let permits = permits as i128;
        Self {
            free: permits,
            capacity: permits,
            closed: false,
            is_latch: false,
            queue: Vec::new(),
            woken: Vec::new(),
        }
    }

    pub(crate) fn new_latch() -> Self {
        Self { is_latch: true, ..Self::new(0) }
    }

    // === Acquiring ===

    /// Takes the free permits, from `min` to `max`; beside a blocked waiter, only zero.
    pub(crate) fn take(&mut self, min: usize, max: usize) -> Result<usize, TryAcquireError> {
        let taken = max.min(self.available());
        if self.closed {
            Err(TryAcquireError::Closed)
        } else if taken < min {
            Err(TryAcquireError::NoPermits)
        } else {
            self.free -= taken as i128;
            Ok(taken)
        }
    }

    /// The error means closed.
    pub(crate) fn poll(&mut self, id: Id, min: usize, max: usize) -> Poll<Result<usize, ()>> {
        let Some(position) = self.position(id) else {
            return match self.take(min, max) {
                Ok(taken) => Poll::Ready(Ok(taken)),
                Err(TryAcquireError::Closed) => Poll::Ready(Err(())),
                Err(TryAcquireError::NoPermits) => {
                    self.queue.push(Waiter { id, need: min, state: State::Waiting });
                    Poll::Pending
                }
            };
        };
        match self.queue[position].state {
            State::Waiting => Poll::Pending,
            State::Closed => {
                self.queue.remove(position);
                Poll::Ready(Err(()))
            }
            State::Granted => {
                self.queue.remove(position);
                Poll::Ready(Ok(min + self.take(0, max - min).unwrap_or(0)))
            }
        }
    }

    /// A first poll that finds too few permits until the waiter is in the queue, and wakes the waiter at
    /// once. Returns false if the waiter has to wait.
    pub(crate) fn grant_at_once(&mut self, id: Id, need: usize) -> bool {
        let is_granted = self.take(need, need).is_ok();
        if is_granted {
            self.queue.push(Waiter { id, need, state: State::Granted });
        }
        is_granted
    }

    pub(crate) fn has(&self, id: Id) -> bool {
        self.position(id).is_some()
    }

    pub(crate) fn cancel(&mut self, id: Id) {
        if let Some(position) = self.position(id) {
            let gone = self.queue.remove(position);
            if gone.state == State::Granted {
                return self.give_back(gone.need);
            }
            self.settle();
        }
    }

    // === Releasing ===

    pub(crate) fn give_back(&mut self, permits: usize) {
        if self.is_latch {
            self.notify(permits, permits);
            return;
        }
        self.free += permits as i128;
        self.settle();
    }

    /// Gives the `left` remaining notifications of `n`: wakes waiters, or makes up to `n` pending. Returns
    /// the number given.
    pub(crate) fn notify(&mut self, n: usize, left: usize) -> usize {
        if self.is_blocked() {
            self.free = left as i128;
            self.settle();
            return left;
        }
        let given = left.min(n.saturating_sub(self.available()));
        self.free += given as i128;
        given
    }

    pub(crate) fn forget(&mut self, permits: usize) {
        self.capacity -= permits as i128;
    }

    pub(crate) fn add(&mut self, permits: usize) {
        self.capacity += permits as i128;
        self.give_back(permits);
    }

    pub(crate) fn forget_free(&mut self, permits: usize) -> usize {
        let forgotten = permits.min(self.available());
        self.free -= forgotten as i128;
        self.capacity -= forgotten as i128;
        forgotten
    }

    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        let more = capacity as i128 - self.capacity;
        self.capacity += more;
        self.free += more;
        self.settle();
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.settle();
    }

    /// Ends waits, oldest first, as far as the free permits suffice; all waits once the semaphore is closed.
    fn settle(&mut self) {
        for waiter in self.queue.iter_mut().filter(|waiter| waiter.state == State::Waiting) {
            if self.closed {
                waiter.state = State::Closed;
            } else if self.free >= waiter.need as i128 {
                self.free -= waiter.need as i128;
                waiter.state = State::Granted;
            } else {
                break;
            }
            self.woken.push(waiter.id);
        }
    }

    // === Looking ===

    fn position(&self, id: Id) -> Option<usize> {
        self.queue.iter().position(|waiter| waiter.id == id)
    }

    pub(crate) fn take_woken(&mut self) -> Vec<Id> {
        std::mem::take(&mut self.woken)
    }

    /// True if some waiter has neither been granted its permits nor been refused.
    fn is_blocked(&self) -> bool {
        self.sleepers() > 0
    }

    pub(crate) fn sleepers(&self) -> usize {
        self.queue.iter().filter(|waiter| waiter.state == State::Waiting).count()
    }

    /// A blocked waiter makes the free permits unavailable.
    pub(crate) fn available(&self) -> usize {
        if self.is_blocked() { 0 } else { self.free.max(0) as usize }
    }

    pub(crate) fn waiters(&self) -> usize {
        self.queue.len()
    }

    /// Existing permits that are not free.
    pub(crate) fn held(&self) -> usize {
        (self.capacity - self.free.min(self.available() as i128)).max(0) as usize
    }

    pub(crate) fn capacity(&self) -> usize {
        self.capacity.max(0) as usize
    }

    /// Number of permits that may still be added.
    pub(crate) fn room(&self) -> usize {
        (AsyncSemaphore::MAX_PERMITS as i128 - self.capacity) as usize
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }
}

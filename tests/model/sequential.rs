//! The model: a count of free permits and a line, as plain as they can be written.

use std::task::Poll;

use latchwork::{AsyncSemaphore, TryAcquireError};

/// Tells the futures apart.
pub(crate) type Id = usize;

/// Permits lie in one of three places: free, with somebody, or gathered in line. All other figures follow from that.
#[derive(Debug)]
pub(crate) struct Model {
    free: usize,
    with_holders: usize,
    closed: bool,
    /// Oldest first.
    line: Vec<Place>,
    /// Who has been woken since somebody asked.
    woken: Vec<Id>,
}

#[derive(Debug)]
enum Place {
    /// Stays until its future has been polled, or dropped, once more.
    Waiter {
        id: Id,
        need: usize,
        gathered: usize,
        sent_home: bool,
    },
    Debt {
        missing: usize,
    },
}

impl Place {
    fn missing(&self) -> usize {
        match *self {
            Self::Waiter { sent_home: true, .. } => 0,
            Self::Waiter { need, gathered, .. } => need - gathered,
            Self::Debt { missing } => missing,
        }
    }

    /// Lays permits in and says what is left of them.
    fn lay_in(&mut self, permits: usize) -> usize {
        let laid = permits.min(self.missing());
        match self {
            Self::Waiter { gathered, .. } => *gathered += laid,
            Self::Debt { missing } => *missing -= laid,
        }
        permits - laid
    }
}

impl Model {
    pub(crate) fn new(permits: usize) -> Self {
        Self { free: permits, with_holders: 0, closed: false, line: Vec::new(), woken: Vec::new() }
    }

    // === Acquiring ===

    /// Takes what is free, from `min` to `max`. Whoever is in line has left nothing free.
    pub(crate) fn take(&mut self, min: usize, max: usize) -> Result<usize, TryAcquireError> {
        let taken = max.min(self.free);
        if self.closed {
            Err(TryAcquireError::Closed)
        } else if taken < min {
            Err(TryAcquireError::NoPermits)
        } else {
            self.free -= taken;
            self.with_holders += taken;
            Ok(taken)
        }
    }

    /// The error is "closed".
    pub(crate) fn poll(&mut self, id: Id, min: usize, max: usize) -> Poll<Result<usize, ()>> {
        let Some(position) = self.position(id) else {
            return match self.take(min, max) {
                Ok(taken) => Poll::Ready(Ok(taken)),
                Err(TryAcquireError::Closed) => Poll::Ready(Err(())),
                Err(TryAcquireError::NoPermits) => {
                    self.line.push(Place::Waiter { id, need: min, gathered: 0, sent_home: false });
                    let too_few = std::mem::take(&mut self.free);
                    self.bring(too_few);
                    Poll::Pending
                }
            };
        };
        match self.line[position] {
            Place::Waiter { sent_home: true, gathered, .. } => {
                self.line.remove(position);
                self.bring(gathered);
                Poll::Ready(Err(()))
            }
            Place::Waiter { need, gathered, .. } if gathered == need => {
                self.line.remove(position);
                let extra = self.free.min(max - min);
                self.free -= extra;
                self.with_holders += need + extra;
                Poll::Ready(Ok(need + extra))
            }
            _ => Poll::Pending,
        }
    }

    pub(crate) fn cancel(&mut self, id: Id) {
        if let Some(position) = self.position(id)
            && let Place::Waiter { gathered, .. } = self.line.remove(position)
        {
            self.bring(gathered);
        }
    }

    // === Releasing ===

    pub(crate) fn give_back(&mut self, permits: usize) {
        self.with_holders -= permits;
        self.bring(permits);
    }

    pub(crate) fn forget(&mut self, permits: usize) {
        self.with_holders -= permits;
    }

    pub(crate) fn add(&mut self, permits: usize) {
        self.bring(permits);
    }

    pub(crate) fn forget_free(&mut self, permits: usize) -> usize {
        let forgotten = permits.min(self.free);
        self.free -= forgotten;
        forgotten
    }

    pub(crate) fn set_capacity(&mut self, capacity: usize) {
        let more = capacity as i128 - self.balance();
        if more >= 0 {
            let mut left = more as usize;
            for debt in self.line.iter_mut().filter(|place| matches!(place, Place::Debt { .. })) {
                left = debt.lay_in(left);
            }
            self.bring(left);
        } else {
            let debt = more.unsigned_abs() as usize;
            let missing = debt - self.forget_free(debt);
            if missing > 0 {
                self.line.push(Place::Debt { missing });
            }
        }
    }

    pub(crate) fn close(&mut self) {
        self.closed = true;
        for place in self.line.iter_mut().filter(|place| place.missing() > 0) {
            if let Place::Waiter { id, sent_home, .. } = place {
                *sent_home = true;
                self.woken.push(*id);
            }
        }
    }

    /// Down the line, to each what it misses; what is left is free.
    fn bring(&mut self, mut permits: usize) {
        for place in self.line.iter_mut().filter(|place| place.missing() > 0) {
            permits = place.lay_in(permits);
            match *place {
                Place::Waiter { id, need, gathered, .. } if gathered == need => self.woken.push(id),
                _ => {}
            }
        }
        self.line.retain(|place| !matches!(place, Place::Debt { missing: 0 }));
        self.free += permits;
    }

    // === Looking ===

    fn position(&self, id: Id) -> Option<usize> {
        self.line.iter().position(|place| matches!(place, Place::Waiter { id: other, .. } if *other == id))
    }

    pub(crate) fn take_woken(&mut self) -> Vec<Id> {
        std::mem::take(&mut self.woken)
    }

    pub(crate) fn available(&self) -> usize {
        self.free
    }

    pub(crate) fn waiters(&self) -> usize {
        self.line.iter().filter(|place| matches!(place, Place::Waiter { .. })).count()
    }

    pub(crate) fn held(&self) -> usize {
        let gathered = self.line.iter().map(|place| match place {
            Place::Waiter { gathered, .. } => *gathered,
            Place::Debt { .. } => 0,
        });
        self.with_holders + gathered.sum::<usize>()
    }

    /// Permits in existence, as if all debts were paid: below zero if permits were forgotten that a debt waits for.
    fn balance(&self) -> i128 {
        let debts = self.line.iter().map(|place| match place {
            Place::Waiter { .. } => 0,
            Place::Debt { missing } => *missing as i128,
        });
        self.free as i128 + self.held() as i128 - debts.sum::<i128>()
    }

    pub(crate) fn capacity(&self) -> usize {
        self.balance().max(0) as usize
    }

    /// How many may still be added. Permits that a debt waits for do exist.
    pub(crate) fn room(&self) -> usize {
        AsyncSemaphore::MAX_PERMITS - self.free - self.held()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }
}

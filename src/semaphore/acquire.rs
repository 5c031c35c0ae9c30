//! The waiting futures. Dropping one is cancelling.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::sync::Arc;

use super::AsyncSemaphore;
use super::cell::{Cell, Served};
use super::error::AcquireError;
use super::permit::{OwnedSemaphorePermit, SemaphorePermit};
use super::queue::{Queue, Refused};

/// Where a wait stands. Shared by the borrowed and the owned future; it does not hold the semaphore, so each call is told.
#[derive(Debug)]
enum Wait {
    /// Not polled yet: no place in line.
    New,
    InLine(Arc<Cell>),
    Done,
}

impl Wait {
    fn poll(&mut self, queue: &Queue, context: &mut Context<'_>) -> Poll<Result<(), AcquireError>> {
        let served = match self {
            Self::New => match queue.take_or_enqueue(context.waker()) {
                Ok(None) => Some(Served::Granted),
                Ok(Some(cell)) => {
                    // It may have been served before it got here.
                    let served = cell.served(context.waker());
                    *self = Self::InLine(cell);
                    served
                }
                Err(Refused::Closed) => Some(Served::Closed),
                Err(Refused::NoPermits) => unreachable!("who finds no permit is given a place in line"),
            },
            Self::InLine(cell) => cell.served(context.waker()),
            Self::Done => panic!("an acquire future was polled after it had returned ready"),
        };
        match served {
            None => Poll::Pending,
            Some(served) => {
                *self = Self::Done;
                Poll::Ready(match served {
                    Served::Granted => Ok(()),
                    Served::Closed => Err(AcquireError::closed()),
                })
            }
        }
    }

    fn cancel(&mut self, queue: &Queue) {
        if let Self::InLine(cell) = std::mem::replace(self, Self::Done) {
            // If we come first, whoever pops the cell sees that we are gone and serves the next. If it comes first, the
            // permit is ours and goes on from here.
            if cell.cancel() == Some(Served::Granted) {
                queue.give_back();
            }
        }
    }
}

/// The future of [`AsyncSemaphore::acquire`].
#[must_use = "futures do nothing unless polled"]
pub struct Acquire<'a> {
    semaphore: &'a AsyncSemaphore,
    wait: Wait,
}

impl<'a> Acquire<'a> {
    pub(super) fn new(semaphore: &'a AsyncSemaphore) -> Self {
        Self { semaphore, wait: Wait::New }
    }
}

impl<'a> Future for Acquire<'a> {
    type Output = Result<SemaphorePermit<'a>, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let semaphore = self.semaphore;
        self.wait
            .poll(&semaphore.queue, context)
            .map(|result| result.map(|()| SemaphorePermit::new(semaphore)))
    }
}

impl Drop for Acquire<'_> {
    fn drop(&mut self) {
        self.wait.cancel(&self.semaphore.queue);
    }
}

impl fmt::Debug for Acquire<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").field("wait", &self.wait).finish_non_exhaustive()
    }
}

/// The future of [`AsyncSemaphore::acquire_owned`].
#[must_use = "futures do nothing unless polled"]
pub struct AcquireOwned {
    semaphore: std::sync::Arc<AsyncSemaphore>,
    wait: Wait,
}

impl AcquireOwned {
    pub(super) fn new(semaphore: std::sync::Arc<AsyncSemaphore>) -> Self {
        Self { semaphore, wait: Wait::New }
    }
}

impl Future for AcquireOwned {
    type Output = Result<OwnedSemaphorePermit, AcquireError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.wait
            .poll(&this.semaphore.queue, context)
            .map(|result| result.map(|()| OwnedSemaphorePermit::new(std::sync::Arc::clone(&this.semaphore))))
    }
}

impl Drop for AcquireOwned {
    fn drop(&mut self) {
        self.wait.cancel(&self.semaphore.queue);
    }
}

impl fmt::Debug for AcquireOwned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireOwned").field("wait", &self.wait).finish_non_exhaustive()
    }
}

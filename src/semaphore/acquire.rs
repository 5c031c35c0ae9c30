//! The waiting futures. Dropping one is cancelling.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::fault::fault;

use super::AsyncSemaphore;
use super::cell::Ended;
use super::error::AcquireError;
use super::permit::{OwnedSemaphorePermit, SemaphorePermit};
use super::queue::{MAX_PERMITS, Queue};
use super::row::Place;

/// A wait, and where it stands. Shared by the borrowed and the owned future; it does not hold the semaphore, so each call is
/// told.
struct Wait {
    stage: Stage,
    min: usize,
    /// How many more are taken along if they are free when the wait is over.
    extra: usize,
}

enum Stage {
    /// Not polled yet: no place in line.
    New,
    InLine(Place),
    Done,
}

impl Wait {
    #[track_caller]
    #[inline]
    fn new(min: usize, max: usize) -> Self {
        assert!(max <= MAX_PERMITS, "cannot acquire {max} permits, more than MAX_PERMITS");
        assert!(min <= max, "cannot acquire at least {min} permits and at most {max}");
        Self { stage: Stage::New, min, extra: max - min }
    }

    /// `queue` is the same in every call.
    // Inlined into the caller is what needs no waiting, and no more, or the caller would not be inlined into its own.
    #[inline]
    fn poll(&mut self, queue: &Queue, context: &mut Context<'_>) -> Poll<Result<usize, AcquireError>> {
        if !matches!(self.stage, Stage::New) {
            return self.poll_in_line(queue, context);
        }
        if self.extra == 0 && queue.try_take(self.min).is_ok() {
            return self.done(Ok(self.min));
        }
        self.join_line(queue, context)
    }

    #[inline(never)]
    fn join_line(&mut self, queue: &Queue, context: &mut Context<'_>) -> Poll<Result<usize, AcquireError>> {
        if self.extra > 0
            && let Ok(taken) = queue.try_take_up_to(self.min, self.min + self.extra)
        {
            return self.done(Ok(taken));
        }
        if queue.is_closed() {
            return self.done(Err(AcquireError::closed()));
        }
        // From here on the place is given up by dropping this, whatever panics.
        self.stage = Stage::InLine(queue.enqueue(self.min, context.waker()));
        let served = queue.look_about();
        if queue.is_closed() && !fault!(NoLookAtClosed) {
            // Whoever closed it may have looked before we came.
            self.cancel(queue);
            return Poll::Ready(Err(AcquireError::closed()));
        }
        // What was found may have served this very wait.
        if served { self.poll_in_line(queue, context) } else { Poll::Pending }
    }

    #[inline(never)]
    fn poll_in_line(
        &mut self,
        queue: &Queue,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, AcquireError>> {
        let Stage::InLine(place) = self.stage else {
            panic!("an acquire future was polled after it had returned ready");
        };
        // SAFETY: we own the cell, and forget the place if the wait has ended.
        let Some(ended) = (unsafe { queue.poll(place, context.waker()) }) else { return Poll::Pending };
        match ended {
            Ended::Granted => {
                let extra = if self.extra > 0 { queue.drain(self.extra) } else { 0 };
                self.done(Ok(self.min + extra))
            }
            Ended::Closed { missing } => {
                let ready = self.done(Err(AcquireError::closed()));
                queue.give_back(self.min - missing);
                ready
            }
        }
    }

    #[inline]
    fn done(&mut self, result: Result<usize, AcquireError>) -> Poll<Result<usize, AcquireError>> {
        self.stage = Stage::Done;
        Poll::Ready(result)
    }

    /// `queue` is the same as in every poll.
    #[inline]
    fn cancel(&mut self, queue: &Queue) {
        if let Stage::InLine(place) = self.stage {
            self.stage = Stage::Done;
            // SAFETY: we own the cell, and have just forgotten the place.
            unsafe { queue.cancel(place, self.min) };
        }
    }

    fn fmt(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            Stage::New => "new",
            Stage::InLine(_) => "in line",
            Stage::Done => "done",
        };
        f.debug_struct(name).field("permits", &self.min).field("stage", &stage).finish_non_exhaustive()
    }
}

/// The future of [`AsyncSemaphore::acquire`] and its kin.
#[must_use = "futures do nothing unless polled"]
pub struct Acquire<'a> {
    semaphore: &'a AsyncSemaphore,
    wait: Wait,
}

impl<'a> Acquire<'a> {
    #[track_caller]
    #[inline]
    pub(super) fn new(semaphore: &'a AsyncSemaphore, min: usize, max: usize) -> Self {
        Self { semaphore, wait: Wait::new(min, max) }
    }
}

impl<'a> Future for Acquire<'a> {
    type Output = Result<SemaphorePermit<'a>, AcquireError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let semaphore = self.semaphore;
        self.wait.poll(&semaphore.queue, context).map(|taken| Ok(SemaphorePermit::new(semaphore, taken?)))
    }
}

impl Drop for Acquire<'_> {
    #[inline]
    fn drop(&mut self) {
        self.wait.cancel(&self.semaphore.queue);
    }
}

impl fmt::Debug for Acquire<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wait.fmt("Acquire", f)
    }
}

/// The future of [`AsyncSemaphore::acquire_owned`] and its kin. It can be stored, without a box, and polled as
/// `Pin::new(&mut acquire).poll(context)`.
#[must_use = "futures do nothing unless polled"]
pub struct AcquireOwned {
    semaphore: Arc<AsyncSemaphore>,
    wait: Wait,
}

impl AcquireOwned {
    #[track_caller]
    #[inline]
    pub(super) fn new(semaphore: Arc<AsyncSemaphore>, min: usize, max: usize) -> Self {
        Self { semaphore, wait: Wait::new(min, max) }
    }
}

impl Future for AcquireOwned {
    type Output = Result<OwnedSemaphorePermit, AcquireError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        this.wait
            .poll(&this.semaphore.queue, context)
            .map(|taken| Ok(OwnedSemaphorePermit::new(Arc::clone(&this.semaphore), taken?)))
    }
}

impl Drop for AcquireOwned {
    #[inline]
    fn drop(&mut self) {
        self.wait.cancel(&self.semaphore.queue);
    }
}

impl fmt::Debug for AcquireOwned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wait.fmt("AcquireOwned", f)
    }
}

//! Acquire futures. Dropping a future cancels its wait.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::AsyncSemaphore;
use super::engine::{Ended, Engine, Enqueued, MAX_PERMITS, NewNode, OwnedNode, Refused, Taken};
use super::error::AcquireError;
use super::permit::{HeldPermits, OwnedSemaphorePermit, SemaphorePermit};

type Polled = Poll<Result<HeldPermits, AcquireError>>;

/// The wait of a borrowed or an owned future, which passes the semaphore to each call.
struct Wait {
    stage: Stage,
    min: usize,
    /// Further permits to take if free at the end of the wait.
    extra: usize,
}

enum Stage {
    /// Not polled yet: no position in the queue.
    New,
    Queued(OwnedNode),
    /// Result of a first poll beyond tokio's budget (`budget.rs`); `None` of a closed semaphore.
    #[cfg(feature = "tokio")]
    Kept(Option<HeldPermits>),
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

    /// `engine` is the same in every call.
    // Inlines only the path without a wait, so that callers can be inlined, too.
    #[inline]
    fn poll(&mut self, engine: &Engine, context: &mut Context<'_>) -> Polled {
        if !matches!(self.stage, Stage::New) {
            return self.poll_queued(engine, context);
        }
        if self.extra > 0 {
            return self.enqueue_closely(engine, context, true);
        }
        if engine.try_take_free(self.min) == Some(true) {
            return self.done(Ok(HeldPermits::new(self.min, Taken::Free)), context);
        }
        self.enqueue(engine, context)
    }

    #[inline(never)]
    fn enqueue(&mut self, engine: &Engine, context: &mut Context<'_>) -> Polled {
        if self.min == 0 || engine.seems_free(self.min) {
            return self.enqueue_closely(engine, context, true);
        }
        if !NewNode::is_spare() {
            return self.enqueue_closely(engine, context, false);
        }
        self.wait_in_queue(engine, context)
    }

    #[cold]
    #[inline(never)]
    fn enqueue_closely(&mut self, engine: &Engine, context: &mut Context<'_>, tries: bool) -> Polled {
        if tries {
            match engine.try_take_up_to(self.min, self.min + self.extra) {
                Ok(taken) => return self.done(Ok(HeldPermits::new(taken, Taken::Queued)), context),
                Err(Refused::Closed) => return self.done(Err(AcquireError::closed()), context),
                Err(Refused::NoPermits) => {}
            }
        }
        self.wait_in_queue(engine, context)
    }

    #[inline(always)]
    fn wait_in_queue(&mut self, engine: &Engine, context: &mut Context<'_>) -> Polled {
        match engine.publish(NewNode::waiting(self.min, context.waker())) {
            Ok(position) => self.look(engine, position),
            Err(node) => self.enqueue_node(engine, context, node),
        }
    }

    #[cold]
    #[inline(never)]
    fn enqueue_node(&mut self, engine: &Engine, context: &Context<'_>, node: NewNode) -> Polled {
        match engine.enqueue(node) {
            Enqueued::Taken => self.done(Ok(HeldPermits::new(self.min, Taken::Free)), context),
            Enqueued::Closed => self.done(Err(AcquireError::closed()), context),
            Enqueued::Waits(position) => self.look(engine, position),
        }
    }

    #[inline(always)]
    fn look(&mut self, engine: &Engine, position: OwnedNode) -> Polled {
        // From here on dropping this wait gives the position up, whatever panics.
        self.stage = Stage::Queued(position);
        if engine.look() { self.poll_closely(engine, position, None) } else { Poll::Pending }
    }

    #[inline(never)]
    fn poll_queued(&mut self, engine: &Engine, context: &mut Context<'_>) -> Polled {
        let Stage::Queued(position) = self.stage else { return self.poll_kept() };
        // SAFETY: we own the node, and forget the position once the wait has ended.
        match unsafe { engine.poll_granted(position) } {
            None => self.poll_closely(engine, position, Some(context.waker())),
            Some(false) if self.extra == 0 => {
                self.stage = Stage::Done;
                Poll::Ready(Ok(HeldPermits::new(self.min, Taken::Queued)))
            }
            Some(_) => self.ended(engine, Some(Ended::Granted)),
        }
    }

    /// Without `waker`, the waker of the last poll stays.
    #[cold]
    #[inline(never)]
    fn poll_closely(&mut self, engine: &Engine, position: OwnedNode, waker: Option<&Waker>) -> Polled {
        // SAFETY: we own the node, and forget the position once the wait has ended.
        let ended = unsafe { engine.poll(position, waker) };
        self.ended(engine, ended)
    }

    #[cold]
    #[inline(never)]
    fn ended(&mut self, engine: &Engine, ended: Option<Ended>) -> Polled {
        let Some(ended) = ended else { return Poll::Pending };
        self.stage = Stage::Done;
        Poll::Ready(match ended {
            Ended::Granted => {
                engine.sweep_if_due();
                Ok(HeldPermits::new(self.min + engine.take_free(self.extra, false), Taken::Queued))
            }
            Ended::Closed => Err(AcquireError::closed()),
        })
    }

    #[cold]
    fn poll_kept(&mut self) -> Polled {
        #[cfg(feature = "tokio")]
        if let Stage::Kept(held) = self.stage {
            self.stage = Stage::Done;
            return Poll::Ready(held.ok_or_else(AcquireError::closed));
        }
        panic!("an acquire future was polled after it had returned ready")
    }

    /// Ends the first poll; if tokio's budget is spent, keeps the result for the next poll.
    #[inline]
    fn done(&mut self, result: Result<HeldPermits, AcquireError>, context: &Context<'_>) -> Polled {
        #[cfg(feature = "tokio")]
        if !crate::support::budget::take_part() {
            self.stage = Stage::Kept(result.ok());
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let _ = context;
        self.stage = Stage::Done;
        Poll::Ready(result)
    }

    /// `engine` is the same as in every poll.
    #[inline]
    fn cancel(&mut self, engine: &Engine) {
        match self.stage {
            Stage::Queued(position) => self.cancel_queued(engine, position),
            #[cfg(feature = "tokio")]
            Stage::Kept(held) => {
                self.stage = Stage::Done;
                held.into_iter().for_each(|held| held.give_back(engine));
            }
            Stage::New | Stage::Done => {}
        }
    }

    #[inline(never)]
    fn cancel_queued(&mut self, engine: &Engine, position: OwnedNode) {
        self.stage = Stage::Done;
        // SAFETY: we own the node, and have just forgotten the position.
        unsafe { engine.cancel(position, self.min) };
    }

    fn fmt(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let stage = match self.stage {
            Stage::New => "new",
            Stage::Queued(_) => "queued",
            #[cfg(feature = "tokio")]
            Stage::Kept(_) => "granted",
            Stage::Done => "done",
        };
        f.debug_struct(name).field("permits", &self.min).field("stage", &stage).finish_non_exhaustive()
    }
}

/// The future of [`AsyncSemaphore::acquire`] and its kin.
///
/// # Examples
///
/// ```
/// use std::pin::Pin;
/// use std::task::{Context, Waker};
/// use latchwork::AsyncSemaphore;
///
/// let semaphore = AsyncSemaphore::new(0);
/// let mut acquire = semaphore.acquire();
/// let mut context = Context::from_waker(Waker::noop());
/// assert!(Pin::new(&mut acquire).poll(&mut context).is_pending());
/// assert_eq!(semaphore.waiters(), 1);
/// drop(acquire); // leaves the queue
/// assert_eq!(semaphore.waiters(), 0);
/// ```
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
        self.wait.poll(&semaphore.engine, context).map(|taken| Ok(SemaphorePermit::new(semaphore, taken?)))
    }
}

impl Drop for Acquire<'_> {
    #[inline]
    fn drop(&mut self) {
        self.wait.cancel(&self.semaphore.engine);
    }
}

impl fmt::Debug for Acquire<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wait.fmt("Acquire", f)
    }
}

/// The future of [`AsyncSemaphore::acquire_owned`] and its kin. A struct can store the future without a box,
/// and poll it by `Pin::new(&mut acquire).poll(context)`.
///
/// # Examples
///
/// ```
/// use std::pin::Pin;
/// use std::sync::Arc;
/// use std::task::{Context, Waker};
/// use latchwork::AsyncSemaphore;
/// use latchwork::semaphore::AcquireOwned;
///
/// struct Job {
///     turn: AcquireOwned,
/// }
///
/// let semaphore = Arc::new(AsyncSemaphore::new(0));
/// let mut job = Job { turn: Arc::clone(&semaphore).acquire_owned() };
/// let mut context = Context::from_waker(Waker::noop());
/// assert!(Pin::new(&mut job.turn).poll(&mut context).is_pending());
/// semaphore.add_permits(1);
/// assert!(Pin::new(&mut job.turn).poll(&mut context).is_ready());
/// ```
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
            .poll(&this.semaphore.engine, context)
            .map(|taken| Ok(OwnedSemaphorePermit::new(Arc::clone(&this.semaphore), taken?)))
    }
}

impl Drop for AcquireOwned {
    #[inline]
    fn drop(&mut self) {
        self.wait.cancel(&self.semaphore.engine);
    }
}

impl fmt::Debug for AcquireOwned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.wait.fmt("AcquireOwned", f)
    }
}

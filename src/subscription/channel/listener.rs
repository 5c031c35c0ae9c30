//! Callbacks that queue with the latch's waiters.
//!
//! A listener *is* a waiter on the latch: a wait future whose waker polls the future and runs the callback,
//! instead of waking a task. So it has its place in the queue, and leaves the queue when dropped.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use crate::latch::{Latch, NotificationFigures};
use crate::semaphore::{AcquireOwned, OwnedSemaphorePermit};
use crate::support::fault::fault;
use crate::support::foreign;
use crate::support::sync::Mutex;

type Callback = Box<dyn FnOnce() + Send>;

/// A callback queued for a message by [`Subscription::listen`](crate::subscription::Subscription::listen).
/// Dropping the listener takes the callback out of the queue, unless the callback has run.
///
/// # Examples
///
/// ```
/// use latchwork::local::LocalTransport;
/// use latchwork::subscription::{Message, Registry};
/// let registry = Registry::new(LocalTransport::default());
/// let subscription = registry.subscribe("orders");
/// let listener = subscription.listen(|| println!("a message came"));
/// assert!(!listener.has_run());
/// registry.transport().publish("orders", Message::Unlock);
/// assert!(listener.has_run());
/// ```
#[must_use = "dropping a listener takes its callback out of the line"]
pub struct Listener(Arc<Waiting>);

struct Waiting {
    stage: Mutex<Stage>,
    figures: Option<Arc<NotificationFigures>>,
}

enum Stage {
    /// A thread polls the future, with the mutex unlocked. A wake meanwhile sets `again`.
    Polling {
        again: bool,
    },
    InLine(AcquireOwned, Callback),
    /// A notification has come, and this thread runs the callback as soon as no other waker or callback runs.
    /// A message for all that came before the listener has no permit.
    Called(Option<OwnedSemaphorePermit>, Callback),
    Done,
}

impl Listener {
    pub(in crate::subscription) fn new(latch: &Latch, callback: Callback) -> Self {
        let stage = Mutex::new(Stage::Polling { again: false });
        let waiting = Arc::new(Waiting { stage, figures: latch.figures().cloned() });
        waiting.drive(latch.wait_owned(), callback);
        Self(waiting)
    }

    /// Calls the callback. False if a notification calls it.
    pub(in crate::subscription) fn call(&self) -> bool {
        let mut stage = self.0.stage.lock();
        match std::mem::replace(&mut *stage, Stage::Done) {
            Stage::InLine(call, callback) => {
                *stage = Stage::Called(None, callback);
                drop(stage);
                // Only after the mutex is free, as for `drive`.
                drop(call);
                foreign::wake(Some(Waker::from(Arc::clone(&self.0))));
                true
            }
            other => {
                *stage = other;
                false
            }
        }
    }

    /// True if the callback has run, or is just about to.
    pub fn has_run(&self) -> bool {
        matches!(*self.0.stage.lock(), Stage::Called(..) | Stage::Done)
    }
}

impl Waiting {
    /// Polls the future, and runs the callback once the future is ready. The caller has set `Polling`.
    fn drive(self: &Arc<Self>, mut call: AcquireOwned, callback: Callback) {
        let waker = Waker::from(Arc::clone(self));
        loop {
            // With the mutex unlocked: the poll may call this object's own `wake`.
            let polled = Pin::new(&mut call).poll(&mut Context::from_waker(&waker));
            let mut stage = self.stage.lock();
            match (&mut *stage, polled) {
                (Stage::Polling { again: again @ true }, Poll::Pending) if !fault!(NoPollAfterWake) => {
                    *again = false;
                }
                (Stage::Polling { .. }, Poll::Pending) => {
                    *stage = Stage::InLine(call, callback);
                    return;
                }
                (Stage::Polling { .. }, Poll::Ready(permit)) => {
                    let permit = permit.expect("a latch's semaphore is never closed");
                    *stage = Stage::Called(Some(permit), callback);
                    drop(stage);
                    // A callback inside of another one runs after the outer one: the stack does not grow.
                    return foreign::wake(Some(waker));
                }
                (Stage::Done, Poll::Ready(Ok(permit))) if fault!(CallDiesWithListener) => {
                    return permit.forget();
                }
                // The listener was dropped meanwhile. Dropping the future, or its permit, passes the
                // notification on to foreign wakers: only after the mutex is free.
                (_, polled) => {
                    drop(stage);
                    drop(polled);
                    return;
                }
            }
        }
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        let mut stage = self.stage.lock();
        match std::mem::replace(&mut *stage, Stage::Polling { again: true }) {
            Stage::InLine(call, callback) => {
                *stage = Stage::Polling { again: false };
                drop(stage);
                self.drive(call, callback);
            }
            Stage::Called(permit, callback) => {
                *stage = Stage::Done;
                drop(stage);
                if let Some(permit) = permit {
                    permit.forget();
                }
                if let Some(figures) = &self.figures {
                    figures.useful.add_one();
                }
                callback();
            }
            Stage::Polling { .. } => {}
            Stage::Done => *stage = Stage::Done,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let last = std::mem::replace(&mut *self.0.stage.lock(), Stage::Done);
        // Only after the mutex is free: dropping the future may wake another waiter, and run foreign code.
        drop(last);
    }
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener").field("has_run", &self.has_run()).finish()
    }
}

//! Calling wakers without recursion: a waker that releases has its own wakers called by the outermost call of its thread.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe};
use std::task::Waker;

thread_local! {
    /// Somebody further down this stack calls wakers.
    static CALLING: Cell<bool> = const { Cell::new(false) };
    /// What that one has to call as well.
    static DEFERRED: RefCell<VecDeque<Waker>> = const { RefCell::new(VecDeque::new()) };
}

/// Calls wakers, and what they defer; or leaves them to whoever calls wakers further down this stack.
pub(crate) fn wake(wakers: impl IntoIterator<Item = Waker>) {
    // A thread whose locals are being destroyed calls at once.
    if CALLING.try_with(|calling| calling.replace(true)).unwrap_or(false) {
        DEFERRED.with(|deferred| deferred.borrow_mut().extend(wakers));
        return;
    }
    let mut panicked = None;
    wakers.into_iter().for_each(|waker| call(waker, &mut panicked));
    call_deferred(&mut panicked);
    let _ = CALLING.try_with(|calling| calling.set(false));
    if let Some(payload) = panicked
        && !std::thread::panicking()
    {
        panic::resume_unwind(payload);
    }
}

/// Calls what was deferred on this thread: it is about to sleep inside of a waker.
#[cfg(feature = "lock")]
pub(crate) fn flush() {
    let mut panicked = None;
    call_deferred(&mut panicked);
    if let Some(payload) = panicked {
        panic::resume_unwind(payload);
    }
}

fn call_deferred(panicked: &mut Option<Box<dyn Any + Send>>) {
    let next = || DEFERRED.try_with(|deferred| deferred.borrow_mut().pop_front()).ok().flatten();
    while let Some(waker) = next() {
        call(waker, panicked);
    }
}

/// A waker is foreign code, and may panic: the others are called nevertheless.
fn call(waker: Waker, panicked: &mut Option<Box<dyn Any + Send>>) {
    if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(|| waker.wake())) {
        match panicked {
            None => *panicked = Some(payload),
            // Dropping it is foreign code once more.
            Some(_) => std::mem::forget(payload),
        }
    }
}

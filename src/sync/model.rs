//! What the models of loom and of shuttle have in common: stand-ins for the crates under the real thing.

use std::cell::Cell;

pub(crate) use super::kept::begin_execution;
use super::kept::keep;

#[cfg(latchwork_loom)]
use super::loom as checker;
#[cfg(latchwork_shuttle)]
use super::shuttle as checker;

/// Models have no clock.
pub(crate) fn block_on_until<F: Future>(future: F, _deadline: std::time::Instant) -> Option<F::Output> {
    Some(checker::block_on(future))
}

/// parking_lot's face (no poisoning) over the model checker's mutex.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(checker::PoisoningMutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(checker::PoisoningMutex::new(value))
    }

    pub(crate) fn lock(&self) -> checker::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Keeps a box, but only until the next execution of the model.
///
/// # Safety
/// `boxed` is from `Box::into_raw`, and nothing else frees it.
pub(crate) unsafe fn leak<T: 'static>(boxed: *mut T) -> &'static T {
    // SAFETY: it was a box. It is not touched as long as the reference below is in use.
    keep(unsafe { Box::from_raw(boxed) });
    // SAFETY: kept, and only shared references to it are made.
    unsafe { &*boxed }
}

checker::thread_cell!(AT_THREAD_EXIT: Cell<Option<fn()>> = Cell::new(None));

/// Models have no destructors of thread-locals that could use others: a thread of a model that ends calls
/// [`end_thread`], if that matters.
pub(crate) fn at_thread_exit(f: fn()) -> bool {
    AT_THREAD_EXIT.with(|exit| exit.set(Some(f)));
    true
}

/// Does what a real thread does at its end.
pub(crate) fn end_thread() {
    if let Some(f) = AT_THREAD_EXIT.with(Cell::take) {
        f();
    }
}

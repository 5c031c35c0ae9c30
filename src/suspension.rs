//! For `verify`'s `suspension` alone: where threads can be stopped, and what only this crate sees.

use std::cell::Cell;
use std::panic::Location;

use crate::semaphore::{self, AsyncSemaphore};

/// What is called before an access to what threads share, with its place in the sources.
pub type Hook = fn(&'static Location<'static>);

std::thread_local! {
    static HOOK: Cell<Option<Hook>> = const { Cell::new(None) };
}

/// From now on, `hook` is called before each access of this thread. It may block; it must not use what it is
/// called from.
pub fn before_each_access(hook: Option<Hook>) {
    HOOK.with(|cell| cell.set(hook));
}

/// Comes before each access.
#[track_caller]
pub fn access() {
    // At a thread's end there are no thread-locals any more, and it is not stopped either.
    if let Ok(Some(hook)) = HOOK.try_with(Cell::get) {
        hook(Location::caller());
    }
}

/// Wakers that an operation collects, at most, before it calls some.
pub const WAKE_BATCH: usize = semaphore::WAKE_BATCH;

/// A latch's semaphore.
pub fn latch() -> AsyncSemaphore {
    AsyncSemaphore::new_latch()
}

/// What [`Latch::release`](crate::latch::Latch::release) does to a latch's semaphore.
pub fn notify(latch: &AsyncSemaphore, n: usize) {
    latch.notify(n);
}

/// Takes permits out of existence, free or not: what [`AsyncSemaphore::set_capacity`] does when it lowers.
pub fn lower(semaphore: &AsyncSemaphore, n: usize) {
    semaphore.lower(n);
}

/// Waiters that have neither been granted their permits nor been refused. Changes nothing.
pub fn sleepers(semaphore: &AsyncSemaphore) -> usize {
    semaphore.sleepers()
}

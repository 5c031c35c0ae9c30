//! std's types with a hook before each access to shared memory, for `verify`'s `suspension`.

use std::cell::Cell;
use std::panic::Location;

pub(super) use super::std::atomic as checked;
pub(crate) use super::std::*;

use self::checked::Ordering;

/// An access to shared memory.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// Location of the access in the sources.
    pub place: &'static Location<'static>,
    /// Address of the accessed word; `None` for the call of a waker.
    pub word: Option<*const ()>,
    /// The method of an atomic, or `with_mut` of a cell.
    pub method: &'static str,
}

/// A function called before each access.
pub type Hook = fn(&Access);

std::thread_local! {
    static HOOK: Cell<Option<Hook>> = const { Cell::new(None) };
}

/// Sets this thread's hook, which may block but must not use the type under access.
pub fn before_each_access(hook: Option<Hook>) {
    HOOK.with(|cell| cell.set(hook));
}

#[track_caller]
fn access(word: Option<*const ()>, method: &'static str) {
    // At a thread's end its thread-locals are gone, and no test stops the thread.
    if let Ok(Some(hook)) = HOOK.try_with(Cell::get) {
        hook(&Access { place: Location::caller(), word, method });
    }
}

/// Calls the hook before a call of a waker, where a thread may stop, too.
#[track_caller]
pub fn wakes() {
    access(None, "wake");
}

#[track_caller]
pub(super) fn site<const PARTS: usize>(
    word: *const (),
    method: &'static str,
    orderings: [Ordering; PARTS],
) -> [Ordering; PARTS] {
    access(Some(word), method);
    orderings
}

/// std's cell, with the hook before each access.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(super::std::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(super::std::UnsafeCell::new(value))
    }

    #[track_caller]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        access(Some(std::ptr::from_ref(self).cast()), "with_mut");
        self.0.with_mut(f)
    }
}

//! std's, with a hook before each access to what threads share: there `verify`'s `suspension` stops threads,
//! and counts.

use std::cell::Cell;
use std::panic::Location;

pub(super) use super::std::atomic as checked;
pub(crate) use super::std::*;

use self::checked::Ordering;

/// An access to what threads share.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    /// In the sources.
    pub place: &'static Location<'static>,
    /// Its address; of a waker that is called, none.
    pub word: Option<*const ()>,
    /// A method of an atomic, or `with_mut` of a cell.
    pub method: &'static str,
}

/// What is called before an access.
pub type Hook = fn(&Access);

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
fn access(word: Option<*const ()>, method: &'static str) {
    // At a thread's end there are no thread-locals any more, and it is not stopped either.
    if let Ok(Some(hook)) = HOOK.try_with(Cell::get) {
        hook(&Access { place: Location::caller(), word, method });
    }
}

/// Comes before a waker is called, which may stop as well.
#[track_caller]
pub fn wakes() {
    access(None, "wake");
}

/// Comes before each access of an atomic.
#[track_caller]
pub(super) fn site<const PARTS: usize>(
    word: *const (),
    method: &'static str,
    orderings: [Ordering; PARTS],
) -> [Ordering; PARTS] {
    access(Some(word), method);
    orderings
}

/// With the hook before what is done in the cell.
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

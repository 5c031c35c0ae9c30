//! Under shuttle: random schedules of models that are too large for loom. Every atomic is sequentially
//! consistent, whatever ordering it asks for.

use self::atomic::{AtomicBool, Ordering};

pub(crate) use shuttle::future::block_on;
pub(super) use shuttle::sync::Mutex as PoisoningMutex;
pub(super) use shuttle::sync::MutexGuard;

pub(crate) mod atomic {
    pub(crate) use shuttle::sync::atomic::{
        AtomicBool, AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    };
}

macro_rules! thread_cell {
    ($name:ident: $type:ty = $init:expr) => {
        shuttle::thread_local! {
            static $name: $type = $init;
        }
    };
}
pub(crate) use thread_cell;

macro_rules! shared_static {
    ($name:ident: $type:ty = $init:expr) => {
        shuttle::lazy_static! {
            static ref $name: $type = $init;
        }
    };
}
pub(crate) use shared_static;

macro_rules! maybe_const {
    (impl $type:ty {
        $(#[$meta:meta])*
        $visibility:vis fn $name:ident($($argument:ident: $of:ty),*) -> Self $body:block
    }) => {
        impl $type {
            $(#[$meta])*
            $visibility const fn $name($($argument: $of),*) -> Self $body
        }
    };
}
pub(crate) use maybe_const;

/// Freed memory is given back in this model, so that AddressSanitizer sees a late access.
#[derive(Debug)]
pub(crate) struct Canary;

impl Canary {
    pub(crate) const fn new() -> Self {
        Self
    }

    pub(crate) fn assert_alive(&self) {}
}

pub(crate) fn bury<T: 'static>(dead: Box<T>, _canary: impl FnOnce(&T) -> &Canary) {
    drop(dead);
}

/// Sees to it that no two threads are inside at once: in this model, that is all that a data race can be.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T> {
    value: std::cell::UnsafeCell<T>,
    /// An atomic of the model's, so that others get a chance to come inside.
    occupied: AtomicBool,
}

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { value: std::cell::UnsafeCell::new(value), occupied: AtomicBool::new(false) }
    }

    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        /// Leaves also when what is done inside panics.
        struct Inside<'a>(&'a AtomicBool);

        impl Drop for Inside<'_> {
            fn drop(&mut self) {
                // Ordering: they are all SeqCst here.
                self.0.store(false, Ordering::SeqCst);
            }
        }

        // Ordering: as above.
        assert!(!self.occupied.swap(true, Ordering::SeqCst), "two threads in one cell");
        let _inside = Inside(&self.occupied);
        f(self.value.get())
    }
}

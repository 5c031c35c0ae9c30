//! Types for loom: every interleaving, with the memory model's freedoms.

mod sites;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::sync::PoisonError;

use loom::alloc::Track;
use loom::sync::MutexGuard;

pub(crate) use loom::cell::UnsafeCell;
pub(crate) use loom::future::block_on;
pub(super) use loom::sync::atomic as checked;

pub(super) use self::sites::site;

macro_rules! thread_cell {
    ($name:ident: $type:ty = $init:expr) => {
        loom::thread_local! {
            static $name: $type = $init;
        }
    };
}
pub(crate) use thread_cell;

macro_rules! shared_static {
    ($name:ident: $type:ty = $init:expr) => {
        loom::lazy_static! {
            static ref $name: $type = $init;
        }
    };
}
pub(crate) use shared_static;

/// Not `const`, as loom's atomics cannot be made in a const.
macro_rules! maybe_const {
    (impl $type:ty {
        $(#[$meta:meta])*
        $visibility:vis fn $name:ident($($argument:ident: $of:ty),*) -> Self $body:block
    }) => {
        impl $type {
            $(#[$meta])*
            $visibility fn $name($($argument: $of),*) -> Self $body
        }
    };
}
pub(crate) use maybe_const;

/// `std.rs`'s `Lazy`, with its value made at the start.
pub(crate) struct Lazy<T>(T);

impl<T> Lazy<T> {
    pub(crate) fn new(make: fn() -> T) -> Self {
        Self(make())
    }

    pub(crate) fn of(value: T) -> Self {
        Self(value)
    }
}

impl<T> std::ops::Deref for Lazy<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Detects leaks, reads of a freed owner, and, as plain memory to loom, reads not ordered before the free.
#[derive(Debug)]
pub(crate) struct Canary {
    is_alive: UnsafeCell<bool>,
    /// loom reports a tracker not dropped by the end of an execution.
    leak: RefCell<Option<Track<()>>>,
}

// SAFETY: all threads of a model run on one real thread; loom reports races.
unsafe impl Sync for Canary {}

impl Canary {
    pub(crate) fn new() -> Self {
        Self { is_alive: UnsafeCell::new(true), leak: RefCell::new(Some(Track::new(()))) }
    }

    #[track_caller]
    pub(crate) fn assert_alive(&self) {
        // SAFETY: there is no concurrent writer, or loom panics.
        assert!(self.is_alive.with(|alive| unsafe { *alive }), "read after it was freed");
    }
}

/// Frees `dead` in the model. The memory stays, so a late reader meets the canary.
pub(crate) fn bury<T: 'static>(dead: Box<T>, canary: impl FnOnce(&T) -> &Canary) {
    let canary = canary(&dead);
    // SAFETY: as in `assert_alive`.
    canary.is_alive.with_mut(|alive| unsafe { *alive = false });
    canary.leak.take();
    let dead = Box::into_raw(dead).cast::<std::mem::ManuallyDrop<T>>();
    // The value is never dropped: its drop would run in another execution.
    // SAFETY: the same layout, and the pointer is from a box.
    keep(unsafe { Box::from_raw(dead) });
}

// Shared by a model's threads, which run on one real thread; std's, so it adds no order to the model.
std::thread_local! {
    static KEPT: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// Keeps `value` until the end of this execution of the model.
fn keep<T: 'static>(value: Box<T>) {
    KEPT.with_borrow_mut(|kept| kept.push(value));
}

pub(crate) fn begin_execution() {
    drop(KEPT.take());
}

/// Models have no clock: ignores the deadline.
pub(crate) fn block_on_until<F: Future>(
    future: F,
    _deadline: Option<std::time::Instant>,
) -> Option<F::Output> {
    Some(block_on(future))
}

/// parking_lot's interface (no poisoning) over the model checker's mutex.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(loom::sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps a box until the next execution of the model.
///
/// # Safety
/// `boxed` is from `Box::into_raw`, and nothing else frees it.
pub(crate) unsafe fn leak<T: 'static>(boxed: *mut T) -> &'static T {
    // SAFETY: from a box, not touched while the reference below is in use.
    keep(unsafe { Box::from_raw(boxed) });
    // SAFETY: kept; only shared references to the value are made.
    unsafe { &*boxed }
}

thread_cell!(AT_THREAD_EXIT: Cell<Option<fn()>> = Cell::new(None));

/// A model's thread calls [`end_thread`] at its end: thread-locals' destructors cannot use others in models.
pub(crate) fn at_thread_exit(f: fn()) -> bool {
    AT_THREAD_EXIT.with(|exit| exit.set(Some(f)));
    true
}

pub(crate) fn end_thread() {
    if let Some(f) = AT_THREAD_EXIT.with(Cell::take) {
        f();
    }
}

//! Under loom: every interleaving, with the memory model's freedoms.

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

/// loom's atomics cannot be made in a const.
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

/// The `Lazy` of `std.rs`, whose value is there from the start.
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

/// Tells whether what it is part of was freed, and whether all reads of that happen before; and whether it
/// never is.
///
/// It is plain memory to loom, read by all readers and written by the thread that frees: so loom also reports
/// a read that is over, but not ordered before the end.
#[derive(Debug)]
pub(crate) struct Canary {
    is_alive: UnsafeCell<bool>,
    /// loom reports at the end of an execution if this was not dropped.
    leak: RefCell<Option<Track<()>>>,
}

// SAFETY: all threads of a model run on one real thread; loom reports accesses that real threads must not
// make.
unsafe impl Sync for Canary {}

impl Canary {
    pub(crate) fn new() -> Self {
        Self { is_alive: UnsafeCell::new(true), leak: RefCell::new(Some(Track::new(()))) }
    }

    #[track_caller]
    pub(crate) fn assert_alive(&self) {
        // SAFETY: there is no writer meanwhile, or loom panics.
        assert!(self.is_alive.with(|alive| unsafe { *alive }), "read after it was freed");
    }
}

/// Frees `dead` in the eyes of the model. Its memory stays, so that a late reader meets the canary.
pub(crate) fn bury<T: 'static>(dead: Box<T>, canary: impl FnOnce(&T) -> &Canary) {
    let canary = canary(&dead);
    // SAFETY: as in `assert_alive`.
    canary.is_alive.with_mut(|alive| unsafe { *alive = false });
    canary.leak.take();
    let dead = Box::into_raw(dead).cast::<std::mem::ManuallyDrop<T>>();
    // Not dropped, as that would be in another execution.
    // SAFETY: the same layout, and it was a box's.
    keep(unsafe { Box::from_raw(dead) });
}

// A model's threads all run on one real thread, so this is shared by them. It is std's, which the model
// checker does not see, so it adds no order between them.
std::thread_local! {
    static KEPT: RefCell<Vec<Box<dyn Any>>> = const { RefCell::new(Vec::new()) };
}

/// Not freed as long as this execution of the model lasts.
fn keep<T: 'static>(value: Box<T>) {
    KEPT.with_borrow_mut(|kept| kept.push(value));
}

/// Every execution of a model begins with this.
pub(crate) fn begin_execution() {
    drop(KEPT.take());
}

/// Models have no clock.
pub(crate) fn block_on_until<F: Future>(future: F, _deadline: std::time::Instant) -> Option<F::Output> {
    Some(block_on(future))
}

/// parking_lot's face (no poisoning) over the model checker's mutex.
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

thread_cell!(AT_THREAD_EXIT: Cell<Option<fn()>> = Cell::new(None));

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

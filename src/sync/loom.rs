//! Under loom: every interleaving, with the memory model's freedoms.

pub(crate) mod atomic;
mod sites;

use std::cell::RefCell;

use loom::alloc::Track;

pub(crate) use loom::cell::UnsafeCell;
pub(crate) use loom::future::block_on;
pub(super) use loom::sync::Mutex as PoisoningMutex;
pub(super) use loom::sync::MutexGuard;

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
    super::kept::keep(unsafe { Box::from_raw(dead) });
}

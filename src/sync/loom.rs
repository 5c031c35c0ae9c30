//! Under loom: every interleaving, with the memory model's freedoms.

pub(crate) use loom::cell::UnsafeCell;
pub(crate) use loom::future::block_on;
pub(crate) use loom::hint::spin_loop;
pub(crate) use loom::sync::Arc;
pub(super) use loom::sync::Mutex as PoisoningMutex;
pub(super) use loom::sync::MutexGuard;

pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{
        AtomicBool, AtomicI32, AtomicIsize, AtomicPtr, AtomicU32, AtomicUsize, Ordering,
    };
}

macro_rules! thread_cell {
    ($name:ident: $type:ty = $init:expr) => {
        loom::thread_local! {
            static $name: $type = $init;
        }
    };
}
pub(crate) use thread_cell;

/// loom takes SeqCst loads and stores for Acquire and Release, and would report a store buffering that SeqCst forbids.
pub(crate) fn seq_cst_for_loom() {
    if !crate::fault::fault!(NoCommonOrder) {
        // Ordering: SeqCst, the one order that the real accesses have by themselves.
        loom::sync::atomic::fence(atomic::Ordering::SeqCst);
    }
}

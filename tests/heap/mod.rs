//! Counts heap use of the whole process, so each including binary runs its tests alone.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

struct Counting;

static IN_USE: AtomicIsize = AtomicIsize::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: forwards every call unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Ordering: Relaxed, only a counter.
        IN_USE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // Ordering: Relaxed, as above.
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // Ordering: Relaxed, as above.
        IN_USE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns the bytes in use.
pub(crate) fn in_use() -> isize {
    // Ordering: Relaxed; the caller has joined the threads under test.
    IN_USE.load(Ordering::Relaxed)
}

pub(crate) fn allocations() -> usize {
    // Ordering: Relaxed, as above.
    ALLOCATIONS.load(Ordering::Relaxed)
}

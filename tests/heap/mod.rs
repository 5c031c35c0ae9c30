//! What is in use of the heap, by an allocator that counts. The count is for all threads, so a binary that
//! includes this runs by itself.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, AtomicUsize, Ordering};

struct Counting;

static IN_USE: AtomicIsize = AtomicIsize::new(0);
static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: all is passed on to the system's allocator, unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Ordering: Relaxed, figures to look at.
        IN_USE.fetch_add(layout.size() as isize, Ordering::Relaxed);
        // Ordering: as above.
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // Ordering: as above.
        IN_USE.fetch_sub(layout.size() as isize, Ordering::Relaxed);
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes.
pub(crate) fn in_use() -> isize {
    // Ordering: Relaxed; the asking thread has joined the threads that it asks about.
    IN_USE.load(Ordering::Relaxed)
}

/// Since the beginning.
pub(crate) fn allocations() -> usize {
    // Ordering: as above.
    ALLOCATIONS.load(Ordering::Relaxed)
}

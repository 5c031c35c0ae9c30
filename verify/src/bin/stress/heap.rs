//! What is in use of the heap, by an allocator that counts.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering};

use latchwork::AsyncSemaphore;
use verify::Bell;

/// What the epoch scheme may hold back; and nothing to what is lost if a piece of each round is.
pub(crate) const SLACK: isize = 128 * 1024;

struct Counting;

static IN_USE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: all is passed on to the system's allocator, unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // Ordering: Relaxed, a sum that is looked at by one thread.
        IN_USE.fetch_add(layout.size() as isize, Ordering::Relaxed);
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

/// Bytes in use once all has been freed that was retired. No other thread is there.
pub(crate) fn settled() -> isize {
    // Each wait pins, and now and then a pin frees what others have retired.
    let semaphore = AsyncSemaphore::new(0);
    let bell = Bell::new();
    for _ in 0..100_000 {
        assert!(bell.poll(&mut semaphore.acquire()).is_pending());
    }
    drop(semaphore);
    // Ordering: Relaxed, the only thread.
    IN_USE.load(Ordering::Relaxed)
}

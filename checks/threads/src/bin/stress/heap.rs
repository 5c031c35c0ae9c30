//! What is in use of the heap, by an allocator that counts.

#[allow(dead_code, reason = "what the memory tests count, too: how often something was allocated")]
#[path = "../../../../../tests/heap/mod.rs"]
mod counting;

use latchwork::AsyncSemaphore;
use threads::Bell;

/// What threads may keep for later waiters; and nothing to what is lost if a piece of each round is.
pub(crate) const SLACK: isize = 128 * 1024;

/// Bytes in use once all has been freed that was retired. No other thread is there.
pub(crate) fn settled() -> isize {
    // Records and what this thread keeps are made once.
    let semaphore = AsyncSemaphore::new(0);
    let bell = Bell::new();
    for _ in 0..100_000 {
        assert!(bell.poll(&mut semaphore.acquire()).is_pending());
    }
    drop(semaphore);
    counting::in_use()
}

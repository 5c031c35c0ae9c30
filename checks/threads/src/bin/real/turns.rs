//! Turns at a single permit, which protects plain memory.

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::task::Poll;
use std::thread;

use latchwork::AsyncSemaphore;
use threads::Bell;

use threads::spin_until;

const TURNS: u64 = 512;

struct Shared {
    semaphore: AsyncSemaphore,
    taken: UnsafeCell<u64>,
}

// SAFETY: only the permit's holder touches the number; the semaphore's exclusion is under test.
unsafe impl Sync for Shared {}

/// Each thread takes its turns; returns their number. Fails if a thread sleeps for ever.
pub(crate) fn batch(threads: usize, permits: usize) -> Result<u64, String> {
    let shared = Arc::new(Shared { semaphore: AsyncSemaphore::new(permits), taken: UnsafeCell::new(0) });
    let players: Vec<_> = (0..threads)
        .map(|_| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || play(&shared))
        })
        .collect();
    let mut bells = Vec::with_capacity(threads);
    for player in players {
        bells.push(player.join().map_err(|_| "a thread has panicked")??);
    }
    // Not before all threads have ended: a thread that rings a bell keeps a clone a moment longer.
    let copies: usize = bells.iter().map(Bell::copies).sum();
    if copies > 0 {
        return Err(format!("{copies} copies of wakers were left behind"));
    }
    let all = threads as u64 * TURNS;
    // SAFETY: the other threads have ended.
    let taken = unsafe { *shared.taken.get() };
    if taken == all { Ok(all) } else { Err(format!("{all} turns were taken, and {taken} are counted")) }
}

fn play(shared: &Shared) -> Result<Bell, String> {
    let bell = Bell::new();
    for _ in 0..TURNS {
        let mut waiter = shared.semaphore.acquire();
        let permit = loop {
            bell.silence();
            match bell.poll(&mut waiter) {
                Poll::Ready(permit) => break permit.map_err(|closed| closed.to_string())?,
                Poll::Pending => spin_until(|| bell.is_rung())
                    .map_err(|wrong| format!("asleep, {wrong}: {:?}", shared.semaphore))?,
            }
        };
        // SAFETY: we hold the one permit.
        unsafe { *shared.taken.get() += 1 };
        drop(permit);
    }
    Ok(bell)
}

//! Crowds come and give up while permits go by: nodes are removed and freed under walking threads.

use std::sync::Arc;
use std::thread;

use latchwork::AsyncSemaphore;
use threads::Bell;

/// Waiters of a crowd: enough for a sweep.
const CROWD: usize = 48;
const CROWDS: usize = 100;

/// Some threads bring the crowds, and one the permits; returns the number of waiters. Fails on leftovers.
pub(crate) fn batch(threads: usize) -> Result<u64, String> {
    let semaphore = Arc::new(AsyncSemaphore::new(0));
    let bell = Bell::new();
    let play = |thread| {
        let (semaphore, bell) = (Arc::clone(&semaphore), bell.clone());
        thread::spawn(move || if thread == 0 { serve(&semaphore) } else { come_and_go(&semaphore, &bell) })
    };
    let players: Vec<_> = (0..threads).map(play).collect();
    for player in players {
        player.join().map_err(|_| "a thread has panicked")?;
    }
    let (free, waiters) = (semaphore.available_permits(), semaphore.waiters());
    if (free, waiters) != (semaphore.capacity(), 0) || bell.copies() > 0 {
        return Err(format!("{} copies of wakers are left behind, and {semaphore:?}", bell.copies()));
    }
    Ok(((threads - 1) * CROWD * CROWDS) as u64)
}

fn come_and_go(semaphore: &AsyncSemaphore, bell: &Bell) {
    for _ in 0..CROWDS {
        let mut crowd: Vec<_> = (0..CROWD).map(|_| semaphore.acquire()).collect();
        for waiter in &mut crowd {
            drop(bell.poll(waiter));
        }
    }
}

fn serve(semaphore: &AsyncSemaphore) {
    for _ in 0..CROWDS * CROWD / 8 {
        semaphore.add_permits(1);
        std::hint::black_box(semaphore.waiters());
        // Otherwise no waiter would have to wait.
        semaphore.forget_permits(1);
    }
}

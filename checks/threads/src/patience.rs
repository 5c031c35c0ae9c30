//! Waiting for another thread without std's help, with a time limit.

use std::thread;
use std::time::{Duration, Instant};

/// Longer than a thread is ever suspended.
const LIMIT: Duration = Duration::from_secs(10);

/// Spins until `done` returns true. Fails if the time limit is over.
pub fn spin_until(done: impl Fn() -> bool) -> Result<(), String> {
    let mut until = None;
    for spins in 1_u32.. {
        if done() {
            return Ok(());
        }
        if spins < 256 {
            std::hint::spin_loop();
            continue;
        }
        // Threads may outnumber cores.
        thread::yield_now();
        if spins.is_multiple_of(256) && Instant::now() > *until.get_or_insert_with(|| Instant::now() + LIMIT)
        {
            break;
        }
    }
    Err(format!("nothing has happened for {LIMIT:?}"))
}

//! Waiting for another thread without std's help, and without waiting for ever.

use std::thread;
use std::time::{Duration, Instant};

/// Longer than any thread is ever suspended.
const LIMIT: Duration = Duration::from_secs(10);

/// Until `done`.
///
/// # Errors
///
/// If it never is.
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
        // There may be more threads than cores.
        thread::yield_now();
        if spins.is_multiple_of(256) && Instant::now() > *until.get_or_insert_with(|| Instant::now() + LIMIT)
        {
            break;
        }
    }
    Err(format!("nothing has happened for {LIMIT:?}"))
}

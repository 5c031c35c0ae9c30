//! Threads without a runtime: the locks and the semaphore for code without async.
//!
//! ```sh
//! cargo run -p recipes --bin threads
//! # in a package of your own:
//! cargo add latchwork --features redis
//! ```
//!
//! The client has one thread in the background for its connections, and all functions of the async one except
//! `run`: a thread cannot be made to drop its work, and checks `Guard::is_held` between its steps.

use std::env;
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use latchwork::AsyncSemaphore;
use latchwork::blocking::LockClient;

const THREADS: usize = 4;
const TURNS: usize = 25;

fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    // In tests, or within one process: LockClient::local().
    let client = LockClient::connect(&url)?;
    let lock = client.get_lock("recipes:threads")?;

    // A number that is read and written in two steps, which only the lock makes atomic.
    let number = AtomicUsize::new(0);
    let work = || -> Result<(), latchwork::LockError> {
        for _ in 0..TURNS {
            let guard = lock.lock()?;
            let seen = number.load(Ordering::SeqCst);
            thread::yield_now();
            number.store(seen + 1, Ordering::SeqCst);
            // Long work checks now and then for the loss of the lock.
            if !guard.is_held() {
                break;
            }
            guard.unlock()?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread panicked"))
    })?;
    assert_eq!(number.into_inner(), THREADS * TURNS);

    // With a time limit: `None` if another owner has the lock all the time.
    let guard = lock.lock()?;
    assert!(lock.try_lock_for(Duration::from_millis(50), Duration::from_secs(10))?.is_none());
    // A loss ends this wait early; the work checks for it between its steps.
    assert_eq!(guard.lost_timeout(Duration::from_millis(50)), None);
    drop(guard);

    // At most two threads or tasks at a time: both kinds wait in one queue.
    let limit = AsyncSemaphore::new(2);
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let _permit = limit.blocking_acquire().expect("nothing closes it");
                most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                thread::yield_now();
                inside.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    assert!(most.into_inner() <= 2);

    // Waits for the release of the dropped guard, which may be in flight.
    client.shutdown(Duration::from_secs(5))?;
    println!("{THREADS} threads took the lock {TURNS} times each, and no step was lost");
    Ok(())
}

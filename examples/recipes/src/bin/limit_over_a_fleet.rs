//! A limit over a fleet: at most three calls of a partner's API at a time, whichever process makes them.
//!
//! ```sh
//! cargo run -p recipes --bin limit_over_a_fleet
//! # in a package of your own:
//! cargo add latchwork --features redis
//! cargo add tokio --features full
//! ```

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use latchwork::redis::Redis;
use latchwork::{LockClient, LockError, NamedSemaphore};

const LIMIT: u32 = 3;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let mut processes = Vec::new();
    for _ in 0..4 {
        // A client for each, as if in a process of its own.
        let client = LockClient::new(Redis::connect(&url).await?);
        let calls = client.get_semaphore("recipes:partner-api", LIMIT)?;
        let (running, most) = (Arc::clone(&running), Arc::clone(&most));
        processes.push(tokio::spawn(async move {
            for _ in 0..10 {
                call(&calls, &running, &most).await?;
            }
            // Waits for releases that may be in flight.
            client.shutdown(Duration::from_secs(5)).await?;
            Ok::<(), LockError>(())
        }));
    }
    for process in processes {
        process.await??;
    }
    assert_eq!(most.load(SeqCst), LIMIT);
    println!("40 calls, and never more than {LIMIT} at a time");
    Ok(())
}

/// Calls the partner's API with a permit. The call is dropped if the permit is lost.
async fn call(calls: &NamedSemaphore, running: &AtomicU32, most: &AtomicU32) -> Result<(), LockError> {
    let work = async {
        most.fetch_max(running.fetch_add(1, SeqCst) + 1, SeqCst);
        tokio::time::sleep(Duration::from_millis(5)).await;
        running.fetch_sub(1, SeqCst);
    };
    calls.run(work).await
}

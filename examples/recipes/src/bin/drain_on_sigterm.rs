//! A worker that is told to end: it takes no new jobs, finishes those begun, and gives every lock back.
//!
//! ```sh
//! cargo run -p recipes --bin drain_on_sigterm &
//! kill -TERM $!
//! # in a package of your own:
//! cargo add latchwork --features redis
//! cargo add tokio --features full
//! ```
//!
//! `tests/recipes/drain_on_sigterm.rs` sends the signal in the middle of a job.

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use latchwork::redis::Redis;
use latchwork::{AsyncSemaphore, LockClient, LockError};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

/// An orchestrator waits 10 to 30 s between SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(8);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    let client = LockClient::new(Redis::connect(&url).await?);
    // At most four jobs at a time in this process.
    let jobs = Arc::new(AsyncSemaphore::new(4));

    let mut terminate = signal(SignalKind::terminate())?;
    let begins = async {
        for number in 0.. {
            // An error once the semaphore is closed.
            let Ok(permit) = Arc::clone(&jobs).acquire_owned().await else { break };
            let client = client.clone();
            tokio::spawn(async move {
                match job(&client, number).await {
                    Ok(()) => println!("job {number} is done"),
                    Err(error) => println!("job {number}: {error}"),
                }
                drop(permit);
            });
        }
    };
    tokio::select! {
        () = begins => {}
        _ = terminate.recv() => println!("draining"),
    }
    // No new job begins, and those begun have their whole grace to end. Then the locks of jobs that did not
    // end are named, and the process ends: the leases of these locks end by themselves.
    let drained = tokio::time::timeout(GRACE, jobs.drain()).await.is_ok();
    println!("{}", if drained { "all jobs are done" } else { "some jobs did not end" });
    client.drain(Duration::from_secs(1)).await?;
    println!("all locks are free");
    Ok(())
}

/// Works on one of two accounts, each in one process at a time.
async fn job(client: &LockClient, number: u32) -> Result<(), LockError> {
    let account = client.get_lock(&format!("recipes:account:{}", number % 2))?;
    account.run(sleep(Duration::from_millis(300))).await
}

//! A job in one process at a time: aborted if the lock is lost, and clean on Ctrl-C, SIGTERM and at the end
//! of `main`.
//!
//! ```sh
//! cargo run -p recipes --bin one_process -- 50                                   # its steps, 100 ms each
//! REDIS_URL=redis://127.0.0.1 cargo run -p recipes --bin one_process -- 50       # in two terminals
//! # in a package of your own:
//! cargo add latchwork --features redis
//! cargo add tokio --features full
//! ```
//!
//! `tests/recipes/one_process.rs` runs it in processes that are stopped, ended and robbed of the lock.

use std::env;
use std::error::Error;
use std::time::Duration;

use latchwork::redis::Redis;
use latchwork::{LockClient, LockError, LockOptions};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let steps = env::args().nth(1).map_or(Ok(10), |steps| steps.parse())?;
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    let options = LockOptions::default()
        // When this process is killed, the next one begins at most this much later. A process that is paused,
        // or cut off from Redis, for longer loses the lock.
        .watchdog_timeout(Duration::from_secs(6))
        // `Lock::holder` returns this label.
        .label(&format!("pid {}", std::process::id()));
    let client = LockClient::with_options(Redis::connect(&url).await?, &options)?;

    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let outcome = tokio::select! {
        outcome = one_at_a_time(&client, steps) => outcome,
        // The job is dropped at its current `await`, and the guard with it.
        _ = interrupt.recv() => Ok(()),
        _ = terminate.recv() => Ok(()),
    };
    // The guard's release is in flight in the background. Without this the runtime's end would cut it off,
    // and the next process would wait for the lease to expire.
    client.shutdown(Duration::from_secs(5)).await?;
    println!("the lock is free");
    Ok(outcome?)
}

/// Runs the job to its end, in this process, after the job of any other process.
async fn one_at_a_time(client: &LockClient, steps: u32) -> Result<(), LockError> {
    let lock = client.get_lock("recipes:one_process")?;
    loop {
        match lock.run(job(steps)).await {
            // The job was dropped at its current `await`. Another process may have the lock by now, so this
            // one waits for the lock again, and starts over.
            Err(LockError::Lost { reason, .. }) => println!("aborted: {reason}"),
            Err(error) if error.is_retryable() => {
                println!("{error}");
                sleep(Duration::from_secs(1)).await;
            }
            outcome => return outcome,
        }
    }
}

/// The work. It can be dropped at any `await`, as by a crash: its partial results must not hinder the next
/// run. Tasks and threads that it spawns would go on without the lock.
async fn job(steps: u32) {
    println!("begun");
    for _ in 0..steps {
        sleep(Duration::from_millis(100)).await;
    }
    println!("done");
}

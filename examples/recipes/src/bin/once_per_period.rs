//! A job that a fleet does once per period, as cron does on one machine: the process that has done the job
//! keeps the lock until the period is over.
//!
//! ```sh
//! cargo run -p recipes --bin once_per_period
//! # in a package of your own:
//! cargo add latchwork --features redis
//! cargo add tokio --features full
//! ```
//!
//! While the job runs, the client renews the lock: if the process dies, another process of the fleet does the
//! job 30 s later. A job that fails releases the lock, and the next process tries. A job that may never run
//! twice also needs a store that remembers done jobs, as in `job_queue`.

use std::env;
use std::error::Error;
use std::time::{Duration, SystemTime};

use latchwork::redis::Redis;
use latchwork::{LockClient, LockError};

/// A day, in production.
const PERIOD: Duration = Duration::from_secs(3);

/// Runs `job`, unless a process of the fleet does or has done it in this period. Returns true if the job ran.
async fn once_per_period<E: From<LockError>>(
    locks: &LockClient,
    name: &str,
    job: impl Future<Output = Result<(), E>>,
) -> Result<bool, E> {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let period = now.as_millis() / PERIOD.as_millis();
    // A name for each period: clocks of the fleet may differ by less than a period.
    let lock = locks.get_lock(&format!("{name}:{period}"))?;
    let Some(mut guard) = lock.try_lock().await? else { return Ok(false) };
    tokio::select! {
        // A loss first: see `select_lost`.
        biased;
        _ = guard.lost() => return Ok(false),
        done = job => done?,
    }
    // The job is done: the lock stays for the others until their clocks, too, are in the next period.
    guard.extend(2 * PERIOD).await?;
    guard.forget();
    Ok(true)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    let mut fleet = Vec::new();
    for process in 0..3 {
        // A client for each, as if in a process of its own.
        let client = LockClient::new(Redis::connect(&url).await?);
        fleet.push(tokio::spawn(async move {
            let mut reports = Vec::new();
            let end = tokio::time::Instant::now() + PERIOD;
            while tokio::time::Instant::now() < end {
                let report = async {
                    println!("process {process} writes the report");
                    Ok::<(), LockError>(())
                };
                if once_per_period(&client, "recipes:report", report).await? {
                    reports.push(process);
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            client.shutdown(Duration::from_secs(5)).await?;
            Ok::<_, LockError>(reports.len())
        }));
    }
    let mut reports = 0;
    for process in fleet {
        reports += process.await??;
    }
    // A run of one period touches one or two periods, and a third if the machine is slow.
    assert!((1..=3).contains(&reports), "{reports}");
    println!("three processes, 90 tries, and {reports} reports");
    Ok(())
}

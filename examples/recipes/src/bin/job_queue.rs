//! A queue that may deliver a job twice, and an effect that happens once: the lock keeps two workers from
//! doing the same job at a time, and the store remembers the jobs that are done.
//!
//! ```sh
//! cargo run -p recipes --bin job_queue
//! # in a package of your own:
//! cargo add latchwork --features redis
//! cargo add tokio --features full
//! cargo add rusqlite --features bundled
//! ```
//!
//! The lock alone is not enough: the second delivery may come after the release. The store alone would be
//! enough, but two workers would do the work, and one of them in vain.

use std::env;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use latchwork::LockClient;
use latchwork::redis::Redis;
use rusqlite::{Connection, params};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const SCHEMA: &str = "
    CREATE TABLE done (job INTEGER PRIMARY KEY) STRICT;
    CREATE TABLE account (balance INTEGER NOT NULL) STRICT;
    INSERT INTO account VALUES (0);
";

/// Books the job's amount, in one transaction with the note that the job is done. Returns false if it was.
fn book(store: &mut Connection, job: i64, amount: i64) -> rusqlite::Result<bool> {
    let transaction = store.transaction()?;
    // The key refuses a second row, whatever happened to the lock.
    if transaction.execute("INSERT OR IGNORE INTO done VALUES (?1)", params![job])? == 0 {
        return Ok(false);
    }
    transaction.execute("UPDATE account SET balance = balance + ?1", params![amount])?;
    transaction.commit()?;
    Ok(true)
}

fn is_done(store: &Connection, job: i64) -> rusqlite::Result<bool> {
    store.prepare("SELECT 1 FROM done WHERE job = ?1")?.exists(params![job])
}

/// Handles one delivery. Returns true if this delivery did the work.
async fn handle(locks: &LockClient, store: &Mutex<Connection>, job: i64) -> Result<bool> {
    let lock = locks.get_lock(&format!("recipes:job:{job}"))?;
    let work = async {
        // Another worker may have done the job while this one waited.
        if is_done(&store.lock().unwrap(), job)? {
            return Ok(false);
        }
        // The expensive part.
        tokio::time::sleep(Duration::from_millis(50)).await;
        Ok(book(&mut store.lock().unwrap(), job, 10)?)
    };
    // A lost lock is an error: the queue delivers the job again.
    lock.run(work).await?
}

#[tokio::main]
async fn main() -> Result<()> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    let store = Connection::open_in_memory()?;
    store.execute_batch(SCHEMA)?;
    let store = Arc::new(Mutex::new(store));
    let mut workers = Vec::new();
    for _ in 0..2 {
        // A client for each, as if in a process of its own. Each job is delivered to both.
        let (client, store) = (LockClient::new(Redis::connect(&url).await?), Arc::clone(&store));
        workers.push(tokio::spawn(async move {
            let mut worked = 0;
            for job in 0..5 {
                worked += u32::from(handle(&client, &store, job).await?);
            }
            client.shutdown(Duration::from_secs(5)).await?;
            Result::Ok(worked)
        }));
    }
    let mut worked = 0;
    for worker in workers {
        worked += worker.await??;
    }
    let balance: i64 =
        store.lock().unwrap().query_row("SELECT balance FROM account", (), |row| row.get(0))?;
    assert_eq!((worked, balance), (5, 50));
    println!("ten deliveries, five jobs done, each once");
    Ok(())
}

//! Fencing checked by the store: SQLite refuses the write of a holder that was paused for longer than its
//! lease.
//!
//! ```sh
//! cargo run -p recipes --bin fencing_sqlite
//! # in a package of your own:
//! cargo add latchwork --features redis
//! cargo add tokio --features full
//! cargo add rusqlite --features bundled
//! ```
//!
//! A holder can be paused between its last check of the lock and its write, and no lock service can prevent
//! that. So each write carries the token of its lock; the store keeps the greatest token that it has seen,
//! and refuses a smaller one. The same `UPDATE … WHERE` works in PostgreSQL and MySQL.

use std::env;
use std::error::Error;
use std::time::Duration;

use latchwork::redis::Redis;
use latchwork::{Guard, LockClient};
use rusqlite::{Connection, params};

const SCHEMA: &str = "
    CREATE TABLE account (
        name    TEXT PRIMARY KEY,
        balance INTEGER NOT NULL,
        -- The greatest token that has written this row.
        token   INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    INSERT INTO account (name, balance) VALUES ('ada', 100);
";

/// Writes the balance, unless a later holder of the lock has written it. Returns false if a later holder has:
/// then this holder's reads are stale as well, and it has to start over.
fn write(store: &Connection, guard: &Guard, balance: i64) -> Result<bool, Box<dyn Error>> {
    let token = i64::try_from(guard.fencing_token().ok_or("the lock is not fenced")?)?;
    // A single statement compares and writes atomically. `<=`, as a holder may write more than once.
    let written = store.execute(
        "UPDATE account SET balance = ?1, token = ?2 WHERE name = 'ada' AND token <= ?2",
        params![balance, token],
    )?;
    Ok(written == 1)
}

fn read(store: &Connection) -> rusqlite::Result<i64> {
    store.query_row("SELECT balance FROM account WHERE name = 'ada'", (), |row| row.get(0))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let store = Connection::open_in_memory()?;
    store.execute_batch(SCHEMA)?;
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    // Each would be a process. All ask for tokens: a holder without a token is not fenced.
    let slow = LockClient::new(Redis::connect(&url).await?);
    let quick = LockClient::new(Redis::connect(&url).await?);
    let slow_lock = slow.get_lock("recipes:account:ada")?.fenced();
    let quick_lock = quick.get_lock("recipes:account:ada")?.fenced();

    // The slow process reads, and is paused before it writes: its lease expires meanwhile.
    let late = slow_lock.lock_with_lease(Duration::from_millis(500)).await?;
    let read_by_late = read(&store)?;

    // Waits until the slow process's lease has expired.
    let next = quick_lock.lock().await?;
    assert!(next.fencing_token() > late.fencing_token());
    assert!(write(&store, &next, read(&store)? + 50)?);
    next.unlock().await?;

    // The slow process goes on where it was. Without a token its write would undo the other's.
    assert!(!write(&store, &late, read_by_late - 30)?);
    assert_eq!(read(&store)?, 150);
    // The lock reports the loss, too, though not always in time.
    assert!(late.unlock().await.unwrap_err().is_lost());

    // The slow process starts over, with a new read. The work has the guard, and with it the token.
    let again = slow_lock.run_with(async |guard| -> Result<(), Box<dyn Error>> {
        assert!(write(&store, guard, read(&store)? - 30)?);
        assert!(write(&store, guard, read(&store)?)?);
        Ok(())
    });
    again.await??;
    assert_eq!(read(&store)?, 120);
    println!("the stale write was refused: 100 + 50 - 30 = {}", read(&store)?);
    slow.shutdown(Duration::from_secs(5)).await?;
    quick.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

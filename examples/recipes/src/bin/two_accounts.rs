//! Transfers between accounts: both are locked at once, and transfers the other way do not deadlock.
//!
//! ```sh
//! cargo run -p recipes --bin two_accounts
//! # in a package of your own:
//! cargo add latchwork --features redis
//! cargo add tokio --features full
//! ```

use std::env;
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::Duration;

use latchwork::redis::Redis;
use latchwork::{LockClient, LockError};

const TRANSFERS: i64 = 50;

/// The balances. Each is read and written in two steps, which only the locks make one.
type Accounts = [AtomicI64; 3];

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    let accounts: Arc<Accounts> = Arc::new([100, 100, 100].map(AtomicI64::new));
    let mut tasks = Vec::new();
    for pair in [[0, 1], [1, 0], [1, 2], [2, 0]] {
        // A client for each, as if in a process of its own.
        let client = LockClient::new(Redis::connect(&url).await?);
        let accounts = Arc::clone(&accounts);
        tasks.push(tokio::spawn(async move {
            for amount in 1..=TRANSFERS {
                transfer(&client, &accounts, pair, amount).await?;
            }
            // Waits for releases that may be in flight.
            client.shutdown(Duration::from_secs(5)).await?;
            Ok::<(), LockError>(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    let total: i64 = accounts.iter().map(|balance| balance.load(SeqCst)).sum();
    assert_eq!(total, 300);
    println!("{} transfers, and no money was lost", 4 * TRANSFERS);
    Ok(())
}

/// Moves an amount from the first account of the pair to the second.
async fn transfer(client: &LockClient, all: &Accounts, pair: [usize; 2], sum: i64) -> Result<(), LockError> {
    let [from, to] = pair.map(|account| &all[account]);
    let [one, other] = pair.map(|account| client.get_lock(&format!("recipes:account:{account}")));
    // Dropped if either lock is lost. A store that can refuse stale holders should: see `fencing_sqlite`.
    let work = async {
        let (old_from, old_to) = (from.load(SeqCst), to.load(SeqCst));
        tokio::task::yield_now().await;
        from.store(old_from - sum, SeqCst);
        to.store(old_to + sum, SeqCst);
    };
    client.get_multi_lock([&one?, &other?])?.run(work).await
}

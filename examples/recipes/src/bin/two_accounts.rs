//! Transfers between accounts: both are locked at once, and transfers the other way do not deadlock.
//!
//! ```sh
//! cargo run -p recipes --bin two_accounts
//! ```

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
    let server = recipes::Redis::start();
    let accounts: Arc<Accounts> = Arc::new([100, 100, 100].map(AtomicI64::new));
    let mut tasks = Vec::new();
    for (from, to) in [(0, 1), (1, 0), (1, 2), (2, 0)] {
        // A client for each, as if in a process of its own.
        let client = LockClient::new(Redis::connect(server.url()).await?);
        let accounts = Arc::clone(&accounts);
        tasks.push(tokio::spawn(async move {
            for amount in 1..=TRANSFERS {
                transfer(&client, &accounts, from, to, amount).await?;
            }
            // Waits for releases that may be in flight.
            client.shutdown(Duration::from_secs(5)).await?;
            Ok::<(), LockError>(())
        }));
    }
    for task in tasks {
        task.await??;
    }
    let sum: i64 = accounts.iter().map(|balance| balance.load(SeqCst)).sum();
    assert_eq!(sum, 300);
    println!("{} transfers, and no money was lost", 4 * TRANSFERS);
    Ok(())
}

async fn transfer(
    client: &LockClient,
    accounts: &Accounts,
    from: usize,
    to: usize,
    amount: i64,
) -> Result<(), LockError> {
    let [one, other] = [from, to].map(|account| client.get_lock(&format!("recipes:account:{account}")));
    // Dropped if either lock is lost. A store that can check tokens should: see `fencing_sqlite`.
    let work = async {
        let (old_from, old_to) = (accounts[from].load(SeqCst), accounts[to].load(SeqCst));
        tokio::task::yield_now().await;
        accounts[from].store(old_from - amount, SeqCst);
        accounts[to].store(old_to + amount, SeqCst);
    };
    client.get_multi_lock([&one?, &other?])?.run(work).await
}

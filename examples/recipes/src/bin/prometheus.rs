//! The metrics of a client as Prometheus text, for a `/metrics` handler; and the locks behind them, for a
//! page or a log of the service's own.
//!
//! ```sh
//! cargo run -p recipes --bin prometheus
//! # in a package of your own:
//! cargo add latchwork
//! cargo add tokio --features full
//! ```

use std::error::Error;

use latchwork::LockClient;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let client = LockClient::local();
    let lock = client.get_lock("orders")?;
    for _ in 0..100 {
        lock.lock().await?.unlock().await?;
    }
    let guard = lock.lock().await?;
    assert!(lock.try_lock().await?.is_none());
    let waits = tokio::spawn({
        let lock = lock.clone();
        async move { lock.lock().await?.unlock().await }
    });
    while lock.waiting() == 0 {
        tokio::task::yield_now().await;
    }

    // Names are no labels: there may be as many as orders. They are listed for this process, without a
    // command; `Lock::holder` asks the store for a name's holder in any process.
    for held in client.held() {
        println!(
            "{} ({}): {} has it for {:?}, for {:?} more unless it is renewed; {} wait",
            held.name, held.mode, held.owner, held.held_for, held.left, held.waiters
        );
    }
    for wait in client.waiting() {
        // No waiter behind a holder of this process competes at the store.
        println!(
            "{} ({}): {} wait, competing for {:?}",
            wait.name, wait.mode, wait.waiters, wait.competes_for
        );
    }
    assert_eq!((client.held().len(), client.waiting().len()), (1, 1));

    lock.force_unlock().await?;
    drop(guard);
    waits.await??;

    // The labels distinguish the clients of a process.
    let text = client.metrics().to_prometheus(&[("client", "orders")]);
    print!("{text}");
    let value = |series: &str| -> f64 {
        let line =
            text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix("{client=\"orders\"} "));
        line.unwrap_or_else(|| panic!("no {series}")).parse().unwrap()
    };
    assert_eq!(value("latchwork_lock_wait_seconds_count"), 102.0);
    assert_eq!(value("latchwork_lock_hold_seconds_count"), 102.0);
    assert_eq!(value("latchwork_lock_given_up_total"), 1.0);
    // The series to alert on: work went on without its lock, or was aborted.
    assert_eq!(value("latchwork_lock_leases_lost_total"), 1.0);
    assert_eq!(value("latchwork_lock_held"), 0.0);
    Ok(())
}

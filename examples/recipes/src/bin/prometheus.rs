//! The metrics of a client as Prometheus text, for a `/metrics` handler.
//!
//! ```sh
//! cargo run -p recipes --bin prometheus
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
    lock.force_unlock().await?;
    drop(guard);

    // The labels tell the clients of a process apart.
    let text = client.metrics().to_prometheus(&[("client", "orders")]);
    print!("{text}");
    let value = |series: &str| -> f64 {
        let line =
            text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix("{client=\"orders\"} "));
        line.unwrap_or_else(|| panic!("no {series}")).parse().unwrap()
    };
    assert_eq!(value("latchwork_lock_wait_seconds_count"), 101.0);
    assert_eq!(value("latchwork_lock_hold_seconds_count"), 101.0);
    assert_eq!(value("latchwork_lock_given_up_total"), 1.0);
    // The one to alert on: work went on without its lock, or was aborted.
    assert_eq!(value("latchwork_lock_leases_lost_total"), 1.0);
    assert_eq!(value("latchwork_lock_held"), 0.0);
    Ok(())
}

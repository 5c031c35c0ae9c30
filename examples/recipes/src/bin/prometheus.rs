//! The metrics of a client as Prometheus text, for a `/metrics` handler.
//!
//! ```sh
//! cargo run -p recipes --bin prometheus
//! ```

use std::error::Error;
use std::fmt::Write;

use latchwork::{Histogram, LockClient, Metrics};

/// All of `metrics` in the text format of Prometheus, 0.0.4.
fn prometheus(metrics: &Metrics) -> String {
    let mut text = String::new();
    histogram(&mut text, "latchwork_wait_seconds", "From the call to the guard.", &metrics.waits);
    histogram(&mut text, "latchwork_hold_seconds", "From the guard's beginning to its end.", &metrics.holds);
    let m = metrics;
    for (name, help, value) in [
        ("given_up_total", "Calls that ended without the lock.", m.given_up),
        ("hand_offs_local_total", "Releases that gave the lock to a waiter in memory.", m.hand_offs_local),
        ("hand_offs_remote_total", "Acquisitions after a wait at the store.", m.hand_offs_remote),
        ("superseded_total", "Waiters that were not polled in time.", m.superseded),
        ("releases_failed_total", "Releases that were not answered; they are repeated.", m.releases_failed),
        ("renewals_sent_total", "Renewals of leases.", m.renewals_sent),
        ("renewals_late_total", "Renewals that came too late.", m.renewals_late),
        ("renewals_failed_total", "Renewals that were not answered; they are repeated.", m.renewals_failed),
        // The one to alert on: work went on without its lock, or was aborted.
        ("leases_lost_total", "Holds that were lost.", m.leases_lost),
        ("wakes_useful_total", "Wake-ups after which the lock was had.", m.wakes_useful),
        ("wakes_spurious_total", "Wake-ups after which the lock was held.", m.wakes_spurious),
        ("reconnects_total", "Connections made anew.", m.reconnects),
    ] {
        write_family(&mut text, &format!("latchwork_{name}"), help, "counter", value);
    }
    for (name, help, value) in [
        ("releases_pending", "Releases under way in the background.", m.releases_pending),
        ("subscriptions", "Channels that have waiters.", m.subscriptions),
    ] {
        write_family(&mut text, &format!("latchwork_{name}"), help, "gauge", value);
    }
    text
}

fn write_family(text: &mut String, name: &str, help: &str, kind: &str, value: u64) {
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}").unwrap();
}

/// Prometheus counts up: each bucket has all shorter times as well. Here a bucket has what is in it alone.
fn histogram(text: &mut String, name: &str, help: &str, times: &Histogram) {
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} histogram").unwrap();
    let mut below = 0;
    for (n, (upper, count)) in times.buckets().enumerate() {
        below += count;
        // Each fourth of the 40 is enough for a graph, from 8 µs up to 134 s: each series costs memory.
        if n % 4 == 3 && n < 28 {
            writeln!(text, "{name}_bucket{{le=\"{}\"}} {below}", upper.as_secs_f64()).unwrap();
        }
    }
    writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {}", times.count()).unwrap();
    writeln!(text, "{name}_sum {}\n{name}_count {}", times.sum().as_secs_f64(), times.count()).unwrap();
}

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

    let text = prometheus(&client.metrics());
    print!("{text}");
    let value = |series: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {series}")).parse().unwrap()
    };
    assert_eq!(value("latchwork_wait_seconds_count"), 101.0);
    assert_eq!(value("latchwork_wait_seconds_bucket{le=\"+Inf\"}"), 101.0);
    assert_eq!(value("latchwork_hold_seconds_count"), 101.0);
    assert_eq!(value("latchwork_given_up_total"), 1.0);
    assert_eq!(value("latchwork_leases_lost_total"), 1.0);
    let series = text.lines().filter(|line| line.contains("_bucket{le=")).map(|line| {
        let (_, count) = line.rsplit_once(' ').unwrap();
        count.parse::<u64>().unwrap()
    });
    assert!(series.collect::<Vec<_>>().chunks(8).all(|buckets| buckets.is_sorted()));
    Ok(())
}

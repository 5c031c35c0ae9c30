//! The `tracing` output of a contended acquisition: B waits for A's lock.
//!
//! ```sh
//! cargo run -p recipes --bin tracing_a_wait
//! # in a package of your own:
//! cargo add latchwork --features redis,tracing
//! cargo add tokio --features full
//! cargo add tracing
//! cargo add tracing-subscriber
//! ```

use std::env;
use std::error::Error;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use latchwork::LockClient;
use latchwork::redis::Redis;
use tracing_subscriber::filter::LevelFilter;

/// The lines of the span `acquire`: level, span, the event and its fields. The clients' ids are shortened,
/// and times are left out, as they differ from run to run.
const SHOWN: &str = r#"
DEBUG acquire{lock="orders:42"}: latchwork: acquired lock="orders:42" owner=A:1 watched=true waited=…
TRACE acquire{lock="orders:42"}: latchwork: held by another lock="orders:42" left=…
DEBUG acquire{lock="orders:42"}: latchwork: waiting lock="orders:42" left=…
TRACE acquire{lock="orders:42"}: latchwork: held by another lock="orders:42" left=…
TRACE acquire{lock="orders:42"}: latchwork: woken lock="orders:42" notified=true
DEBUG acquire{lock="orders:42"}: latchwork: acquired lock="orders:42" owner=B:1 watched=true waited=…
"#;

#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

// One thread, for a fixed order of the lines.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let lines = Lines::default();
    // In production: tracing_subscriber::fmt().init(), and RUST_LOG=latchwork=debug with the feature
    // `env-filter`.
    let writer = lines.clone();
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::TRACE)
        .without_time()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .init();

    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    let a = LockClient::new(Redis::connect(&url).await?);
    let b = LockClient::new(Redis::connect(&url).await?);
    let held = a.get_lock("orders:42")?.lock().await?;

    let lock = b.get_lock("orders:42")?;
    let waits = tokio::spawn(async move { lock.lock().await?.unlock().await });
    // When B finds the lock held for the second time, it is subscribed and cannot miss a release: it sleeps.
    while lines.text().matches("held by another").count() < 2 {
        tokio::task::yield_now().await;
    }
    held.unlock().await?;
    waits.await??;

    a.shutdown(Duration::from_secs(5)).await?;
    b.shutdown(Duration::from_secs(5)).await?;
    print!("{}", lines.text());
    let mut seen = String::new();
    // `connected` and `released` come from other tasks, at varying places.
    for line in lines.text().lines().filter(|line| line.contains("acquire{")) {
        let time = ["left=", "waited="].into_iter().find_map(|field| Some(line.find(field)? + field.len()));
        seen += &time.map_or_else(|| format!("{line}\n"), |at| format!("{}…\n", &line[..at]));
    }
    assert_eq!(seen.replace(a.id(), "A").replace(b.id(), "B").trim(), SHOWN.trim());
    Ok(())
}

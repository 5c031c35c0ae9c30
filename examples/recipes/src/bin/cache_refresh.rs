//! A cache that one process refreshes and all read: when it is empty, one process computes the value, and the
//! others wait for the result instead of computing it as well.
//!
//! ```sh
//! cargo run -p recipes --bin cache_refresh
//! # in a package of your own:
//! cargo add latchwork --features redis
//! cargo add tokio --features full
//! cargo add redis --features tokio-comp
//! ```
//!
//! The program starts four readers, each a process of its own.

use std::env;
use std::error::Error;
use std::process::{Command, Stdio};
use std::time::Duration;

use latchwork::LockClient;
use redis::aio::MultiplexedConnection;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const READERS: usize = 4;

struct Cache {
    values: MultiplexedConnection,
    locks: LockClient,
}

impl Cache {
    async fn connect(url: &str) -> Result<Cache> {
        let values = redis::Client::open(url)?.get_multiplexed_async_connection().await?;
        let locks = LockClient::new(latchwork::redis::Redis::connect(url).await?);
        Ok(Cache { values, locks })
    }

    async fn get(&mut self, key: &str) -> Result<Option<String>> {
        Ok(redis::cmd("GET").arg(key).query_async(&mut self.values).await?)
    }

    /// The value under `key`; if there is none, computed by `compute` and kept for `lasts`.
    async fn get_or_compute(
        &mut self,
        key: &str,
        lasts: Duration,
        compute: impl AsyncFn() -> Result<String>,
    ) -> Result<String> {
        // Nearly always: no lock, one command.
        if let Some(value) = self.get(key).await? {
            return Ok(value);
        }
        let lock = self.locks.get_lock(&format!("{key}:refresh"))?;
        let mut values = self.values.clone();
        loop {
            let refreshed = lock.run(async {
                // Once more: another process may have computed the value while this one waited for the lock.
                if let Some(value) = self.get(key).await? {
                    return Ok(value);
                }
                let value = compute().await?;
                let mut set = redis::cmd("SET");
                set.arg(key).arg(&value).arg("PX").arg(lasts.as_millis() as u64);
                () = set.query_async(&mut values).await?;
                Ok(value)
            });
            match refreshed.await {
                // Computing a value twice does not harm a cache, so this needs no token.
                Err(error) if error.is_lost() => {}
                outcome => return outcome?,
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    if let [_, url, key] = &env::args().collect::<Vec<_>>()[..] {
        return reader(url, key).await;
    }
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    let key = format!("recipes:prices:{}", std::process::id());
    let mut readers = Vec::new();
    for _ in 0..READERS {
        let mut reader = Command::new(env::current_exe()?);
        readers.push(reader.args([&url, &key]).stdout(Stdio::piped()).spawn()?);
    }
    let mut all = String::new();
    for reader in readers {
        let output = reader.wait_with_output()?;
        assert!(output.status.success());
        all += &String::from_utf8(output.stdout)?;
    }
    print!("{all}");
    assert_eq!(all.matches("computed\n").count(), 1);
    assert_eq!(all.matches("read 42\n").count(), READERS);
    Ok(())
}

async fn reader(url: &str, key: &str) -> Result<()> {
    let mut cache = Cache::connect(url).await?;
    let value = cache.get_or_compute(key, Duration::from_secs(60), async || {
        println!("computed");
        // Long enough for the other processes to start waiting.
        tokio::time::sleep(Duration::from_millis(300)).await;
        Ok("42".to_owned())
    });
    println!("read {}", value.await?);
    cache.locks.shutdown(Duration::from_secs(5)).await?;
    Ok(())
}

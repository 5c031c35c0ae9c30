//! Memory in tests and Redis in production, behind one type: code that uses the locks does not know the
//! store.
//!
//! ```sh
//! cargo run -p recipes --bin memory_or_redis
//! cargo test -p recipes --bin memory_or_redis
//! # in a package of your own:
//! cargo add latchwork --features redis
//! cargo add tokio --features full
//! ```

use std::env;
use std::error::Error;
use std::time::Duration;

use latchwork::redis::Redis;
use latchwork::{LockClient, LockError, LockOptions};

/// No type parameter: a client is one type over every backend.
struct Shop {
    locks: LockClient,
}

impl Shop {
    /// `memory` is the configuration of a developer's machine, without a server.
    async fn new(locks: &str) -> Result<Shop, Box<dyn Error>> {
        let options = LockOptions::default().name_mapper(|name| format!("shop:{name}"));
        let locks = match locks {
            "memory" => LockClient::with_options(latchwork::local::Local::new(), &options)?,
            url => LockClient::with_options(Redis::connect(url).await?, &options)?,
        };
        Ok(Shop { locks })
    }

    async fn ship(&self, order: u64) -> Result<String, LockError> {
        self.locks.get_lock(&format!("orders:{order}"))?.run(async { format!("shipped {order}") }).await
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = env::var("REDIS_URL").unwrap_or_else(|_| "redis://127.0.0.1".to_owned());
    for locks in ["memory", &*url] {
        let shop = Shop::new(locks).await?;
        println!("{} ({locks})", shop.ship(42).await?);
        assert_eq!(shop.locks.get_lock("orders:42")?.name().as_str(), "shop:orders:42");
        shop.locks.shutdown(Duration::from_secs(5)).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each test has locks of its own: a new client in memory shares nothing with another.
    #[tokio::test]
    async fn order_is_shipped_once_its_lock_is_free() {
        let shop = Shop { locks: LockClient::local() };
        let guard = shop.locks.get_lock("orders:42").unwrap().lock().await.unwrap();
        let mut shipping = std::pin::pin!(shop.ship(42));
        assert!(tokio::time::timeout(Duration::from_millis(20), &mut shipping).await.is_err());
        guard.unlock().await.unwrap();
        assert_eq!(shipping.await.unwrap(), "shipped 42");
    }

    /// Tests can try the production code's reaction to a lost lock without a server, too.
    #[tokio::test]
    async fn loss_is_told_in_memory_as_well() {
        let lock = LockClient::local().get_lock("orders:42").unwrap();
        let guard = lock.lock().await.unwrap();
        lock.force_unlock().await.unwrap();
        assert!(guard.run(async { "shipped" }).await.unwrap_err().is_lost());
    }
}

//! Our locks, of each kind.

use std::time::Duration;

use latchwork::redis::Redis;
use latchwork::{Guard, Lock, LockClient, LockError};

use super::{Client, Many};

/// A row of ours: a watched lock over Redis, with default options.
macro_rules! ours {
    ($(#[$doc:meta])* $client:ident, $name:literal, $lock:expr) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $client(Lock);

        impl Client for $client {
            const NAME: &'static str = $name;
            const POLLS: Option<Duration> = None;
            type Guard = Guard;

            async fn connect(url: &str, name: &str) -> Self {
                let client = LockClient::new(Redis::connect(url).await.expect("a server"));
                let lock: fn(&LockClient, &str) -> Result<Lock, LockError> = $lock;
                Self(lock(&client, name).expect("a name"))
            }

            async fn lock(&self) -> Guard {
                self.0.lock().await.expect("the lock")
            }

            async fn unlock(&self, guard: Guard) {
                guard.unlock().await.expect("it was held");
            }
        }
    };
}

ours! {
    /// `latchwork::LockClient::get_lock`.
    Latchwork, "latchwork", |client, name| client.get_lock(name)
}

impl Many for Latchwork {
    async fn connect_all(url: &str, names: &[String]) -> Vec<Self> {
        let client = LockClient::new(Redis::connect(url).await.expect("a server"));
        names.iter().map(|name| Self(client.get_lock(name).expect("a name"))).collect()
    }
}

ours! {
    /// `latchwork::LockClient::get_fair_lock`.
    LatchworkFair, "fair", |client, name| client.get_fair_lock(name)
}

ours! {
    /// The write lock of `latchwork::LockClient::get_read_write_lock`.
    LatchworkWrite, "write", |client, name| client.get_read_write_lock(name).map(|both| both.write().clone())
}

ours! {
    /// The read lock of `latchwork::LockClient::get_read_write_lock`.
    LatchworkRead, "read", |client, name| client.get_read_write_lock(name).map(|both| both.read().clone())
}

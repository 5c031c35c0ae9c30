//! Our locks, of each kind.

use std::time::Duration;

use latchwork::redis::Redis;
use latchwork::{Guard, Lock, LockClient, LockError, MultiGuard, MultiLock, NamedSemaphore, PermitGuard};

use super::{Client, Many};

/// A row of ours: a watched lock over Redis, with default options.
macro_rules! ours {
    ($(#[$doc:meta])* $client:ident, $name:literal, $lock:expr) => {
        ours! { $(#[$doc])* $client, $name, Lock: lock, Guard: unlock, $lock }
    };
    (
        $(#[$doc:meta])*
        $client:ident, $name:literal, $type:ident: $lock:ident, $guard:ident: $unlock:ident, $get:expr
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $client($type);

        impl Client for $client {
            const NAME: &'static str = $name;
            const POLLS: Option<Duration> = None;
            type Guard = $guard;

            async fn connect(url: &str, name: &str) -> Self {
                let client = LockClient::new(Redis::connect(url).await.expect("a server"));
                let get: fn(&LockClient, &str) -> Result<$type, LockError> = $get;
                Self(get(&client, name).expect("a name"))
            }

            async fn lock(&self) -> $guard {
                self.0.$lock().await.expect("the lock")
            }

            async fn unlock(&self, guard: $guard) {
                guard.$unlock().await.expect("it was held");
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

ours! {
    /// `latchwork::LockClient::get_semaphore`, of two permits.
    TwoPermits, "two permits", NamedSemaphore: acquire, PermitGuard: release,
    |client, name| client.get_semaphore(name, 2)
}

ours! {
    /// `latchwork::LockClient::get_multi_lock`, of two plain locks.
    TwoNames, "two names", MultiLock: lock, MultiGuard: unlock,
    |client, name| {
        let [one, two] = ["a", "b"].map(|it| client.get_lock(&format!("{name}:{it}")));
        client.get_multi_lock([&one?, &two?])
    }
}

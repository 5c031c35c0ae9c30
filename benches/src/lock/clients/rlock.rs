//! rlock: watched leases, with a notice of their loss.

use std::time::Duration;

use redis::Client as Server;
use redis::aio::ConnectionManagerConfig;
use rlock::async_lock::{RLock, RLockGuard};

use super::{Client, PATIENCE};

/// Asks again at a fixed interval. A lease of 10 s, renewed.
pub struct Rlock {
    client: RLock,
    name: String,
}

impl Client for Rlock {
    const NAME: &'static str = "rlock";
    const POLLS: Option<Duration> = Some(Duration::from_millis(100));
    type Guard = RLockGuard;

    async fn connect(url: &str, name: &str) -> Self {
        // The default timeout is half a second, which a swamped machine can exceed.
        let config = ConnectionManagerConfig::new().set_response_timeout(Some(PATIENCE));
        let server = Server::open(url).expect("a URL");
        let manager = server.get_connection_manager_with_config(config).await.expect("a server");
        Self {
            client: RLock::with_connection_manager(manager).await.expect("a server"),
            name: name.to_owned(),
        }
    }

    async fn lock(&self) -> RLockGuard {
        self.client.acquire_mutex(&self.name).await.expect("the lock")
    }

    async fn unlock(&self, mut guard: RLockGuard) {
        guard.release().await.expect("it was held");
    }
}

impl std::fmt::Debug for Rlock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rlock").field("name", &self.name).finish_non_exhaustive()
    }
}

//! rslock: Redlock, over the one server here.

use std::time::Duration;

use rslock::{LockGuard, LockManager};

use super::{Client, LEASE};

/// Asks again after a random time, and releases partial acquisitions.
#[derive(Debug)]
pub struct Rslock {
    manager: LockManager,
    name: String,
}

impl Client for Rslock {
    const NAME: &'static str = "rslock";
    const POLLS: Option<Duration> = Some(Duration::from_millis(200));
    type Guard = LockGuard;

    async fn connect(url: &str, name: &str) -> Self {
        Self { manager: LockManager::new(vec![url]), name: name.to_owned() }
    }

    async fn lock(&self) -> LockGuard {
        self.manager.acquire(self.name.as_bytes(), LEASE).await.expect("the lock")
    }

    async fn unlock(&self, guard: LockGuard) {
        guard.release().await;
    }
}

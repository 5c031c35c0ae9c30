//! Ours, plain and fair.

use std::time::Duration;

use latchwork::redis::Redis;
use latchwork::{Guard, Lock, LockClient};

use super::Client;

/// `latchwork::Lock` over Redis, watched, as it comes.
#[derive(Debug)]
pub struct Latchwork(Lock<Redis>);

/// `latchwork::LockClient::fair_lock` over Redis, watched, as it comes.
#[derive(Debug)]
pub struct LatchworkFair(Lock<Redis>);

impl Client for LatchworkFair {
    const NAME: &'static str = "fair";
    const POLLS: Option<Duration> = None;
    type Guard = Guard<Redis>;

    async fn connect(url: &str, name: &str) -> Self {
        Self(client(url).await.fair_lock(name).expect("a name"))
    }

    async fn lock(&self) -> Guard<Redis> {
        self.0.lock().await.expect("the lock")
    }

    async fn unlock(&self, guard: Guard<Redis>) {
        guard.unlock().await.expect("it was held");
    }
}

async fn client(url: &str) -> LockClient<Redis> {
    LockClient::new(Redis::connect(url).await.expect("a server"))
}

impl Client for Latchwork {
    const NAME: &'static str = "latchwork";
    const POLLS: Option<Duration> = None;
    type Guard = Guard<Redis>;

    async fn connect(url: &str, name: &str) -> Self {
        Self(client(url).await.get_lock(name).expect("a name"))
    }

    async fn lock(&self) -> Guard<Redis> {
        self.0.lock().await.expect("the lock")
    }

    async fn unlock(&self, guard: Guard<Redis>) {
        guard.unlock().await.expect("it was held");
    }
}

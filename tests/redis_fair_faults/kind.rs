//! Fair locks, as the faults know them.

use std::time::Instant;

use latchwork::redis::Redis;
use latchwork::{
    AcquireRequest, Backend as _, LeaseId, Lock, LockClient, LockName, Mode, NextWaiter, QueuePosition,
};

use crate::stage::{LIFE, Side};

/// The keys of the queue, of how long positions in it are kept, and of its waiters' nonces, behind the lock's
/// name.
pub(crate) const QUEUE: &str = "fair_queue";
pub(crate) const KEPT: &str = "fair_kept";
pub(crate) const NONCES: &str = "fair_nonces";

/// The same of all who wait, in whichever way.
pub(crate) const WAITING: &[&str] = &["fair_queue"];

pub(crate) fn named(client: &LockClient, name: &str) -> Lock {
    client.fair_lock(name).unwrap()
}

/// How many ways there are to have the lock.
pub(crate) const WAYS: usize = 1;

/// They all.
pub(crate) fn sides(client: &LockClient, name: &str) -> Vec<Side> {
    vec![Side { lock: named(client, name), is_shared: false }]
}

/// Where this client listens if one of it waits. First where it is told of grants.
pub(crate) fn channels(client: &LockClient, name: &str) -> Vec<String> {
    vec![client.backend::<Redis>().unwrap().channels(Mode::Fair, named(client, name).name(), client.id()).own]
}

pub(crate) fn grant_channel(client: &LockClient, name: &str) -> String {
    channels(client, name).swap_remove(0)
}

pub(crate) async fn try_acquire(
    redis: &Redis,
    name: &LockName,
    id: &LeaseId,
    position: Option<QueuePosition>,
) {
    let request = AcquireRequest::new(id.clone(), LIFE, Instant::now().into()).position(position);
    let _ = redis.acquire(Mode::Fair, name, &request).await.unwrap();
}

pub(crate) async fn release(redis: &Redis, name: &LockName, id: &LeaseId, next: Option<&NextWaiter>) {
    let _ = redis.release(Mode::Fair, name, id, next).await.unwrap();
}

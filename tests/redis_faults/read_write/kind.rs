//! The read-write lock as the kind under test; its writers queue.

use latchwork::backend::Backend as _;
use latchwork::lock::Mode;
use latchwork::redis::Redis;
use latchwork::{Lock, LockClient};

use super::queued::stage::Side;

pub(crate) const MODE: Mode = Mode::Write;

/// Suffixes of the keys of the queue and of its positions.
pub(crate) const QUEUE: &str = "rw_queue";
pub(crate) const POSITIONS: &str = "rw_positions";

/// Suffixes of the queues of all waiters.
pub(crate) const WAITING: &[&str] = &["rw_queue", "rw_readers"];

pub(crate) fn named(client: &LockClient, name: &str) -> Lock {
    client.get_read_write_lock(name).unwrap().write().clone()
}

pub(crate) const WAYS: usize = 2;

pub(crate) fn sides(client: &LockClient, name: &str) -> Vec<Side> {
    let both = client.get_read_write_lock(name).unwrap();
    [(both.write(), false), (both.read(), true)]
        .map(|(lock, is_shared)| Side { lock: lock.clone(), is_shared })
        .into()
}

/// Channels of this client's waiters; the first one carries grants.
pub(crate) fn channels(client: &LockClient, name: &str) -> Vec<String> {
    let lock = named(client, name);
    let redis: &Redis = client.backend().unwrap();
    [Mode::Write, Mode::Read].map(|mode| redis.channels(mode, lock.name(), client.id()).own).into()
}

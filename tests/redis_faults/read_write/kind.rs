//! Read-write locks, which their writers queue for, as the faults know them.

use latchwork::backend::Backend as _;
use latchwork::lock::Mode;
use latchwork::redis::Redis;
use latchwork::{Lock, LockClient};

use super::queued::stage::Side;

/// Of the locks that queue.
pub(crate) const MODE: Mode = Mode::Write;

/// The keys of the queue, and of the positions in it, behind the lock's name.
pub(crate) const QUEUE: &str = "rw_queue";
pub(crate) const POSITIONS: &str = "rw_positions";

/// The same of all waiters, in whichever way.
pub(crate) const WAITING: &[&str] = &["rw_queue", "rw_readers"];

pub(crate) fn named(client: &LockClient, name: &str) -> Lock {
    client.get_read_write_lock(name).unwrap().write().clone()
}

/// How many ways there are to have the lock.
pub(crate) const WAYS: usize = 2;

/// They all.
pub(crate) fn sides(client: &LockClient, name: &str) -> Vec<Side> {
    let both = client.get_read_write_lock(name).unwrap();
    [(both.write(), false), (both.read(), true)]
        .map(|(lock, is_shared)| Side { lock: lock.clone(), is_shared })
        .into()
}

/// Where this client listens if one of it waits. First where it is told of grants.
pub(crate) fn channels(client: &LockClient, name: &str) -> Vec<String> {
    let lock = named(client, name);
    let redis: &Redis = client.backend().unwrap();
    [Mode::Write, Mode::Read].map(|mode| redis.channels(mode, lock.name(), client.id()).own).into()
}

//! Fair locks, as the faults know them.

use latchwork::backend::Backend as _;
use latchwork::lock::Mode;
use latchwork::redis::Redis;
use latchwork::{Lock, LockClient};

use super::queued::stage::Side;

/// Of the locks that queue.
pub(crate) const MODE: Mode = Mode::Fair;

/// The keys of the queue, and of the positions in it, behind the lock's name.
pub(crate) const QUEUE: &str = "fair_queue";
pub(crate) const POSITIONS: &str = "fair_positions";

/// The same of all waiters, in whichever way.
pub(crate) const WAITING: &[&str] = &["fair_queue"];

pub(crate) fn named(client: &LockClient, name: &str) -> Lock {
    client.get_fair_lock(name).unwrap()
}

/// How many ways there are to have the lock.
pub(crate) const WAYS: usize = 1;

/// They all.
pub(crate) fn sides(client: &LockClient, name: &str) -> Vec<Side> {
    vec![Side { lock: named(client, name), is_shared: false }]
}

/// Where this client listens if one of it waits. First where it is told of grants.
pub(crate) fn channels(client: &LockClient, name: &str) -> Vec<String> {
    vec![client.backend::<Redis>().unwrap().channels(MODE, named(client, name).name(), client.id()).own]
}

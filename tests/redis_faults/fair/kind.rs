//! The fair lock as the kind under test.

use latchwork::backend::Backend as _;
use latchwork::lock::Mode;
use latchwork::redis::Redis;
use latchwork::{Lock, LockClient};

use super::queued::stage::Side;

pub(crate) const MODE: Mode = Mode::Fair;

/// Suffixes of the keys of the queue and of its positions.
pub(crate) const QUEUE: &str = "fair_queue";
pub(crate) const POSITIONS: &str = "fair_positions";

/// Suffixes of the queues of all waiters.
pub(crate) const WAITING: &[&str] = &["fair_queue"];

pub(crate) fn named(client: &LockClient, name: &str) -> Lock {
    client.get_fair_lock(name).unwrap()
}

pub(crate) const WAYS: usize = 1;

pub(crate) fn sides(client: &LockClient, name: &str) -> Vec<Side> {
    vec![Side { lock: named(client, name), is_shared: false }]
}

/// Channels of this client's waiters; the first one carries grants.
pub(crate) fn channels(client: &LockClient, name: &str) -> Vec<String> {
    vec![client.backend::<Redis>().unwrap().channels(MODE, named(client, name).name(), client.id()).own]
}

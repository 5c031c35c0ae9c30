//! The locks' store is Redis: the real adapter and the real scripts, over links and a small server in memory.

mod faults;
mod host;
mod leases;
mod link;
mod resp;
mod serve;
pub(crate) mod server;
mod stream;
mod way;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use latchwork::LockKind;
use latchwork::redis::Redis;

use crate::store::{Harm, Network, Store, StoredLease, duration};
use crate::world::{MS, Nanos, Process, SECOND, World};

use self::host::Host;
use self::leases::Leases;
use self::link::Links;
use self::server::Data;

/// How often the data is copied, for a replica that takes over.
const COPY_EACH: Nanos = SECOND / 4;
/// How far a replica may be behind.
const OLDEST_COPY: Nanos = 60 * SECOND;

/// Redis, and the network before it.
pub(crate) struct SimulatedRedis {
    world: World,
    links: Links,
    timing: Timing,
    /// As they were when they were looked at last, by [`Store::changes`].
    leases: Mutex<Option<(u64, Leases)>>,
    copies: Arc<Mutex<Vec<(Nanos, Data)>>>,
}

/// How the clients are set up.
#[derive(Clone, Copy, Debug)]
struct Timing {
    heartbeat: Duration,
    response: Option<Duration>,
}

impl SimulatedRedis {
    fn copy(&self, ago: Nanos) -> Option<Data> {
        let then = self.world.now().saturating_sub(ago);
        let copies = self.copies.lock().expect("nothing panics under this lock");
        copies.iter().rev().find(|(at, _)| *at <= then).map(|(_, data)| data.clone())
    }
}

//! Redis as the locks' store: the real adapter and the real scripts, over links and a small server in memory.

pub(crate) mod check;
mod faults;
mod host;
mod leases;
mod link;
mod resp;
mod serve;
pub(crate) mod server;
mod stream;
#[cfg(test)]
mod tests;
mod way;

use std::sync::Mutex;
use std::time::Duration;

use latchwork::LockKind;
use latchwork::backend::Runtime;
use latchwork::redis::{Redis, RedisBuilder};

use crate::store::{Harm, Network, Store, StoredLease, duration};
use crate::world::{Nanos, Process, SECOND, World};

use self::host::Host;
use self::leases::Leases;
use self::link::Links;

/// Delay before a process retries its first connection.
const CONNECT_AGAIN: Duration = Duration::from_millis(100);

const HEARTBEAT: Nanos = SECOND;
/// Time between heartbeats in half of the runs.
const SELDOM: Nanos = 60 * SECOND;

/// Probability, in thousandths of attempts, that a foreign client forges the message of a grant.
const STRANGERS: u32 = 100;

pub(crate) struct SimulatedRedis {
    world: World,
    links: Links,
    answer_limit: Nanos,
    heartbeat: Nanos,
    /// True if clients wait until a replica has received their grant.
    waits_for_replicas: bool,
    /// The leases at the last look, and [`Self::changes`] at that time.
    leases: Mutex<(Option<u64>, Leases)>,
}

impl SimulatedRedis {
    fn builder(&self) -> RedisBuilder {
        let builder = Redis::builder().heartbeat(duration(self.heartbeat));
        let builder = match self.waits_for_replicas {
            true => builder.wait_for_replicas(1, duration(SECOND / 2)),
            false => builder,
        };
        match self.answer_limit {
            0 => builder,
            limit => builder.response_timeout(duration(limit)),
        }
    }
}

impl Store for SimulatedRedis {
    const NOTICES_WITHIN: Nanos = faults::KEEPALIVE;
    const HAS_NO_TASKS: bool = false;
    const KNOWS_LAPSED_WRITERS: bool = false;

    type Backend = Redis;

    fn new(world: &World, network: &Network) -> Self {
        // In quiet programs, heartbeats would take most of the time.
        let heartbeat = world.chance(|draw| if draw.bool() { HEARTBEAT } else { SELDOM });
        let (world, links) = (world.clone(), Links::new(world, network, heartbeat == HEARTBEAT));
        let (refuses_kill, strangers) = world.chance(|draw| (draw.u8(..4) == 0, draw.u8(..4) == 0));
        let mut inner = links.inner();
        if refuses_kill {
            inner.refuse_kill();
        }
        inner.strangers = if strangers { STRANGERS } else { 0 };
        let waits_for_replicas = world.chance(|draw| draw.u8(..8) == 0);
        inner.server.set_replicas(if waits_for_replicas { 2 } else { 0 });
        drop(inner);
        let (answer_limit, leases) = (network.answer_limit, Mutex::default());
        Self { world, links, answer_limit, heartbeat, waits_for_replicas, leases }
    }

    fn connect(&self, process: &Process) -> impl Future<Output = Redis> + Send + 'static {
        let (builder, host, process) = (self.builder(), Host::new(process, &self.links), process.clone());
        async move {
            loop {
                match builder.clone().simulated_connect(host.clone(), "redis://server").await {
                    Ok(redis) => return redis,
                    Err(error) => process.world().note(|| format!("process {}: {error}", process.index())),
                }
                process.sleep_until(process.now() + CONNECT_AGAIN).await;
            }
        }
    }

    fn leases(&self, kind: LockKind, name: &str) -> Vec<StoredLease> {
        let (now, changes) = (self.world.now(), self.changes());
        let mut leases = self.leases.lock().expect("nothing panics under this lock");
        if leases.0 != Some(changes) {
            let inner = self.links.inner();
            let time = inner.server_time();
            *leases = (Some(changes), Leases::new(inner.server.keys(time), (now, time)));
        }
        leases.1.of(kind, name, now)
    }

    fn harm(&self, harm: &Harm) -> bool {
        let mut inner = self.links.inner();
        let is_done = inner.harm(harm);
        self.links.see_to_carrier(inner);
        is_done
    }

    fn died(&self, process: &Process) {
        self.links.die(process);
    }

    fn under_way(&self, process: &Process) -> usize {
        self.links.inner().under_way(process.index())
    }

    fn left_over(&self) -> Vec<String> {
        self.links.inner().left_over()
    }

    fn subscriptions(&self, process: &Process) -> Option<usize> {
        Some(self.links.inner().subscriptions_of(process.index()))
    }

    fn asked(&self, process: &Process) -> u64 {
        self.links.inner().scripts.get(&process.index()).copied().unwrap_or(0)
    }

    fn commands(&self) -> u64 {
        self.links.inner().server.commands()
    }

    fn changes(&self) -> u64 {
        let inner = self.links.inner();
        inner.server.commands() + inner.harms
    }
}

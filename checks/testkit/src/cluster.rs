//! A Redis Cluster of real servers.

use std::thread;
use std::time::{Duration, Instant};

use redis::{Connection, FromRedisValue, RedisResult, cmd};

use crate::port::Port;
use crate::run::Setup;
use crate::{RedisServer, StartError, is_older_than_7};

const SLOTS: usize = 16_384;
const MASTERS: usize = 3;
/// Number of attempts to start a node whose bus port another process takes.
const PORTS_TO_TRY: u32 = 20;
/// Far longer than the nodes take to agree, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(20);
/// Keys of one MIGRATE.
const KEYS: usize = 100;

/// Three masters, each with a third of the slots, and optionally one replica of the first; killed on drop.
/// Needs Redis 7.0 or newer, which can be told the port of the cluster bus.
///
/// Every failure here is a panic that names it.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts three masters. `args` as for [`RedisServer::start_with`]. Panics if no cluster forms.
    #[must_use]
    #[track_caller]
    pub fn start_with(args: &[&str]) -> RedisCluster {
        RedisCluster::of(MASTERS, args)
    }

    /// Starts three masters, and a replica of the first, as [`start_with`](RedisCluster::start_with).
    #[must_use]
    #[track_caller]
    pub fn start_replicated_with(args: &[&str]) -> RedisCluster {
        RedisCluster::of(MASTERS + 1, args)
    }

    #[track_caller]
    fn of(count: usize, args: &[&str]) -> RedisCluster {
        let cluster = RedisCluster { nodes: (0..count).map(|_| start_node(args)).collect() };
        for number in 0..MASTERS {
            // One slot at a time: servers before 7.0 know no ranges.
            let slots: Vec<String> = (SLOTS * number / MASTERS..SLOTS * (number + 1) / MASTERS)
                .map(|slot| slot.to_string())
                .collect();
            let slots = slots.iter().map(|slot| &**slot);
            let () =
                cluster.ask(number, &["CLUSTER", "ADDSLOTS"].into_iter().chain(slots).collect::<Vec<_>>());
            // Otherwise all epochs begin at 0, and the first elections have to resolve the conflict.
            let () = cluster.ask(number, &["CLUSTER", "SET-CONFIG-EPOCH", &(number + 1).to_string()]);
        }
        for other in &cluster.nodes[1..] {
            let bus = bus_port(other);
            let () = cluster
                .ask(0, &["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string(), &bus.to_string()]);
        }
        eventually("the nodes know each other", || {
            (0..count).all(|node| cluster.info(node, "cluster_known_nodes") == count.to_string())
        });
        for replica in MASTERS..count {
            let master = cluster.id(0);
            // Refused until the replica has heard that its master is a master.
            eventually("the replica has a master", || {
                cluster.try_ask::<()>(replica, &["CLUSTER", "REPLICATE", &master]).is_ok()
            });
            eventually("the replica has its master's data", || {
                let info: String = cluster.ask(replica, &["INFO", "replication"]);
                info.contains("master_link_status:up")
            });
            eventually("the others know the replica", || {
                (0..count).all(|node| {
                    let nodes: String = cluster.ask(node, &["CLUSTER", "NODES"]);
                    nodes.lines().any(|line| line.contains("slave") && line.contains(&master))
                })
            });
        }
        cluster.wait_until_ok();
        cluster
    }

    /// `redis-cluster://` with the addresses of all masters.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts: Vec<String> =
            self.nodes[..MASTERS].iter().map(|node| format!("127.0.0.1:{}", node.port())).collect();
        format!("redis-cluster://{}", hosts.join(","))
    }

    /// The nodes: first the three masters, then the replica if there is one.
    #[must_use]
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// A node, mutably: to kill it.
    pub fn node_mut(&mut self, node: usize) -> &mut RedisServer {
        &mut self.nodes[node]
    }

    /// The node that owns `slot`, as node `asked` sees it.
    #[must_use]
    pub fn owner(&self, asked: usize, slot: u16) -> Option<usize> {
        let nodes: String = self.ask(asked, &["CLUSTER", "NODES"]);
        let id = nodes.lines().find_map(|line| {
            let mut fields = line.split(' ');
            let id = fields.next()?;
            let has = fields.skip(7).filter(|field| !field.starts_with('[')).any(|field| {
                let (first, last) = field.split_once('-').unwrap_or((field, field));
                (first.parse().unwrap_or(u16::MAX)..=last.parse().unwrap_or(0)).contains(&slot)
            });
            has.then(|| id.to_owned())
        })?;
        (0..self.nodes.len())
            .find(|node| self.try_ask::<String>(*node, &["CLUSTER", "MYID"]).is_ok_and(|other| other == id))
    }

    /// Begins to move a slot: it is now importing at `to` and migrating at `from`, and no key has moved.
    pub fn begin_to_move(&self, slot: u16, from: usize, to: usize) {
        let (slot, source, target) = (slot.to_string(), self.id(from), self.id(to));
        let () = self.ask(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source]);
        let () = self.ask(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target]);
    }

    /// Moves a key of a moving slot.
    pub fn move_key(&self, key: &str, from: usize, to: usize) {
        let port = self.nodes[to].port().to_string();
        let () = self.ask(from, &["MIGRATE", "127.0.0.1", &port, key, "0", "5000"]);
    }

    /// Moves the remaining keys, and then the slot.
    pub fn finish_to_move(&self, slot: u16, from: usize, to: usize) {
        let (number, port) = (slot.to_string(), self.nodes[to].port().to_string());
        loop {
            let keys: Vec<String> = self.ask(from, &["CLUSTER", "GETKEYSINSLOT", &number, &KEYS.to_string()]);
            if keys.is_empty() {
                break;
            }
            let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            migrate.extend(keys.iter().map(String::as_str));
            let () = self.ask(from, &migrate);
        }
        let target = self.id(to);
        // The new node first: the slot always has a node.
        let others = (0..self.nodes.len()).filter(|node| ![to, from].contains(node));
        for node in [to, from].into_iter().chain(others) {
            // A replica refuses this.
            let _ = self.try_ask::<()>(node, &["CLUSTER", "SETSLOT", &number, "NODE", &target]);
        }
    }

    /// Makes all nodes announce `port` as the port of `node`; all nodes have heard of it when this returns.
    pub fn announce(&self, node: usize, port: u16) {
        let () = self.ask(node, &["CONFIG", "SET", "cluster-announce-port", &port.to_string()]);
        let id = self.id(node);
        eventually("the other port is known", || {
            (0..self.nodes.len()).all(|asked| {
                let nodes: String = self.ask(asked, &["CLUSTER", "NODES"]);
                nodes.lines().any(|line| line.starts_with(&id) && line.contains(&format!(":{port}@")))
            })
        });
    }

    /// Kills the first master and makes its replica the master, without a vote of the others.
    pub fn fail_over(&mut self) {
        self.nodes[0].kill_9();
        self.promote_replica();
    }

    /// Makes the replica the master, without a vote of the others; all have heard of it when this returns.
    fn promote_replica(&self) {
        let replica = MASTERS;
        let () = self.ask(replica, &["CLUSTER", "FAILOVER", "TAKEOVER"]);
        eventually("the new master is known", || {
            (1..self.nodes.len()).all(|node| self.owner(node, 0) == Some(replica))
        });
    }

    fn wait_until_ok(&self) {
        eventually("cluster_state:ok", || {
            (0..self.nodes.len()).all(|node| self.info(node, "cluster_state") == "ok")
        });
    }

    /// Runs a command on a node. Panics if the command fails.
    #[track_caller]
    pub fn ask<T: FromRedisValue>(&self, node: usize, command: &[&str]) -> T {
        match self.try_ask(node, command) {
            Ok(reply) => reply,
            Err(error) => panic!("node {node} does not {command:?}: {error}"),
        }
    }

    /// As [`ask`](RedisCluster::ask), for a node that may be down. Fails if the command fails.
    pub fn try_ask<T: FromRedisValue>(&self, node: usize, command: &[&str]) -> RedisResult<T> {
        let (name, args) = command.split_first().expect("a command has a name");
        cmd(name).arg(args).query(&mut self.connection(node)?)
    }

    fn connection(&self, node: usize) -> RedisResult<Connection> {
        redis::Client::open(self.nodes[node].url())?.get_connection_with_timeout(PATIENCE)
    }

    fn id(&self, node: usize) -> String {
        self.ask(node, &["CLUSTER", "MYID"])
    }

    fn info(&self, node: usize, field: &str) -> String {
        let info: String = self.ask(node, &["CLUSTER", "INFO"]);
        let value = info.lines().find_map(|line| line.split_once(':').filter(|(name, _)| *name == field));
        value.map(|(_, value)| value.trim_end().to_owned()).unwrap_or_default()
    }
}

#[track_caller]
fn start_node(args: &[&str]) -> RedisServer {
    let mut tries = 0;
    loop {
        tries += 1;
        let bus = match Port::reserve() {
            Ok(port) => port,
            Err(error) => panic!("cannot find a free port on 127.0.0.1: {error}"),
        };
        let number = bus.number().to_string();
        // The nodes declare a silent node dead after one second, to make a test's failover quick.
        let mut all = vec!["--cluster-enabled", "yes", "--cluster-node-timeout", "1000"];
        // Before 7.0, the bus port is always the first port plus ten thousand.
        if !is_older_than_7() {
            all.extend(["--cluster-port", &*number]);
        }
        all.extend(["--repl-diskless-sync-delay", "0"]);
        all.extend(args);
        let args = all.into_iter().map(str::to_owned).collect();
        match RedisServer::set_up(Setup { args, _bus: Some(bus), ..Setup::default() }) {
            Ok(node) => return node,
            // The bus port was taken; `set_up` handles the first port by itself.
            Err(StartError::PortTaken { .. }) if tries < PORTS_TO_TRY => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn bus_port(node: &RedisServer) -> u16 {
    if is_older_than_7() {
        return node.port() + 10_000;
    }
    let mut connection = redis::Client::open(node.url())
        .and_then(|client| client.get_connection())
        .expect("a node that has just started answers");
    let (_, port): (String, u16) =
        cmd("CONFIG").arg("GET").arg("cluster-port").query(&mut connection).expect("it knows its ports");
    port
}

#[track_caller]
fn eventually(what: &str, mut ask: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !ask() {
        assert!(Instant::now() < deadline, "expected within {PATIENCE:?}: {what}");
        thread::sleep(POLL);
    }
}

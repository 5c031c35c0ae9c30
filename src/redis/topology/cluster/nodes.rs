//! [`Nodes`]: the known owners of the slots, and how to learn them anew.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::redis::{Cmd, ErrorKind as Kind, RedisError, RedisResult, cmd};
use tokio::task::JoinSet;

use crate::support::runtime::Runtime;
use crate::support::sync::Mutex;

use super::super::super::connection::{
    Address, Common, Dialer, Error, ErrorKind, Meaning, MultiplexedConnection, WireRequest,
};
use super::super::router::Node;
use super::super::single::Fixed;
use super::layout::{self, SLOTS, Shard};

/// Divisor of the response limit: the time after which the next node is asked as well.
const STAGGER_PART: u32 = 30;
/// Divisor of the response limit: the time that one node has to answer.
const LOOK_PART: u32 = 3;

/// The known nodes and their slots. A mistake shows when a node redirects the command or does not answer.
pub(super) struct Nodes {
    dialer: Arc<Dialer>,
    common: Arc<Common>,
    /// The URL's nodes, asked again when no other node answers.
    seeds: Vec<Address>,
    map: Mutex<Map>,
    /// Serializes refreshes; waiters reuse the result.
    looking: tokio::sync::Mutex<()>,
}

struct Map {
    known: HashMap<Address, Arc<Node>>,
    /// Indexed by slot.
    owners: Vec<Option<Arc<Node>>>,
    /// Count of all nodes so far.
    numbers: u64,
    looks: usize,
    /// Rotates the first node of a look: a node cut off from the others answers, too.
    turn: usize,
}

impl Nodes {
    /// `seeds`: at least one.
    pub(super) fn new(dialer: Arc<Dialer>, common: Arc<Common>, seeds: Vec<Address>) -> Arc<Self> {
        let owners = vec![None; usize::from(SLOTS)];
        let map = Mutex::new(Map { known: HashMap::new(), owners, numbers: 0, looks: 0, turn: 0 });
        Arc::new(Self { dialer, common, seeds, map, looking: tokio::sync::Mutex::default() })
    }

    fn node(&self, map: &mut Map, address: Address) -> Arc<Node> {
        match map.known.entry(address) {
            Entry::Occupied(known) => Arc::clone(known.get()),
            Entry::Vacant(new) => {
                let server = Fixed::new(Arc::clone(&self.dialer), Some(new.key().clone()));
                // A node cut off from the others receives no messages.
                let listening = server.asked("CLUSTER INFO", |connection| Box::pin(in_touch(connection)));
                map.numbers += 1;
                let (server, listening) = (Arc::new(server), Arc::new(listening));
                Arc::clone(new.insert(Node::new(map.numbers, server, listening, &self.common)))
            }
        }
    }

    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        self.map.lock().owners[usize::from(slot)].clone()
    }

    /// Returns the node at `address`, which is taking a slot over.
    pub(super) fn at(&self, address: Address) -> Arc<Node> {
        self.node(&mut self.map.lock(), address)
    }

    /// Records the slot's new owner at `address`, announced by another node.
    pub(super) fn moved(&self, slot: u16, address: Address) -> Arc<Node> {
        let mut map = self.map.lock();
        let node = self.node(&mut map, address);
        map.owners[usize::from(slot)] = Some(Arc::clone(&node));
        node
    }

    /// Returns all nodes worth asking: `first`, then the known nodes, then the seeds.
    pub(super) fn candidates(&self, first: Option<Arc<Node>>) -> Vec<Arc<Node>> {
        let mut map = self.map.lock();
        let mut known: Vec<_> = map.known.values().cloned().collect();
        known.sort_unstable_by_key(|node| node.number);
        if !known.is_empty() {
            let begin = map.turn % known.len();
            known.rotate_left(begin);
        }
        map.turn = map.turn.wrapping_add(1);
        let seeds: Vec<_> = self.seeds.iter().map(|seed| self.node(&mut map, seed.clone())).collect();
        let mut candidates: Vec<_> = first.into_iter().chain(known).chain(seeds).collect();
        let mut seen = HashSet::new();
        candidates.retain(|node| seen.insert(node.number));
        candidates
    }

    /// Learns the owners of the slots anew, from `first` if possible. Continues if the caller is dropped.
    pub(super) async fn refresh(self: &Arc<Self>, first: Option<Arc<Node>>) -> Result<(), Error> {
        let this = Arc::clone(self);
        let looked = self.common.runtime.spawn_for(async move {
            let looks = this.map.lock().looks;
            let _turn = this.looking.lock().await;
            // Share the look of another caller that ended while we waited for the mutex.
            if this.map.lock().looks != looks {
                return Ok(());
            }
            let looked = this.look(first).await;
            this.map.lock().looks += 1;
            looked
        });
        looked.await.unwrap_or_else(|| Err(Error::runtime_ended()))
    }

    pub(super) fn refresh_soon(self: &Arc<Self>, first: Option<Arc<Node>>) {
        let this = Arc::clone(self);
        self.common.runtime.spawn(async move {
            // Best effort: a caller that needs the result refreshes by itself.
            let _ = this.refresh(first).await;
        });
    }

    /// Asks the nodes one by one, waiting briefly for each, until the first answer.
    async fn look(&self, first: Option<Arc<Node>>) -> Result<(), Error> {
        let candidates = self.candidates(first);
        let mut candidates = candidates.into_iter();
        let mut asked = JoinSet::new();
        let mut failure: Option<Error> = None;
        loop {
            let next = candidates.next();
            let last = next.is_none();
            if let Some(node) = next {
                let limit = self.common.timing.response / LOOK_PART;
                let now = self.common.runtime.now();
                asked.spawn(async move { ask(&node, limit, now).await });
            } else if asked.is_empty() {
                return Err(failure.unwrap_or_else(Error::no_node));
            }
            let answer = tokio::select! {
                biased;
                answer = asked.join_next() => answer,
                () = self.common.runtime.sleep(self.common.timing.response / STAGGER_PART), if !last => None,
            };
            match answer {
                Some(Ok(Ok(shards))) => {
                    self.learn(shards);
                    return Ok(());
                }
                Some(Ok(Err(error))) => {
                    // A node's refusal says more than another node's absence.
                    if failure.as_ref().is_none_or(|known| known.kind() == ErrorKind::Connection) {
                        failure = Some(error);
                    }
                }
                Some(Err(_)) | None => {}
            }
        }
    }

    fn learn(&self, shards: Vec<Shard>) {
        // Dropped outside the mutex: closes the connections of removed nodes.
        let _gone = {
            let mut map = self.map.lock();
            let mut old = std::mem::take(&mut map.known);
            let mut owners = vec![None; usize::from(SLOTS)];
            for shard in shards {
                for address in shard.master.iter().chain(&shard.replicas) {
                    if let Some(known) = old.remove(address) {
                        map.known.insert(address.clone(), known);
                    }
                }
                let master = shard.master.map(|address| self.node(&mut map, address));
                shard.replicas.into_iter().for_each(|address| _ = self.node(&mut map, address));
                for slot in shard.slots.filter(|slot| *slot < SLOTS) {
                    owners[usize::from(slot)].clone_from(&master);
                }
            }
            (old, std::mem::replace(&mut map.owners, owners))
        };
    }
}

async fn ask(node: &Node, limit: Duration, now: Instant) -> Result<Vec<Shard>, Error> {
    let words = |question: &mut Cmd, _: Instant| _ = question.arg("CLUSTER").arg("SLOTS");
    let (asked, request) = (node.commands.server().address(), WireRequest::plain(&words, limit));
    let reply = node.commands.send(&request, false, now, &mut (now + limit)).await;
    let shards = reply.and_then(|reply| {
        let known_as = Address::parse(&asked).unwrap_or(Address { host: String::new(), port: 0 });
        layout::read(reply, &known_as).map_err(|error| request.error(&asked, now, error.into()))
    });
    match shards {
        Ok(shards) if shards.is_empty() => Err(Error::no_slots(&asked)),
        Err(error) if error.redis_error().is_some_and(is_disabled) => Err(error.not_a_cluster(&asked)),
        shards => shards,
    }
}

fn is_disabled(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains("cluster support disabled"))
}

/// Fails if the node is cut off from the others, which forward the messages.
pub(super) async fn in_touch(connection: &mut MultiplexedConnection) -> RedisResult<()> {
    let info: String = match cmd("CLUSTER").arg("INFO").query_async(connection).await {
        Ok(info) => info,
        // The user may lack the permission. The node does answer.
        Err(error) if Meaning::of(&error) == Meaning::Refused => return Ok(()),
        Err(error) => return Err(error),
    };
    if info.lines().any(|line| line.trim_end() == "cluster_state:fail") {
        return Err(RedisError::from((Kind::Io, "the node is cut off from its Cluster")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::super::super::super::connection::{Server, ServerEpoch, Timing};
    use super::super::super::super::fake::{Fake, alive, at_once, bulk, layout};
    use super::*;
    use crate::support::runtime::TokioRuntime;
    use crate::support::sync::atomic::{AtomicBool, Ordering};

    const REFUSED: &str = "-ERR not for you\r\n";

    const NOT_THERE: u16 = 1;

    fn address(port: u16) -> Address {
        Address { host: "127.0.0.1".into(), port }
    }

    fn nodes_with(response: Duration, seeds: &[u16]) -> Arc<Nodes> {
        let timing = Timing { response, ..Timing::unhurried() };
        let common = Arc::new(Common::new(timing, TokioRuntime::current()));
        let dialer = Arc::new(Dialer::plain("redis://127.0.0.1:7000", &common));
        Nodes::new(dialer, common, seeds.iter().map(|port| address(*port)).collect())
    }

    fn nodes(seeds: &[u16]) -> Arc<Nodes> {
        nodes_with(Timing::default().response, seeds)
    }

    fn ports(nodes: &[Arc<Node>]) -> Vec<u16> {
        let address = |node: &Arc<Node>| Address::parse(&node.commands.server().address()).unwrap();
        nodes.iter().map(|node| address(node).port).collect()
    }

    fn shard(slots: std::ops::RangeInclusive<u16>, ports: &[u16]) -> Shard {
        let mut nodes = ports.iter().map(|port| address(*port));
        Shard { slots, master: nodes.next(), replicas: nodes.collect() }
    }

    #[tokio::test]
    async fn no_node_is_asked_twice_in_one_look() {
        let nodes = nodes(&[7000, 7001, 7000]);
        let other = nodes.at(address(7002));
        for first in [None, Some(other)] {
            for _ in 0..3 {
                let mut asked = ports(&nodes.candidates(first.clone()));
                assert!(first.is_none() || asked[0] == 7002, "{asked:?}");
                asked.sort_unstable();
                assert_eq!(asked, [7000, 7001, 7002]);
            }
        }
    }

    #[tokio::test]
    async fn looks_begin_with_each_known_node_in_turn() {
        let nodes = nodes(&[7000]);
        let known: Vec<u16> = (7001..7007).collect();
        for port in &known {
            nodes.at(address(*port));
        }
        let mut firsts: Vec<u16> = (0..12).map(|_| ports(&nodes.candidates(None))[0]).collect();
        // The first look has found the seed's node.
        firsts.retain(|port| *port != 7000);
        let begin = usize::from(firsts[0] - 7001);
        for (turn, first) in firsts.iter().enumerate() {
            assert_eq!(*first, known[(begin + turn) % known.len()], "{firsts:?}");
        }
    }

    #[tokio::test]
    async fn node_stays_the_same_for_as_long_as_the_cluster_has_it() {
        let nodes = nodes(&[7000]);
        nodes.learn(vec![shard(0..=8191, &[7001, 7002]), shard(8192..=SLOTS - 1, &[7003])]);
        let owners = || [0, 8191, 8192, SLOTS - 1].map(|slot| nodes.owner(slot).unwrap());
        let before = owners();
        assert_eq!(ports(&before), [7001, 7001, 7003, 7003]);
        let mut known = ports(&nodes.candidates(None));
        known.sort_unstable();
        assert_eq!(known, [7000, 7001, 7002, 7003]);
        // A replica takes over. Slots beyond the last are ignored.
        nodes.learn(vec![shard(0..=8191, &[7002, 7001]), shard(8192..=u16::MAX, &[7003])]);
        let after = owners();
        assert_eq!(ports(&after), [7002, 7002, 7003, 7003]);
        assert!(Arc::ptr_eq(&after[3], &before[3]) && Arc::ptr_eq(&nodes.at(address(7001)), &before[0]));
        let to = nodes.moved(8191, address(7004));
        assert!(Arc::ptr_eq(&to, &nodes.owner(8191).unwrap()) && ports(&[to]) == [7004]);
        nodes.learn(vec![shard(0..=8191, &[7002])]);
        assert!(nodes.owner(8192).is_none() && ports(&[nodes.owner(8191).unwrap()]) == [7002]);
    }

    #[tokio::test]
    async fn look_goes_on_until_a_node_has_answered() {
        let [silent, mut refuses, mut has_left, mut knows] =
            [Fake::silent().await, Fake::silent().await, Fake::silent().await, Fake::silent().await];
        refuses.answer(alive(|_| REFUSED.to_owned()));
        has_left.answer(alive(|_| layout(&[])));
        let all = layout(&[(0, SLOTS - 1, &[knows.port])]);
        knows.answer(alive(move |_| all.clone()));
        let nodes = nodes(&[NOT_THERE, silent.port, refuses.port, has_left.port, knows.port]);
        nodes.refresh(None).await.unwrap();
        assert_eq!(ports(&[nodes.owner(0).unwrap()]), [knows.port]);
        assert_eq!(knows.calls(), ["CLUSTER SLOTS"]);
        let (one, other) = tokio::join!(nodes.refresh(None), nodes.refresh(None));
        assert!(one.is_ok() && other.is_ok());
        assert_eq!(knows.calls().len(), 2);
        nodes.refresh(None).await.unwrap();
        assert_eq!(knows.calls().len(), 3);
    }

    #[tokio::test]
    async fn look_in_vain_says_what_a_node_has_said() {
        let mut refuses = Fake::silent().await;
        refuses.answer(alive(|_| REFUSED.to_owned()));
        for seeds in [[NOT_THERE, refuses.port], [refuses.port, NOT_THERE]] {
            let error = nodes(&seeds).refresh(None).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Refused, "{error}");
        }
        let mut has_left = Fake::silent().await;
        has_left.answer(alive(|_| layout(&[])));
        let error = nodes(&[has_left.port]).refresh(None).await.unwrap_err();
        assert!(error.to_string().contains("knows of no Cluster's slots"), "{error}");
    }

    #[tokio::test]
    async fn look_at_a_silent_node_ends_before_its_command() {
        const RESPONSE: Duration = Duration::from_millis(300);
        let mut silent = Fake::silent().await;
        silent.answer(alive(|_| String::new()));
        let nodes = nodes_with(RESPONSE, &[silent.port]);
        nodes.at(address(silent.port)).commands.live().await.unwrap();
        let mut look = pin!(nodes.refresh(None));
        let ended = match futures_util::future::select(&mut look, pin!(tokio::time::sleep(RESPONSE))).await {
            futures_util::future::Either::Left((ended, _)) => Some(ended),
            // A slow machine has slept past both limits.
            futures_util::future::Either::Right(_) => at_once(look).await,
        };
        let error = ended.expect("it has ended before").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        assert_eq!(silent.calls(), ["CLUSTER SLOTS"]);
    }

    fn info(state: &str) -> Option<String> {
        Some(bulk(&format!("cluster_enabled:1\r\ncluster_state:{state}\r\ncluster_slots_fail:0\r\n")))
    }

    async fn node(says: impl Fn() -> Option<String> + Send + Sync + 'static) -> (Arc<dyn Server>, Fake) {
        let common = Arc::new(Common::new(Timing::unhurried(), TokioRuntime::current()));
        let mut fake = Fake::silent().await;
        fake.answer(alive(move |_| says()));
        let dialer = Dialer::plain("redis://a", &common);
        let at = Address { host: "127.0.0.1".into(), port: fake.port };
        let nodes = Nodes::new(Arc::new(dialer), common, Vec::new());
        (Arc::clone(&nodes.at(at).listening), fake)
    }

    async fn dialled(reply: Option<String>) -> Result<(Arc<dyn Server>, ServerEpoch), Error> {
        let (node, fake) = node(move || reply.clone()).await;
        let dialled = node.dial(Arc::new(|_| {})).await;
        assert_eq!(fake.calls(), ["CLUSTER INFO"]);
        dialled.map(|(_, standing)| (node, standing))
    }

    #[tokio::test]
    async fn node_that_is_cut_off_is_not_subscribed_at() {
        assert!(dialled(info("ok")).await.is_ok());
        // A refusal is an answer, and shows no more.
        assert!(dialled(Some("-NOPERM not allowed\r\n".into())).await.is_ok());
        for reply in [info("fail"), Some("-LOADING it begins\r\n".into()), None] {
            let Err(error) = dialled(reply.clone()).await else { panic!("{reply:?}") };
            assert_eq!(error.kind(), ErrorKind::Connection);
        }
    }

    #[tokio::test]
    async fn node_that_is_cut_off_later_is_left_at_the_next_heartbeat() {
        let is_cut_off = Arc::new(AtomicBool::new(false));
        let says = {
            let is_cut_off = Arc::clone(&is_cut_off);
            // Ordering: Relaxed, the flag carries no other data.
            move || info(if is_cut_off.load(Ordering::Relaxed) { "fail" } else { "ok" })
        };
        let (node, _fake) = node(says).await;
        let (mut connection, _) = node.dial(Arc::new(|_| {})).await.unwrap_or_else(|error| panic!("{error}"));
        node.heartbeat(&mut connection).await.unwrap();
        // Ordering: Relaxed, as above.
        is_cut_off.store(true, Ordering::Relaxed);
        assert!(node.heartbeat(&mut connection).await.is_err());
    }

    /// The node's name may lead to another server by now.
    #[tokio::test]
    async fn node_that_is_not_the_one_that_is_meant_is_dialled_anew() {
        let Ok((node, standing)) = dialled(info("ok")).await else { panic!("it answers") };
        assert!(!standing.has_ended());
        node.invalidate(&standing);
        assert!(standing.has_ended());
    }
}

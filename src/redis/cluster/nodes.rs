//! [`Nodes`]: who has which slot, as far as is known here, and how to learn it anew.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{RedisError, Value};
use tokio::task::JoinSet;

use crate::runtime::Runtime;
use crate::sync::Mutex;

use super::super::commands::{Request, Way};
use super::super::error::{Error, ErrorKind};
use super::super::reconnects::Reconnects;
use super::super::server::Server;
use super::address::Address;
use super::layout::{self, Shard};
use super::node::{Common, Node};
use super::slot::SLOTS;

/// A node that has not said by then who has which slot is not waited for alone: the next one is asked as well.
const STAGGER: Duration = Duration::from_millis(100);
/// How long a node is waited for at most.
const LOOK: Duration = Duration::from_secs(1);

/// Who has which slot, as far as is known here. A node that we are wrong about says so, and a dead one shows.
pub(crate) struct Nodes {
    pub(super) common: Common,
    /// Where to begin, and where to ask when nobody else answers.
    seeds: Vec<Address>,
    map: Mutex<Map>,
    /// Held by who looks; the others wait for what he finds.
    looking: tokio::sync::Mutex<()>,
}

struct Map {
    known: HashMap<Address, Arc<Node>>,
    /// By slot.
    owners: Vec<Option<Arc<Node>>>,
    /// Counts the nodes that there ever were.
    numbers: u64,
    /// Counts the looks that have ended.
    looks: usize,
    /// Says with whom the next one begins: a node that is cut off from the others answers, too, and does not know better.
    turn: usize,
}

impl Map {
    fn node(&mut self, common: &Common, address: Address) -> Result<Arc<Node>, Error> {
        Ok(match self.known.entry(address) {
            Entry::Occupied(known) => Arc::clone(known.get()),
            Entry::Vacant(new) => {
                let node = common.node(self.numbers, new.key().clone())?;
                self.numbers += 1;
                Arc::clone(new.insert(node))
            }
        })
    }
}

impl Nodes {
    /// Knows nothing but `seeds`, of which there is at least one.
    pub(super) fn new(common: Common, seeds: Vec<Address>) -> Self {
        let owners = vec![None; usize::from(SLOTS)];
        let map = Mutex::new(Map { known: HashMap::new(), owners, numbers: 0, looks: 0, turn: 0 });
        Self { common, seeds, map, looking: tokio::sync::Mutex::default() }
    }

    pub(crate) fn reconnects(&self) -> &Reconnects {
        &self.common.reconnects
    }

    /// The node that has the slot.
    pub(super) fn owner(&self, slot: u16) -> Option<Arc<Node>> {
        self.map.lock().owners[usize::from(slot)].clone()
    }

    /// The node at `address`, which need not be known yet.
    pub(super) fn at(&self, address: Address) -> Result<Arc<Node>, Error> {
        self.map.lock().node(&self.common, address)
    }

    /// A node has said that another one, at `address`, has the slot.
    pub(super) fn moved(&self, slot: u16, address: Address) -> Result<Arc<Node>, Error> {
        let mut map = self.map.lock();
        let node = map.node(&self.common, address)?;
        map.owners[usize::from(slot)] = Some(Arc::clone(&node));
        Ok(node)
    }

    /// All that may know something: `first`, then who is known, then the seeds.
    pub(super) fn candidates(&self, first: Option<Arc<Node>>) -> Vec<Arc<Node>> {
        let mut map = self.map.lock();
        let mut known: Vec<_> = map.known.values().cloned().collect();
        known.sort_unstable_by_key(|node| node.number);
        if !known.is_empty() {
            let begin = map.turn % known.len();
            known.rotate_left(begin);
        }
        map.turn = map.turn.wrapping_add(1);
        let mut candidates: Vec<_> = first.into_iter().chain(known).collect();
        for seed in &self.seeds {
            if !candidates.iter().any(|node| node.address == *seed)
                && let Ok(node) = map.node(&self.common, seed.clone())
            {
                candidates.push(node);
            }
        }
        let mut seen = Vec::new();
        candidates.retain(|node| {
            !seen.contains(&node.number) && {
                seen.push(node.number);
                true
            }
        });
        candidates
    }

    /// The next of all nodes, to be subscribed at.
    pub(crate) fn next_server(&self) -> Option<Server> {
        self.candidates(None).first().map(|node| node.server.clone())
    }

    /// Learns anew who has which slot, from `first` if possible. The caller may go away meanwhile.
    pub(super) async fn refresh(self: &Arc<Self>, first: Option<Arc<Node>>) -> Result<(), Error> {
        let this = Arc::clone(self);
        let looked = self.common.runtime.handle.spawn(async move {
            let looks = this.map.lock().looks;
            let _turn = this.looking.lock().await;
            // What another has learned while we waited for our turn does for us.
            if this.map.lock().looks != looks {
                return Ok(());
            }
            let looked = this.look(first).await;
            this.map.lock().looks += 1;
            looked
        });
        looked.await.unwrap_or_else(|_| Err(Error::runtime_ended()))
    }

    /// As [`refresh`](Self::refresh), while the caller goes on.
    pub(super) fn refresh_soon(self: &Arc<Self>, first: Option<Arc<Node>>) {
        let this = Arc::clone(self);
        self.common.runtime.spawn(async move {
            // Nobody needs it yet, and who will need it looks for itself.
            let _ = this.refresh(first).await;
        });
    }

    /// Asks one after the other, without waiting long for any, until one has answered.
    async fn look(&self, first: Option<Arc<Node>>) -> Result<(), Error> {
        let candidates = self.candidates(first);
        let mut candidates = candidates.into_iter();
        let mut asked = JoinSet::new();
        let mut failure: Option<Error> = None;
        loop {
            let next = candidates.next();
            let last = next.is_none();
            if let Some(node) = next {
                asked.spawn(async move { ask(&node).await });
            } else if asked.is_empty() {
                return Err(failure.unwrap_or_else(Error::no_node));
            }
            let answer = tokio::select! {
                answer = asked.join_next() => answer,
                () = tokio::time::sleep(STAGGER), if !last => None,
            };
            match answer {
                Some(Ok(Ok(shards))) => {
                    self.learn(shards);
                    return Ok(());
                }
                Some(Ok(Err(error))) => {
                    event!(
                        DEBUG,
                        error = &error as &dyn std::error::Error,
                        "a node does not say who has which slot"
                    );
                    // One that refuses us says more than one that is not there.
                    if failure.as_ref().is_none_or(|known| known.kind() == ErrorKind::Connection) {
                        failure = Some(error);
                    }
                }
                Some(Err(_)) | None => {}
            }
        }
    }

    fn learn(&self, shards: Vec<Shard>) {
        let gone = {
            let mut map = self.map.lock();
            let mut old = std::mem::take(&mut map.known);
            let mut owners = vec![None; usize::from(SLOTS)];
            for shard in shards {
                for address in shard.master.iter().chain(&shard.replicas) {
                    if let Some(known) = old.remove(address) {
                        map.known.insert(address.clone(), known);
                    }
                }
                let mut nodes = shard
                    .master
                    .iter()
                    .chain(&shard.replicas)
                    .map(|address| map.node(&self.common, address.clone()));
                let master = nodes.next().and_then(Result::ok).filter(|_| shard.master.is_some());
                nodes.for_each(drop);
                for slot in shard.slots.filter(|slot| *slot < SLOTS) {
                    owners[usize::from(slot)].clone_from(&master);
                }
            }
            (old, std::mem::replace(&mut map.owners, owners))
        };
        // Closes their connections; after the mutex is free again.
        drop(gone);
    }
}

async fn ask(node: &Node) -> Result<Vec<Shard>, Error> {
    let mut command = ::redis::cmd("CLUSTER");
    command.arg("SLOTS");
    let request = Request::Command(&command);
    let reply = node.commands.run_as::<Value>(Way::Plain, LOOK, request).await?;
    let shards = reply.and_then(|reply| Ok(layout::read(reply, &node.address)?));
    match shards {
        Ok(shards) if shards.is_empty() => Err(Error::no_slots(&node.address.to_string())),
        Ok(shards) => Ok(shards),
        Err(error) if is_disabled(&error) => Err(Error::not_a_cluster(&node.address.to_string(), error)),
        Err(error) => Err(node.commands.failed(request, error)),
    }
}

fn is_disabled(error: &RedisError) -> bool {
    error.detail().is_some_and(|detail| detail.contains("cluster support disabled"))
}

impl fmt::Debug for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known: Vec<String> = self.map.lock().known.keys().map(ToString::to_string).collect();
        f.debug_struct("Nodes").field("known", &known).finish_non_exhaustive()
    }
}

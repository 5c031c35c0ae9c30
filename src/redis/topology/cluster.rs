//! A Redis Cluster: each command goes to the node that has its key's slot.
//!
//! The routing is our own and not the redis crate's: that one sends a command again after a reply that was
//! lost, and does not say so. But the answer to a release depends on whether it may have run twice.

mod address;
mod any_node;
mod error;
mod layout;
mod nodes;
mod slot;
mod subscribed_node;
mod url;

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use ::redis::{Cmd, RedisError};

use crate::backend::LockName;
use crate::lock::NameError;
use crate::runtime::Runtime;

use super::super::connection::{
    Address, Boxed, Common, ConnectOptions, Connection, Dialer, Error, Meaning, SendError, WireRequest,
};
use super::contract::{Hop, Messages, Node, Topology};
use super::url::parse;

use self::address::redirected;
use self::any_node::AnyNode;
use self::nodes::Nodes;
use self::slot::slot;

/// Which kind of messages tells the waiters of a Cluster that a lock is free.
///
/// All clients that share a lock have to agree, Redisson's included: a message of one kind is not heard by
/// subscribers of the other, and then each waiter sleeps until the lease that it waits for has ended.
///
/// # Examples
///
/// ```
/// use latchwork::redis::{Redis, ShardedMessages};
///
/// assert_eq!(ShardedMessages::default(), ShardedMessages::Auto);
/// // Beside clients of Redisson before 3.22:
/// let builder = Redis::builder().sharded_messages(ShardedMessages::Off);
/// # drop(builder);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardedMessages {
    /// Redisson's own rule: sharded ones if the server knows them, which Redis does since 7.0.
    #[default]
    Auto,
    /// Sharded ones (`SPUBLISH`): each goes to the node that has the lock, and from there to its subscribers.
    On,
    /// Plain ones (`PUBLISH`): each goes to every node of the Cluster. As clients of Redisson before 3.22 do.
    Off,
}

/// Each slot's commands go to its master; messages come from there, too, or from any node.
struct Cluster {
    nodes: Arc<Nodes>,
    messages: Messages,
    /// Where plain messages come from.
    any: Arc<Node>,
}

/// Over the nodes that `url` names, of which one at least must answer.
pub(super) async fn connect(
    url: &str,
    introduction: ConnectOptions,
    sharded: ShardedMessages,
    common: &Arc<Common>,
) -> Result<Arc<dyn Topology>, Error> {
    let urls = url::nodes(url).unwrap_or_default();
    let seeds = urls.iter().map(|url| parse(url)).collect::<Result<Vec<_>, _>>()?;
    if seeds.iter().any(|seed| seed.redis_settings().db() != 0) {
        return Err(Error::database_of_cluster());
    }
    let addresses = seeds.iter().filter_map(Address::of).collect();
    let Some(info) = seeds.into_iter().next() else { return Err(Error::url("it names no node")) };
    let dialer = Arc::new(Dialer::new(info, introduction, common)?);
    let nodes = Nodes::new(dialer, Arc::clone(common), addresses);
    nodes.refresh(None).await?;
    let sharded = match sharded {
        ShardedMessages::Auto => has_sharded_messages(&nodes, common).await?,
        ShardedMessages::On => true,
        ShardedMessages::Off => false,
    };
    let messages = if sharded { Messages::Sharded } else { Messages::Plain };
    let any = Arc::new(AnyNode::new(Arc::clone(&nodes)));
    let commands = Connection::new(any.clone(), common, None);
    let any = Arc::new(Node { number: 0, commands, listening: any });
    Ok(Arc::new(Cluster { nodes, messages, any }))
}

/// Whether sharded messages can be had. Asked as Redisson does, so that both come to the same.
async fn has_sharded_messages(nodes: &Nodes, common: &Common) -> Result<bool, Error> {
    let words = |question: &mut Cmd, _: Instant| _ = question.arg("PUBSUB").arg("SHARDNUMSUB");
    let request = WireRequest::plain(&words, common.timing.response);
    let mut failure = None;
    for node in nodes.candidates(None) {
        let now = common.runtime.now();
        let reply = node.commands.send(&request, false, now, now + request.limit).await;
        match reply {
            Ok(_) => return Ok(true),
            Err(SendError::NotSent(error)) => failure = Some(error),
            // It does not know the question. Not to be allowed to ask is no answer: taken for one, it would
            // hide receivers from clients that may ask.
            Err(SendError::Met(error))
                if Meaning::of(&error) == Meaning::Refused && error.code() != Some("NOPERM") =>
            {
                return Ok(false);
            }
            Err(SendError::Met(error)) => {
                let (address, question) = (node.commands.server().address(), request.command(false, now));
                failure = Some(Error::command(&address, &question, None, error));
            }
        }
    }
    Err(failure.unwrap_or_else(Error::no_node))
}

impl Topology for Cluster {
    fn node(&self, key: &str) -> Option<Arc<Node>> {
        self.nodes.owner(slot(key))
    }

    fn source(&self, channel: &str) -> Option<Arc<Node>> {
        match self.messages {
            Messages::Plain => Some(Arc::clone(&self.any)),
            Messages::Sharded => self.nodes.owner(slot(channel)),
        }
    }

    fn messages(&self) -> Messages {
        self.messages
    }

    fn knows_all_listeners(&self) -> bool {
        // To a plain message one may listen at any node.
        self.messages == Messages::Sharded
    }

    fn slot(&self, key: &str) -> u16 {
        slot(key)
    }

    fn redirect(&self, asked: &Node, key: &str, error: &RedisError) -> Option<Result<Hop, Error>> {
        let (to, _) = error.redirect_node()?;
        let address = redirected(to, &asked.commands.server().address())?;
        if error.code() == Some("ASK") {
            return Some(Ok(Hop { node: self.nodes.at(address), asking: true }));
        }
        let node = self.nodes.moved(slot(key), address);
        // Where one slot has gone others may have, too; and this one knows of itself at least.
        self.nodes.refresh_soon(Some(Arc::clone(&node)));
        Some(Ok(Hop { node, asking: false }))
    }

    fn look_again(&self) -> Boxed<'_, ()> {
        Box::pin(async { _ = self.nodes.refresh(None).await })
    }

    fn refresh_in_background(&self) {
        self.nodes.refresh_soon(None);
    }

    fn with_own_connections(&self) -> Arc<dyn Topology> {
        unreachable!("refused when connecting")
    }

    fn check_name(&self, name: &LockName) -> Result<(), NameError> {
        slot::check_name(name)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

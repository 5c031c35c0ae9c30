//! A Redis Cluster: each command goes to the node that has its key's slot.
//!
//! The routing is our own and not the redis crate's: that one sends a command again after a reply that was lost, and does not say
//! so. But the answer to a release depends on whether it may have run twice.

mod address;
mod layout;
mod line;
mod node;
mod nodes;
mod renewal;
mod sharded;
mod sharded_messages;
mod slot;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    Cmd, ConnectionInfo, ErrorKind as Kind, FromRedisValue, RedisError, RedisResult, ServerErrorKind, Value,
};

use crate::runtime::Runtime;

use self::address::Address;
use self::node::{Common, Node};
use super::back_off::BackOff;
use super::builder::RedisBuilder;
use super::commands::{Request, Sent, Way};
use super::error::{Error, ErrorKind};
use super::reconnects::Reconnects;
use super::subscriptions::is_refusal;
use super::timeouts::Timeouts;
use super::tokio_runtime::TokioRuntime;

pub(super) use self::nodes::Nodes;
pub(super) use self::sharded::supervise as supervise_sharded;
pub use self::sharded_messages::ShardedMessages;
pub(super) use self::slot::check_name;

/// How long to wait before a command that did not run is tried again: doubled each time, from the one to the other.
const BACK_OFF: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(200));
/// Redirects that are followed at once. Nodes that do not agree send us to and fro.
const REDIRECTS: u32 = 4;

/// Sends each command to the node that has its slot.
pub(super) struct Cluster {
    nodes: Arc<Nodes>,
    timeouts: Timeouts,
    runtime: TokioRuntime,
}

/// Where a command is to go next.
struct Hop {
    node: Arc<Node>,
    way: Way,
}

/// How often a command may run, and how long it may take.
#[derive(Clone, Copy)]
struct Terms {
    deadline: Instant,
    /// Whether it is sent once more if its reply is lost.
    again: bool,
    /// Whether to wait for keys that are with two nodes just now.
    patient: bool,
}

/// Why one attempt came to nothing. But for `Lost` and `Final` the command did not run.
enum Miss {
    /// Another node has the slot, or is about to and has what we want already.
    Named(Hop, Error),
    /// Somebody will be able to, in a while.
    NotNow(Error),
    /// Of several keys, not all are with the same node.
    Apart(Error),
    /// The connection broke before the reply.
    Lost(Error),
    Final(Error),
}

/// Why a command was given up.
enum Failed {
    /// Of several keys, not all are with the same node. It did not run.
    Apart(Error),
    Otherwise(Error),
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        match failed {
            Failed::Apart(error) | Failed::Otherwise(error) => error,
        }
    }
}

impl Cluster {
    /// Over `seeds`, of which one at least must answer.
    pub(super) async fn connect(
        builder: RedisBuilder,
        runtime: TokioRuntime,
        seeds: Vec<ConnectionInfo>,
    ) -> Result<Self, Error> {
        if seeds.iter().any(|seed| seed.redis_settings().db() != 0) {
            return Err(Error::database_of_cluster());
        }
        let addresses = seeds.iter().filter_map(Address::of).collect();
        let Some(info) = seeds.into_iter().next() else { return Err(Error::url("it names no node")) };
        let timeouts = builder.timeouts();
        let common =
            Common { builder, info, timeouts, runtime: runtime.clone(), reconnects: Reconnects::default() };
        let nodes = Arc::new(Nodes::new(common, addresses));
        nodes.refresh(None).await?;
        Ok(Self { nodes, timeouts, runtime })
    }

    pub(super) fn nodes(&self) -> &Arc<Nodes> {
        &self.nodes
    }

    /// Whether sharded messages can be had. Asked as Redisson does, so that both come to the same.
    pub(super) async fn has_sharded_messages(&self) -> Result<bool, Error> {
        let mut command = ::redis::cmd("PUBSUB");
        command.arg("SHARDNUMSUB");
        let request = Request::Command(&command);
        let mut failure = None;
        for node in self.nodes.candidates(None) {
            match node.commands.run_as::<Value>(Way::Plain, self.timeouts.response, request).await {
                Ok(Ok(_)) => return Ok(true),
                Ok(Err(error)) if is_refusal(&error) => return Ok(false),
                Ok(Err(error)) => failure = Some(node.commands.failed(request, error)),
                Err(error) => failure = Some(error),
            }
        }
        Err(failure.unwrap_or_else(Error::no_node))
    }

    /// Which node has the key: its number.
    pub(super) fn group(&self, key: &str) -> u64 {
        self.nodes.owner(slot::slot(key)).map_or(u64::MAX, |node| node.number)
    }

    /// Runs it once; or if `again`, and its reply is lost, once more.
    pub(super) async fn run<T: FromRedisValue>(
        &self,
        again: bool,
        request: Request<'_>,
    ) -> Result<(T, Sent), Error> {
        self.run_within(self.timeouts.response, again, request).await
    }

    pub(super) async fn run_within<T: FromRedisValue>(
        &self,
        limit: Duration,
        again: bool,
        request: Request<'_>,
    ) -> Result<(T, Sent), Error> {
        let deadline = self.runtime.now() + limit;
        Ok(self.route(Terms { deadline, again, patient: true }, request).await?)
    }

    /// Follows the slot wherever it goes, and tries again for as long as the command has not run and there is time.
    async fn route<T: FromRedisValue>(
        &self,
        terms: Terms,
        request: Request<'_>,
    ) -> Result<(T, Sent), Failed> {
        let slot = slot::slot(&request.key());
        let (mut back_off, mut redirects) = (BackOff::new(BACK_OFF.0, BACK_OFF.1), 0);
        // What was met when the first reply was lost: whatever comes after it, the command may have run.
        let mut lost: Option<Error> = None;
        let mut named: Option<Hop> = None;
        loop {
            let hop =
                named.take().or_else(|| self.nodes.owner(slot).map(|node| Hop { node, way: Way::Plain }));
            let miss = match &hop {
                Some(hop) => match self.attempt(hop, terms.deadline, slot, request).await {
                    Ok(reply) => {
                        let sent = if lost.is_some() { Sent::Twice } else { Sent::Once };
                        return Ok((reply, sent));
                    }
                    Err(miss) => miss,
                },
                None => Miss::NotNow(Error::no_owner(slot)),
            };
            let failure = match miss {
                Miss::Named(hop, failure) => {
                    named = Some(hop);
                    redirects += 1;
                    if redirects <= REDIRECTS {
                        continue;
                    }
                    failure
                }
                Miss::Lost(failure) if terms.again && lost.is_none() => {
                    lost = Some(failure);
                    continue;
                }
                Miss::Apart(failure) if !terms.patient => return Err(Failed::Apart(failure)),
                Miss::Lost(failure) | Miss::Final(failure) => {
                    return Err(Failed::Otherwise(lost.unwrap_or(failure)));
                }
                Miss::NotNow(failure) => {
                    let looking = self.nodes.refresh(None);
                    // If nobody answers, what became of the command is still the better thing to tell.
                    let _ = self.until(terms.deadline, looking).await;
                    failure
                }
                Miss::Apart(failure) => failure,
            };
            let again_at = self.runtime.now() + back_off.next();
            if again_at >= terms.deadline {
                return Err(Failed::Otherwise(lost.unwrap_or(failure)));
            }
            self.runtime.sleep_until(again_at).await;
        }
    }

    /// Sends it to one node.
    async fn attempt<T: FromRedisValue>(
        &self,
        hop: &Hop,
        deadline: Instant,
        slot: u16,
        request: Request<'_>,
    ) -> Result<T, Miss> {
        let limit = deadline.saturating_duration_since(self.runtime.now());
        let error = match hop.node.commands.run_as(hop.way, limit, request).await {
            Ok(Ok(reply)) => return Ok(reply),
            Ok(Err(error)) => error,
            Err(failure) => return Err(Miss::NotNow(failure)),
        };
        let redirect = error.redirect_node().and_then(|(to, _)| Address::in_redirect(to, &hop.node.address));
        let (kind, dropped) = (error.kind(), error.is_connection_dropped());
        let failure = hop.node.commands.failed(request, error);
        Err(match (kind, redirect) {
            (Kind::Server(ServerErrorKind::Moved), Some(address)) => match self.nodes.moved(slot, address) {
                Ok(node) => {
                    // Where one slot has gone others may have, too; and this one knows of itself at least.
                    self.nodes.refresh_soon(Some(Arc::clone(&node)));
                    Miss::Named(Hop { node, way: Way::Plain }, failure)
                }
                Err(failure) => Miss::Final(failure),
            },
            (Kind::Server(ServerErrorKind::Ask), Some(address)) => match self.nodes.at(address) {
                Ok(node) => Miss::Named(Hop { node, way: Way::Asking }, failure),
                Err(failure) => Miss::Final(failure),
            },
            (Kind::Server(ServerErrorKind::TryAgain), _) => Miss::Apart(failure),
            (
                Kind::Server(
                    ServerErrorKind::ClusterDown | ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown,
                ),
                _,
            ) => Miss::NotNow(failure),
            _ if dropped => {
                self.nodes.refresh_soon(None);
                Miss::Lost(failure)
            }
            _ => {
                if failure.kind() == ErrorKind::Unknown {
                    // The node is silent. If it is dead, the next command should not be sent there.
                    self.nodes.refresh_soon(None);
                }
                Miss::Final(failure)
            }
        })
    }

    /// `None` if `future` has not ended by then.
    async fn until<F: Future>(&self, deadline: Instant, future: F) -> Option<F::Output> {
        let over = self.runtime.sleep_until(deadline);
        tokio::select! {
            biased;
            output = future => Some(output),
            () = over => None,
        }
    }
}

/// Sends `command` to a node that is just taking its slot over.
pub(super) async fn ask<T: FromRedisValue>(
    command: &Cmd,
    connection: &mut MultiplexedConnection,
) -> RedisResult<T> {
    let mut both = ::redis::pipe();
    // In one piece, as others use the connection, too: the permission is for the very next command.
    both.cmd("ASKING").ignore().add_command(command.clone()).ignore_errors();
    let mut replies: Vec<RedisResult<T>> = both.query_async(connection).await?;
    replies.pop().unwrap_or_else(|| Err(RedisError::from((Kind::UnexpectedReturnType, "no reply"))))
}

/// An error if the node that we are subscribed at is cut off from the others: messages come to it by way of them.
pub(super) async fn in_touch(connection: &mut MultiplexedConnection) -> RedisResult<()> {
    let info: String = match ::redis::cmd("CLUSTER").arg("INFO").query_async(connection).await {
        Ok(info) => info,
        // Perhaps we may not ask. It does answer.
        Err(error) if is_refusal(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    if info.lines().any(|line| line.trim_end() == "cluster_state:fail") {
        return Err(RedisError::from((Kind::Io, "the node is cut off from its Cluster")));
    }
    Ok(())
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

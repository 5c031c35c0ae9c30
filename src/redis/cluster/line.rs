//! One connection for sharded messages, to one master.
//!
//! When a slot moves, its old master ends the subscriptions without being asked. The redis crate then takes that notice for the reply
//! of whatever command is under way, and is out of step from there on. So a line has one command under way at a time, looks whether
//! each reply is its own, and is given up for a new one if not.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ::redis::aio::MultiplexedConnection;
use ::redis::{
    AsyncConnectionConfig, ErrorKind as Kind, FromRedisValue, PushInfo, PushKind, RedisError, RedisResult,
    ServerErrorKind, Value,
};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::transport::SubscribeError;

use super::super::error::Error;
use super::super::subscriptions::{CHUNK, HEARTBEAT, HEARTBEAT_TIMEOUT};
use super::super::timeouts::Timeouts;
use super::super::transport::dispatch;
use super::super::wanted::Wanted;
use super::in_touch;
use super::node::Node;

/// What a line is to do.
pub(super) struct Order {
    pub(super) channel: Arc<str>,
    pub(super) what: Wish,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wish {
    Subscribe,
    /// As `Subscribe`, after messages may have been lost.
    Resubscribe,
    Unsubscribe,
}

/// What a line has to tell.
pub(super) enum News {
    /// It does what it is ordered to.
    Up,
    /// The node does not have this channel's slot, or not any more.
    Gone {
        node: u64,
        channel: Arc<str>,
    },
    Ended {
        node: u64,
        line: u64,
    },
}

/// One life of a line: until its connection breaks or falls out of step, or the transport is dropped.
pub(super) async fn serve(
    node: Arc<Node>,
    timeouts: Timeouts,
    wanted: Arc<Wanted>,
    mut orders: mpsc::UnboundedReceiver<Order>,
    tell: &mpsc::UnboundedSender<News>,
) -> RedisResult<()> {
    let (push, mut pushes) = mpsc::unbounded_channel();
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(timeouts.connect))
        .set_response_timeout(Some(HEARTBEAT_TIMEOUT))
        .set_push_sender({
            let wanted = Arc::clone(&wanted);
            move |info: PushInfo| -> Result<(), ()> {
                match info.kind {
                    PushKind::Disconnection => drop(push.send(None)),
                    PushKind::SUnsubscribe => drop(push.send(channel_of(&info.data))),
                    _ => dispatch(&wanted, info),
                }
                Ok(())
            }
        });
    // An error is as good as an end: who looks after the line makes the next one.
    let Ok((connection, _)) = node.server.connect(&config).await else { return Ok(()) };
    let mut line = Line { connection, node, wanted, subscribed: HashSet::new(), tell };
    in_touch(&mut line.connection).await?;
    let mut heartbeat = interval(HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            // In this order: notices of what we have ended ourselves are there by now, and must not meet what is begun anew.
            biased;
            push = pushes.recv() => match push.flatten() {
                Some(channel) => line.was_taken(&channel),
                None => return Ok(()),
            },
            _ = heartbeat.tick() => in_touch(&mut line.connection).await?,
            order = orders.recv() => {
                let Some(first) = order else { return Ok(()) };
                // Many that come together cost one round trip. Of several for one channel the last counts.
                let mut to_do = HashMap::from([(first.channel, first.what)]);
                while let Ok(next) = orders.try_recv() {
                    let lost_some = to_do.get(&next.channel) == Some(&Wish::Resubscribe);
                    let what = if lost_some && next.what == Wish::Subscribe { Wish::Resubscribe } else { next.what };
                    to_do.insert(next.channel, what);
                }
                line.obey(to_do).await?;
            }
        }
    }
}

struct Line<'a> {
    connection: MultiplexedConnection,
    node: Arc<Node>,
    wanted: Arc<Wanted>,
    subscribed: HashSet<Arc<str>>,
    tell: &'a mpsc::UnboundedSender<News>,
}

impl Line<'_> {
    /// The node has ended the subscription. If we have asked for that, it is no longer among ours.
    fn was_taken(&mut self, channel: &str) {
        if let Some(channel) = self.subscribed.take(channel) {
            self.gone(channel);
        }
    }

    fn gone(&self, channel: Arc<str>) {
        let _ = self.tell.send(News::Gone { node: self.node.number, channel });
    }

    async fn obey(&mut self, to_do: HashMap<Arc<str>, Wish>) -> RedisResult<()> {
        let (gone, wanted): (Vec<_>, Vec<_>) =
            to_do.into_iter().partition(|(_, wish)| *wish == Wish::Unsubscribe);
        let gone: Vec<_> =
            gone.into_iter().map(|(channel, _)| channel).filter(|it| self.subscribed.remove(it)).collect();
        for chunk in gone.chunks(CHUNK) {
            // One that was refused is not ours any more, as was wanted.
            self.send("SUNSUBSCRIBE", PushKind::SUnsubscribe, chunk).await?;
        }
        let new: Vec<_> = wanted.iter().map(|(channel, _)| channel).cloned().collect();
        let new: Vec<_> = new.into_iter().filter(|channel| !self.subscribed.contains(channel)).collect();
        for chunk in new.chunks(CHUNK) {
            let replies = self.send("SSUBSCRIBE", PushKind::SSubscribe, chunk).await?;
            for (channel, reply) in chunk.iter().zip(replies) {
                match reply {
                    Ok(()) => drop(self.subscribed.insert(Arc::clone(channel))),
                    Err(error) => self.not_subscribed(channel, error)?,
                }
            }
        }
        for (channel, wish) in wanted.iter().filter(|(channel, _)| self.subscribed.contains(channel)) {
            self.wanted.confirm(channel, *wish == Wish::Resubscribe);
        }
        let _ = self.tell.send(News::Up);
        Ok(())
    }

    /// An error if the whole line is no good.
    fn not_subscribed(&self, channel: &Arc<str>, error: RedisError) -> RedisResult<()> {
        match error.kind() {
            Kind::Server(ServerErrorKind::Moved) => self.gone(Arc::clone(channel)),
            Kind::Server(
                ServerErrorKind::ClusterDown | ServerErrorKind::BusyLoading | ServerErrorKind::MasterDown,
            ) => return Err(error),
            _ => {
                if let Some(inbox) = self.wanted.refuse(channel) {
                    let mut command = ::redis::cmd("SSUBSCRIBE");
                    let error = Error::command(&self.node.server.address(), command.arg(&**channel), error);
                    inbox.failed(SubscribeError::new(error));
                }
            }
        }
        Ok(())
    }

    /// One command for each channel, as each is answered for itself; in one piece. An error if replies are not those to them.
    async fn send(
        &mut self,
        name: &str,
        confirms: PushKind,
        channels: &[Arc<str>],
    ) -> RedisResult<Vec<RedisResult<()>>> {
        let mut commands = ::redis::pipe();
        commands.ignore_errors();
        for channel in channels {
            commands.cmd(name).arg(&**channel);
        }
        let replies: Vec<Value> = commands.query_async(&mut self.connection).await?;
        channels
            .iter()
            .zip(replies)
            .map(|(channel, reply)| match reply {
                Value::ServerError(error) => Ok(Err(error.into())),
                Value::Push { kind, data }
                    if kind == confirms && channel_of(&data).as_deref() == Some(&**channel) =>
                {
                    Ok(Ok(()))
                }
                _ => Err(RedisError::from((Kind::UnexpectedReturnType, "out of step"))),
            })
            .collect()
    }
}

/// The channel that a notice is about.
fn channel_of(data: &[Value]) -> Option<String> {
    String::from_redis_value_ref(data.first()?).ok()
}

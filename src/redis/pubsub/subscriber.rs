//! A subscriber: keeps the subscriptions at one node, over a connection of its own.
//!
//! When a slot moves, its old master ends the subscriptions without being asked. The redis crate then takes
//! that notice for the reply of whatever command is under way, and is out of step from there on. So each
//! channel is subscribed to by a command of its own, each reply is looked at, and a connection that is out of
//! step is given up for a new one.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

use ::redis::{FromRedisValue, PushInfo, PushKind, RedisError, RedisResult, Value};
use tokio::sync::mpsc;

use crate::transport::SubscribeError;

use super::super::connection::{Common, Connection, Error, Live, Meaning, Push, out_of_step};
use super::super::topology::{Messages, Node};
use super::deliveries::Deliveries;
use super::desired::{Desired, tell};

/// Channels that are subscribed to in one piece, so that they do not hold up the server.
const CHUNK: usize = 500;

/// What a subscriber is to do about a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Subscribe,
    /// As `Subscribe`, after messages may have been lost.
    Resubscribe,
    Unsubscribe,
}

/// What a subscriber has to tell.
pub(super) enum News {
    /// The node does not have this channel's slot, or not any more.
    Gone { node: u64, channel: Arc<str> },
    /// Its connection broke. It makes another.
    Down { node: u64 },
}

/// What comes unasked, besides messages.
enum Notice {
    /// The node has ended a subscription.
    Ended(String),
}

pub(super) struct Subscriber {
    node: Arc<Node>,
    connection: Connection,
    desired: Arc<Desired>,
    commands: Commands,
    /// What is to be subscribed to; and whether messages may have been lost since it was last.
    ours: BTreeMap<Arc<str>, bool>,
    /// What is subscribed to over the connection that there is.
    subscribed: HashSet<Arc<str>>,
    /// There was a connection before.
    stood: bool,
    orders: mpsc::UnboundedReceiver<(Arc<str>, Wish)>,
    notices: mpsc::UnboundedReceiver<Notice>,
    tell: mpsc::UnboundedSender<News>,
}

/// The commands for one kind of messages.
struct Commands {
    subscribe: (&'static str, PushKind),
    unsubscribe: (&'static str, PushKind),
}

impl Commands {
    fn of(messages: Messages) -> Self {
        match messages {
            Messages::Plain => Self {
                subscribe: ("SUBSCRIBE", PushKind::Subscribe),
                unsubscribe: ("UNSUBSCRIBE", PushKind::Unsubscribe),
            },
            Messages::Sharded => Self {
                subscribe: ("SSUBSCRIBE", PushKind::SSubscribe),
                unsubscribe: ("SUNSUBSCRIBE", PushKind::SUnsubscribe),
            },
        }
    }
}

impl Subscriber {
    pub(super) fn new(
        node: Arc<Node>,
        messages: Messages,
        common: &Arc<Common>,
        deliveries: Deliveries,
        orders: mpsc::UnboundedReceiver<(Arc<str>, Wish)>,
        tell: mpsc::UnboundedSender<News>,
    ) -> Self {
        let (notice, notices) = mpsc::unbounded_channel();
        let push: Push = Arc::new({
            let deliveries = deliveries.clone();
            move |push: PushInfo| match push.kind {
                PushKind::SUnsubscribe => {
                    // Fails only when the subscriber has ended.
                    let _ = channel_of(&push.data).map(|channel| notice.send(Notice::Ended(channel)));
                }
                _ => deliveries.dispatch(push),
            }
        });
        let connection = Connection::new(Arc::clone(&node.listening), common, Some(push));
        let (commands, desired) = (Commands::of(messages), deliveries.desired);
        let (ours, subscribed) = (BTreeMap::new(), HashSet::new());
        Self { node, connection, desired, commands, ours, subscribed, stood: false, orders, notices, tell }
    }

    /// Keeps the subscriptions as ordered, through every loss of the connection, until the sender of orders
    /// is gone.
    pub(super) async fn run(mut self) {
        loop {
            let dialled = {
                let live = self.connection.live();
                tokio::pin!(live);
                loop {
                    tokio::select! {
                        biased;
                        live = &mut live => break live,
                        order = self.orders.recv() => match order {
                            Some((channel, wish)) => _ = note(&mut self.ours, channel, wish),
                            None => return,
                        },
                    }
                }
            };
            // The connection waits before it dials again.
            let Ok(live) = dialled else { continue };
            // Those of the connection before.
            while self.notices.try_recv().is_ok() {}
            self.subscribed.clear();
            if self.serve(&live).await.is_ok() {
                return;
            }
            self.connection.give_up(&live);
            for (channel, lost_some) in &mut self.ours {
                *lost_some |= self.subscribed.contains(channel);
                self.desired.mark_lost(channel);
            }
            // Fails only when the sender of orders is gone, too.
            let _ = self.tell.send(News::Down { node: self.node.number });
        }
    }

    /// Until the connection is of no use, which is the error; or until the sender of orders is gone.
    async fn serve(&mut self, live: &Live) -> RedisResult<()> {
        let all = self.ours.keys().cloned().collect();
        self.subscribe(live, all).await?;
        if std::mem::replace(&mut self.stood, true) {
            event!(DEBUG, channels = self.subscribed.len(), "subscriptions are back");
        }
        let connection = self.connection.clone();
        let ended = connection.ended(live);
        tokio::pin!(ended);
        loop {
            tokio::select! {
                // In this order: notices of what we have ended ourselves are there by now, and must not meet
                // what is begun anew.
                biased;
                notice = self.notices.recv() => {
                    if let Some(Notice::Ended(channel)) = notice {
                        self.was_taken(&channel);
                    }
                }
                () = &mut ended => return Err(out_of_step()),
                order = self.orders.recv() => match order {
                    Some(first) => self.obey(live, first).await?,
                    None => return Ok(()),
                },
            }
        }
    }

    /// The node has ended the subscription. If we have asked for that, it is no longer among ours.
    fn was_taken(&mut self, channel: &str) {
        if let Some(channel) = self.subscribed.take(channel) {
            self.gone(channel);
        }
    }

    fn gone(&mut self, channel: Arc<str>) {
        self.ours.remove(&channel);
        let _ = self.tell.send(News::Gone { node: self.node.number, channel });
    }

    /// Many orders that come together cost one round trip. Of several for one channel the last counts.
    async fn obey(&mut self, live: &Live, first: (Arc<str>, Wish)) -> RedisResult<()> {
        let mut changed = BTreeSet::new();
        let mut next = Some(first);
        while let Some((channel, wish)) = next {
            changed.insert(note(&mut self.ours, channel, wish));
            next = self.orders.try_recv().ok();
        }
        let (wanted, unwanted): (Vec<_>, Vec<_>) =
            changed.into_iter().partition(|channel| self.ours.contains_key(channel));
        let unwanted: Vec<_> =
            unwanted.into_iter().filter(|channel| self.subscribed.remove(channel)).collect();
        for chunk in unwanted.chunks(CHUNK) {
            let replies = self.send(live, &self.commands.unsubscribe, chunk).await?;
            // It is not ours any more, as was wanted; but its messages go on coming.
            for (_channel, _error) in
                chunk.iter().zip(replies).filter_map(|(at, reply)| Some((at, reply.err()?)))
            {
                event!(
                    WARN,
                    channel = &**_channel,
                    error = &_error as &dyn std::error::Error,
                    "not unsubscribed"
                );
            }
        }
        self.subscribe(live, wanted).await
    }

    /// Subscribes to those that are not subscribed to yet, and confirms all.
    async fn subscribe(&mut self, live: &Live, wanted: Vec<Arc<str>>) -> RedisResult<()> {
        let new: Vec<_> =
            wanted.iter().filter(|channel| !self.subscribed.contains(*channel)).cloned().collect();
        for chunk in new.chunks(CHUNK) {
            let replies = self.send(live, &self.commands.subscribe, chunk).await?;
            for (channel, reply) in chunk.iter().zip(replies) {
                match reply {
                    Ok(()) => drop(self.subscribed.insert(Arc::clone(channel))),
                    Err(error) => self.not_subscribed(channel, error)?,
                }
            }
        }
        for channel in wanted.iter().filter(|channel| self.subscribed.contains(*channel)) {
            let lost_some = self.ours.get_mut(channel).is_some_and(std::mem::take);
            self.desired.confirm(channel, lost_some);
        }
        Ok(())
    }

    /// An error if the whole connection is no good.
    fn not_subscribed(&mut self, channel: &Arc<str>, error: RedisError) -> RedisResult<()> {
        match Meaning::of(&error) {
            Meaning::Elsewhere => self.gone(Arc::clone(channel)),
            Meaning::NotServing | Meaning::Lost => return Err(error),
            _ => {
                self.ours.remove(channel);
                let mut command = ::redis::cmd(self.commands.subscribe.0);
                let address = self.connection.server().address();
                let error = Error::command(&address, command.arg(&**channel), None, error);
                let error = SubscribeError::new(error);
                tell(self.desired.refuse(channel), |inbox| inbox.failed(error.clone()));
            }
        }
        Ok(())
    }

    /// One command for each channel, as each is answered for itself; in one piece. An error if replies are
    /// not those to them.
    async fn send(
        &self,
        live: &Live,
        (name, confirms): &(&'static str, PushKind),
        channels: &[Arc<str>],
    ) -> RedisResult<Vec<RedisResult<()>>> {
        let mut commands = ::redis::pipe();
        commands.ignore_errors();
        for channel in channels {
            commands.cmd(name).arg(&**channel);
        }
        let replies: Vec<Value> = commands.query_async(&mut live.inner.clone()).await?;
        let confirmed = |channel: &Arc<str>, reply| match reply {
            Value::ServerError(error) => Ok(Err(error.into())),
            Value::Push { kind, data }
                if kind == *confirms && channel_of(&data).as_deref() == Some(&**channel) =>
            {
                Ok(Ok(()))
            }
            _ => Err(out_of_step()),
        };
        channels.iter().zip(replies).map(|(channel, reply)| confirmed(channel, reply)).collect()
    }
}

/// Writes down what is wanted of a channel.
fn note(ours: &mut BTreeMap<Arc<str>, bool>, channel: Arc<str>, wish: Wish) -> Arc<str> {
    match wish {
        Wish::Unsubscribe => _ = ours.remove(&channel),
        _ => *ours.entry(Arc::clone(&channel)).or_default() |= wish == Wish::Resubscribe,
    }
    channel
}

/// The channel that a notice is about.
fn channel_of(data: &[Value]) -> Option<String> {
    String::from_redis_value_ref(data.first()?).ok()
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::super::super::fake::{Fake, SOON, push};
    use super::super::super::nonces::Nonces;
    use super::super::{topology_of, unhurried};
    use super::*;
    use crate::registry::{Registry, Subscription};
    use crate::sync::Mutex;

    /// A subscriber, and the node that it subscribes at.
    struct Subscribing {
        fake: Fake,
        /// What commands are answered by, each once, where that is not what a node says.
        instead: Arc<Mutex<Vec<(&'static str, String)>>>,
        registry: Registry<Arc<Desired>>,
        orders: mpsc::UnboundedSender<(Arc<str>, Wish)>,
        news: mpsc::UnboundedReceiver<News>,
    }

    impl Subscribing {
        async fn start() -> Self {
            let instead = Arc::<Mutex<Vec<(&str, String)>>>::default();
            let answers = Arc::clone(&instead);
            let fake = Fake::start(move |command| {
                let mut instead = answers.lock();
                match (instead.iter().position(|(to, _)| *to == command), command.split_once(' ')) {
                    (Some(at), _) => instead.remove(at).1,
                    (None, Some((name, channel))) => push(&name.to_lowercase(), channel),
                    (None, None) => "+PONG\r\n".to_owned(),
                }
            })
            .await;
            let common = unhurried();
            let node = topology_of(&fake, &common).await.source("").expect("there is one for all");
            let desired = Arc::new(Desired::default());
            let deliveries = Deliveries::new(&desired, &Arc::new(Nonces::new(&common.runtime)));
            let ((orders, to_do), (tell, news)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
            let subscriber = Subscriber::new(node, Messages::Sharded, &common, deliveries, to_do, tell);
            tokio::spawn(subscriber.run());
            Self { fake, instead, registry: Registry::new(desired), orders, news }
        }

        fn once(&self, command: &'static str, answer: impl Into<String>) {
            self.instead.lock().push((command, answer.into()));
        }

        fn order(&self, channel: &str, wish: Wish) {
            self.orders.send((channel.into(), wish)).expect("it runs");
        }

        /// One that waits, and that the subscriber is told of.
        fn want(&self, channel: &str) -> Subscription<Arc<Desired>> {
            let subscription = self.registry.subscribe(channel);
            self.order(channel, Wish::Subscribe);
            subscription
        }

        /// The same, of one that is confirmed: all that was ordered before is done.
        async fn have(&self, channel: &str) -> Subscription<Arc<Desired>> {
            let subscription = self.want(channel);
            confirmed(&subscription).await;
            subscription
        }

        fn resubscribed(&self) -> u64 {
            self.registry.stats().resubscriptions
        }

        async fn hear(&mut self) -> News {
            timeout(SOON, self.news.recv()).await.expect("no news").expect("it runs")
        }

        async fn hear_of(&mut self, gone: &str) {
            let news = self.hear().await;
            assert!(matches!(&news, News::Gone { node: 0, channel } if &**channel == gone));
        }

        async fn hear_of_another_connection(&mut self) {
            assert!(matches!(self.hear().await, News::Down { node: 0 }));
        }

        /// Over the next connection neither.
        async fn assert_not_asked_for_again(&mut self, subscribe: &str) {
            self.fake.cut();
            self.hear_of_another_connection().await;
            let _ = self.have("b").await;
            assert_eq!(self.fake.count(subscribe), 1);
        }
    }

    async fn confirmed(subscription: &Subscription<Arc<Desired>>) {
        timeout(SOON, subscription.subscribed()).await.expect("it is not confirmed").unwrap();
    }

    /// The supervisor looks for the node that has it. Its waiters go on waiting.
    #[tokio::test]
    async fn channel_that_is_another_nodes_is_told_to_be_gone_and_not_asked_for_again() {
        let mut at = Subscribing::start().await;
        at.once("SSUBSCRIBE a", "-MOVED 1 127.0.0.1:1\r\n");
        let a = at.want("a");
        at.hear_of("a").await;
        assert!(a.failure().is_none());
        at.assert_not_asked_for_again("SSUBSCRIBE a").await;
    }

    /// As when its slot moves. What we have ended ourselves is answered in the same words.
    #[tokio::test]
    async fn subscription_that_the_node_ends_is_told_to_be_gone_and_can_be_had_again() {
        let mut at = Subscribing::start().await;
        let _a = at.have("a").await;
        at.once("SSUBSCRIBE b", push("ssubscribe", "b") + &push("sunsubscribe", "a"));
        let _b = at.have("b").await;
        at.hear_of("a").await;
        at.order("a", Wish::Subscribe);
        at.fake.until("SSUBSCRIBE a", 2).await;
        at.order("a", Wish::Unsubscribe);
        at.fake.until("SUNSUBSCRIBE a", 1).await;
        let _ = at.have("c").await;
        assert!(at.news.try_recv().is_err());
    }

    /// Over the next one the channel is subscribed to.
    #[tokio::test]
    async fn subscription_that_ended_with_its_connection_has_not_ended_over_the_next_one() {
        let mut at = Subscribing::start().await;
        let _a = at.have("a").await;
        // Behind the notice comes what is no reply.
        at.once("SSUBSCRIBE b", push("sunsubscribe", "a") + "?\r\n");
        let b = at.want("b");
        at.hear_of_another_connection().await;
        confirmed(&b).await;
        let _ = at.have("c").await;
        assert!(at.news.try_recv().is_err());
        assert_eq!(at.fake.count("SSUBSCRIBE a"), 2);
    }

    #[tokio::test]
    async fn waiters_are_told_that_a_channel_is_refused_and_it_is_not_asked_for_again() {
        let mut at = Subscribing::start().await;
        at.once("SSUBSCRIBE a", "-NOPERM No permissions to access a channel\r\n");
        let a = at.want("a");
        timeout(SOON, a.subscribed()).await.expect("it is not told").unwrap_err();
        at.assert_not_asked_for_again("SSUBSCRIBE a").await;
    }

    /// A server that cannot say yet, or the reply to another command: from there on, all would be another's.
    #[tokio::test]
    async fn connection_whose_replies_say_nothing_is_left_for_another_one() {
        let mut at = Subscribing::start().await;
        let mut have = vec![at.have("a").await];
        for (channel, command, said) in [
            ("b", "SSUBSCRIBE b", "-LOADING Redis is loading the dataset in memory\r\n".to_owned()),
            ("c", "SSUBSCRIBE c", push("ssubscribe", "a")),
            ("d", "SSUBSCRIBE d", push("sunsubscribe", "d")),
        ] {
            let (connections, lost) = (at.fake.count("HELLO"), at.resubscribed() + have.len() as u64);
            at.once(command, &said);
            let next = at.want(channel);
            at.hear_of_another_connection().await;
            confirmed(&next).await;
            assert_eq!(at.fake.count("HELLO"), connections + 1, "{said}");
            assert_eq!(at.resubscribed(), lost, "{said}: messages of those before may have been lost");
            have.push(next);
        }
    }

    #[tokio::test]
    async fn waiters_look_again_where_messages_may_have_been_lost_and_only_there() {
        let mut at = Subscribing::start().await;
        let _a = at.have("a").await;
        assert_eq!(at.resubscribed(), 0);
        // It came from another node. And another waiter comes while that is under way.
        let b = at.registry.subscribe("b");
        at.order("b", Wish::Resubscribe);
        at.order("b", Wish::Subscribe);
        confirmed(&b).await;
        assert_eq!(at.resubscribed(), 1);
        at.order("b", Wish::Subscribe);
        let _c = at.have("c").await;
        assert_eq!(at.resubscribed(), 1, "nothing was lost since");
        at.fake.cut();
        at.hear_of_another_connection().await;
        let _ = at.have("d").await;
        assert_eq!(at.resubscribed(), 1 + 3);
    }
}

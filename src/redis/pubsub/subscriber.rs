//! A subscriber: keeps the subscriptions at one node, over a connection of its own.
//!
//! When a slot moves, its old master ends the subscriptions unasked. The redis crate takes that notice for
//! the reply to the command in flight, and each later reply for the wrong command's. So each channel has a
//! command of its own, each reply is checked, and a connection out of step is replaced.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use ::redis::{FromRedisValue, Msg, PushInfo, PushKind, RedisError, RedisResult, Value};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::subscription::{Message, SubscribeError};

use super::super::connection::{Common, Connection, Error, Live, Meaning, Push, out_of_step};
use super::super::keys::Nonces;
use super::super::keys::{GRANTED, READ_UNLOCK_MESSAGE, UNLOCK_MESSAGE};
use super::super::topology::{Node, Topology};
use super::channels::{ChannelTable, Source};

/// Limit of channels in one pipeline, so that subscribing does not hold up the server.
const CHUNK_SIZE: usize = 500;

/// Names of channels whose subscription may differ from the table. The subscriber reads the table when it
/// serves a change, so an old change cannot undo a newer one.
pub(super) type Changes = UnboundedReceiver<Arc<str>>;

#[derive(Clone)]
pub(super) struct Shared {
    pub(super) topology: Arc<dyn Topology>,
    pub(super) common: Arc<Common>,
    pub(super) channels: Arc<ChannelTable>,
    pub(super) nonces: Arc<Nonces>,
}

pub(super) struct Subscriber {
    shared: Shared,
    /// The node, as a source of channels.
    here: Source,
    connection: Connection,
    commands: [Command; 2],
    /// Channels subscribed to over the present connection.
    subscribed: HashSet<Arc<str>>,
    /// True if an earlier connection stood.
    stood: bool,
    changes: Changes,
    /// Channels whose subscription the node has ended unasked.
    ended: UnboundedReceiver<String>,
    /// Tells the supervisor, if there is one, that a channel has lost its node, or the node its connection.
    tell: UnboundedSender<()>,
}

/// A command to subscribe or unsubscribe, and the kind of its confirmation.
type Command = (&'static str, PushKind);

fn commands(is_sharded: bool) -> [Command; 2] {
    if is_sharded {
        [("SSUBSCRIBE", PushKind::SSubscribe), ("SUNSUBSCRIBE", PushKind::SUnsubscribe)]
    } else {
        [("SUBSCRIBE", PushKind::Subscribe), ("UNSUBSCRIBE", PushKind::Unsubscribe)]
    }
}

impl Subscriber {
    pub(super) fn new(node: Arc<Node>, shared: Shared, changes: Changes, tell: UnboundedSender<()>) -> Self {
        let (end, ended) = mpsc::unbounded_channel();
        let push: Push = Arc::new({
            let (channels, nonces) = (Arc::clone(&shared.channels), Arc::clone(&shared.nonces));
            move |push: PushInfo| match push.kind {
                // Fails only if the subscriber has ended.
                PushKind::SUnsubscribe => _ = channel_of(&push.data).map(|channel| end.send(channel)),
                _ => dispatch(push, &channels, &nonces),
            }
        });
        let connection = Connection::new(Arc::clone(&node.listening), &shared.common, Some(push));
        let commands = commands(shared.topology.is_sharded());
        let (here, subscribed) = (Some(node.number), HashSet::new());
        Self { shared, here, connection, commands, subscribed, stood: false, changes, ended, tell }
    }

    /// Keeps the subscriptions as the table says, until the sender of changes is gone.
    pub(super) async fn run(mut self) {
        loop {
            let dialled = self.connection.live().await;
            if self.changes.is_closed() {
                return;
            }
            // The connection itself pauses before the next dial.
            let Ok(live) = dialled else { continue };
            // Forget notices of the previous connection.
            while self.ended.try_recv().is_ok() {}
            self.subscribed.clear();
            if self.serve(&live).await.is_ok() {
                return;
            }
            self.connection.give_up(&live);
            self.shared.channels.interrupt(self.here);
            // Another node may take over the slots soon.
            self.shared.topology.refresh_in_background();
            // Fails if there is no supervisor.
            let _ = self.tell.send(());
        }
    }

    /// Serves changes. Fails when the connection is of no use; returns when the sender of changes is gone.
    async fn serve(&mut self, live: &Live) -> RedisResult<()> {
        self.subscribe(live, self.shared.channels.all_of(self.here)).await?;
        if std::mem::replace(&mut self.stood, true) {
            event!(DEBUG, channels = self.subscribed.len(), "subscriptions are back");
        }
        let connection = self.connection.clone();
        let gone = connection.ended(live);
        tokio::pin!(gone);
        loop {
            tokio::select! {
                // Notices of unsubscriptions first: they must not end new subscriptions to the same channel.
                biased;
                Some(channel) = self.ended.recv() => {
                    // After an unsubscription of ours, the channel is not in the set.
                    if let Some(channel) = self.subscribed.take(&*channel) {
                        self.lose(&channel);
                    }
                }
                () = &mut gone => return Err(out_of_step()),
                change = self.changes.recv() => match change {
                    Some(first) => self.serve_changes(live, first).await?,
                    None => return Ok(()),
                },
            }
        }
    }

    fn lose(&self, channel: &str) {
        if self.shared.channels.lose(channel, self.here) {
            let _ = self.tell.send(());
        }
    }

    /// Serves all pending changes in one round trip.
    async fn serve_changes(&mut self, live: &Live, first: Arc<str>) -> RedisResult<()> {
        let mut changed = BTreeSet::from([first]);
        while let Ok(next) = self.changes.try_recv() {
            changed.insert(next);
        }
        let (wanted, mut unwanted): (Vec<_>, Vec<_>) =
            changed.into_iter().partition(|channel| self.shared.channels.is_wanted(channel, self.here));
        unwanted.retain(|channel| self.subscribed.remove(channel));
        for chunk in unwanted.chunks(CHUNK_SIZE) {
            let replies = self.send(live, &self.commands[1], chunk).await?;
            // After an error the channel is out of `subscribed`, as wanted, but its messages keep coming.
            for (_channel, reply) in chunk.iter().zip(replies) {
                if let Err(_error) = reply {
                    let _error = &_error as &dyn std::error::Error;
                    event!(WARN, channel = &**_channel, error = _error, "not unsubscribed");
                }
            }
        }
        self.subscribe(live, wanted).await
    }

    /// Subscribes to the channels that are not subscribed to yet, and confirms all `wanted`.
    async fn subscribe(&mut self, live: &Live, wanted: Vec<Arc<str>>) -> RedisResult<()> {
        let new: Vec<_> =
            wanted.iter().filter(|channel| !self.subscribed.contains(*channel)).cloned().collect();
        for chunk in new.chunks(CHUNK_SIZE) {
            let replies = self.send(live, &self.commands[0], chunk).await?;
            for (channel, reply) in chunk.iter().zip(replies) {
                match reply {
                    Ok(()) => drop(self.subscribed.insert(Arc::clone(channel))),
                    Err(error) => self.not_subscribed(channel, error)?,
                }
            }
        }
        for channel in wanted.iter().filter(|channel| self.subscribed.contains(*channel)) {
            self.shared.channels.confirm(channel, self.here);
        }
        Ok(())
    }

    /// Handles a refused channel. Fails if the whole connection is of no use.
    fn not_subscribed(&mut self, channel: &Arc<str>, error: RedisError) -> RedisResult<()> {
        match Meaning::of(&error) {
            Meaning::Elsewhere => self.lose(channel),
            Meaning::NotServing | Meaning::Lost => return Err(error),
            _ => {
                let mut command = ::redis::cmd(self.commands[0].0);
                let address = self.connection.server().address();
                let error = Error::command(&address, command.arg(&**channel), error);
                self.shared.channels.refuse(channel, SubscribeError::new(error));
            }
        }
        Ok(())
    }

    /// Sends one command for each channel, in one piece. Fails if the replies do not match the commands.
    async fn send(
        &self,
        live: &Live,
        (name, confirms): &Command,
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

fn channel_of(data: &[Value]) -> Option<String> {
    String::from_redis_value_ref(data.first()?).ok()
}

/// Delivers a message to the inboxes of its channel. Runs on the connection's task.
fn dispatch(push: PushInfo, channels: &ChannelTable, nonces: &Nonces) {
    // `None`: a confirmation.
    let Some(message) = Msg::from_push_info(push) else { return };
    let channel = message.get_channel_name();
    // Ignore the messages of other programs.
    if let Some(said) = read(message.get_payload_bytes(), |number| nonces.of(channel, number)) {
        channels.deliver(channel, said);
    }
}

/// Parses a message. `nonce` returns a waiter's nonce by its number. A grant with a wrong nonce only makes
/// the waiter ask: the store did not send the grant, or has lost the nonce.
fn read(payload: &[u8], nonce: impl Fn(u64) -> u64) -> Option<Message> {
    match std::str::from_utf8(payload).ok()? {
        UNLOCK_MESSAGE => Some(Message::Unlock),
        READ_UNLOCK_MESSAGE => Some(Message::ReadUnlock),
        other => {
            let (number, proof) = other.strip_prefix(GRANTED)?.split_once(':')?;
            // `parse` accepts a sign.
            let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
            let number = is_number.then(|| number.parse().ok())??;
            let is_hex = proof.len() == 16 && proof.bytes().all(|byte| byte.is_ascii_hexdigit());
            let proof = is_hex.then(|| u64::from_str_radix(proof, 16).ok()).flatten();
            let is_proven = proof == Some(nonce(number));
            Some(if is_proven { Message::Granted(number) } else { Message::Unlock })
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::timeout;

    use super::super::super::fake::{EVENT_LIMIT, Fake, push};
    use super::super::super::hostile::{WORDS, attack, reply};
    use super::super::{topology_of, unhurried};
    use super::*;
    use crate::subscription::{Registry, Subscription};
    use crate::support::runtime::TokioRuntime;
    use crate::support::sync::Mutex;

    const HERE: Source = Some(0);

    struct ShardedTopology(Arc<dyn Topology>);

    impl Topology for ShardedTopology {
        fn node(&self, key: &str) -> Option<Arc<Node>> {
            self.0.node(key)
        }

        fn source(&self, channel: &str) -> Option<Arc<Node>> {
            self.0.source(channel)
        }

        fn is_sharded(&self) -> bool {
            true
        }
    }

    struct Subscribing {
        fake: Fake,
        /// Replies used once each, instead of the node's usual reply.
        instead: Arc<Mutex<Vec<(&'static str, String)>>>,
        registry: Registry<Arc<ChannelTable>>,
        channels: Arc<ChannelTable>,
        changed: UnboundedSender<Arc<str>>,
        events: UnboundedReceiver<()>,
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
            let topology = Arc::new(ShardedTopology(topology_of(&fake, &common).await));
            let node = topology.source("").expect("there is one for all");
            let (channels, nonces) =
                (Arc::new(ChannelTable::new(HERE)), Arc::new(Nonces::new(&common.runtime)));
            let shared = Shared { topology, common, channels: Arc::clone(&channels), nonces };
            let ((changed, changes), (tell, events)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
            let subscriber = Subscriber::new(node, shared, changes, tell);
            tokio::spawn(subscriber.run());
            Self { fake, instead, registry: Registry::new(Arc::clone(&channels)), channels, changed, events }
        }

        fn once(&self, command: &'static str, answer: impl Into<String>) {
            self.instead.lock().push((command, answer.into()));
        }

        fn change(&self, channel: &str) {
            self.changed.send(channel.into()).expect("it runs");
        }

        fn want(&self, channel: &str) -> Subscription<Arc<ChannelTable>> {
            let subscription = self.registry.subscribe(channel);
            self.change(channel);
            subscription
        }

        /// Adds a waiter, and waits for the confirmation. Earlier changes have then been served.
        async fn have(&self, channel: &str) -> Subscription<Arc<ChannelTable>> {
            let subscription = self.want(channel);
            confirmed(&subscription).await;
            subscription
        }

        fn resubscribed(&self) -> u64 {
            self.registry.stats().resubscriptions
        }

        async fn hear(&mut self) {
            timeout(EVENT_LIMIT, self.events.recv()).await.expect("no event").expect("it runs")
        }

        async fn hear_of(&mut self, gone: &str) {
            self.hear().await;
            assert_eq!(self.channels.source(gone), Some(None));
        }

        async fn assert_not_asked_for_again(&mut self, subscribe: &str) {
            self.fake.cut();
            self.hear().await;
            let _ = self.have("b").await;
            assert_eq!(self.fake.count(subscribe), 1);
        }
    }

    async fn confirmed(subscription: &Subscription<Arc<ChannelTable>>) {
        timeout(EVENT_LIMIT, subscription.subscribed()).await.expect("it is not confirmed").unwrap();
    }

    #[tokio::test]
    async fn channel_of_another_node_is_gone_and_not_requested_again() {
        let mut at = Subscribing::start().await;
        at.once("SSUBSCRIBE a", "-MOVED 1 127.0.0.1:1\r\n");
        let a = at.want("a");
        at.hear_of("a").await;
        assert!(a.failure().is_none());
        at.assert_not_asked_for_again("SSUBSCRIBE a").await;
    }

    /// The node ends it with the same notice that confirms an unsubscription of ours.
    #[tokio::test]
    async fn subscription_ended_by_the_node_is_gone_and_renewable() {
        let mut at = Subscribing::start().await;
        let _a = at.have("a").await;
        at.once("SSUBSCRIBE b", push("ssubscribe", "b") + &push("sunsubscribe", "a"));
        let _b = at.have("b").await;
        at.hear_of("a").await;
        at.channels.place("a", HERE);
        at.change("a");
        at.fake.until("SSUBSCRIBE a", 2).await;
        at.channels.lose("a", HERE);
        at.change("a");
        at.fake.until("SUNSUBSCRIBE a", 1).await;
        let _ = at.have("c").await;
        assert!(at.events.try_recv().is_err());
    }

    #[tokio::test]
    async fn subscription_of_a_dead_connection_stands_on_the_next_one() {
        let mut at = Subscribing::start().await;
        let _a = at.have("a").await;
        at.once("SSUBSCRIBE b", push("sunsubscribe", "a") + "?\r\n");
        let b = at.want("b");
        at.hear().await;
        confirmed(&b).await;
        let _ = at.have("c").await;
        assert!(at.events.try_recv().is_err());
        assert_eq!(at.fake.count("SSUBSCRIBE a"), 2);
    }

    #[tokio::test]
    async fn refused_channel_is_reported_and_not_requested_again() {
        let mut at = Subscribing::start().await;
        at.once("SSUBSCRIBE a", "-NOPERM No permissions to access a channel\r\n");
        let a = at.want("a");
        timeout(EVENT_LIMIT, a.subscribed()).await.expect("it is not told").unwrap_err();
        at.assert_not_asked_for_again("SSUBSCRIBE a").await;
    }

    /// A loading server, or a reply to another command, after which later replies are out of step, too.
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
            at.hear().await;
            confirmed(&next).await;
            assert_eq!(at.fake.count("HELLO"), connections + 1, "{said}");
            assert_eq!(
                at.resubscribed(),
                lost,
                "{said}: expected a notice of lost messages to earlier subscribers"
            );
            have.push(next);
        }
    }

    #[tokio::test]
    async fn waiters_check_again_only_if_messages_may_be_lost() {
        let mut at = Subscribing::start().await;
        let _a = at.have("a").await;
        assert_eq!(at.resubscribed(), 0);
        let b = at.registry.subscribe("b");
        at.channels.lose("b", HERE);
        at.channels.place("b", HERE);
        at.change("b");
        at.change("b");
        confirmed(&b).await;
        assert_eq!(at.resubscribed(), 1);
        at.change("b");
        let _c = at.have("c").await;
        assert_eq!(at.resubscribed(), 1, "expected no further notice of lost messages");
        at.fake.cut();
        at.hear().await;
        let _ = at.have("d").await;
        assert_eq!(at.resubscribed(), 1 + 3);
    }

    fn reading(payload: &[u8]) -> Option<Message> {
        read(payload, |number| number ^ 0xabcd)
    }

    #[test]
    fn message_that_is_not_exactly_a_locks_is_nobodys() {
        assert_eq!(reading(b"0"), Some(Message::Unlock));
        assert_eq!(reading(b"1"), Some(Message::ReadUnlock));
        assert_eq!(reading(b"granted:42:000000000000abe7"), Some(Message::Granted(42)));
        assert_eq!(
            reading(b"granted:18446744073709551615:ffffffffffff5432"),
            Some(Message::Granted(u64::MAX))
        );
        for other in
            ["", "2", "00", "granted", "granted:", "granted:1", "granted:+1:", "granted:-1:", "granted: 1:2"]
        {
            assert_eq!(reading(other.as_bytes()), None, "{other:?}");
        }
        assert_eq!(reading(b"granted:18446744073709551616:0"), None);
        assert_eq!(reading(b"granted:\xff"), None);
    }

    #[test]
    fn grant_without_its_nonce_is_a_hint() {
        for proof in
            ["", "0", "000000000000abe6", "+00000000000abe7", "0000000000000abe7", "000000000000abe7 "]
        {
            assert_eq!(reading(format!("granted:42:{proof}").as_bytes()), Some(Message::Unlock), "{proof:?}");
        }
        assert_eq!(reading(b"granted:43:000000000000abe7"), Some(Message::Unlock));
    }
    #[test]
    fn hostile_messages_are_grants_by_their_exact_text_only() {
        let words = ["granted:", "granted:42:000000000000abe7", ":", "000000000000abe7", "ABE7", "42"];
        attack("messages", &words, |payload| {
            let text = || std::str::from_utf8(payload).expect("what is read is text");
            match reading(payload) {
                Some(Message::Granted(number)) => {
                    let rest = text().strip_prefix("granted:").expect("a grant's beginning");
                    let (digits, nonce) = rest.split_once(':').expect("a nonce behind it");
                    assert_eq!(digits.trim_start_matches('0'), format!("{number}").trim_start_matches('0'));
                    assert_eq!(nonce.to_ascii_lowercase(), format!("{:016x}", number ^ 0xabcd));
                }
                Some(Message::Unlock) => assert!(text() == "0" || text().starts_with("granted:")),
                Some(Message::ReadUnlock) => assert_eq!(text(), "1"),
                None => assert!(!matches!(payload, b"0" | b"1")),
            }
        });
    }

    #[test]
    fn hostile_pushes_are_delivered_or_left_alone() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _inside = runtime.enter();
        let nonces = Nonces::new(&TokioRuntime::try_current().unwrap());
        let channels = ChannelTable::new(None);
        attack("pushes", &WORDS, |input| {
            let data = match reply(input) {
                ::redis::Value::Array(data) | ::redis::Value::Push { data, .. } => data,
                other => vec![other],
            };
            for kind in [PushKind::Message, PushKind::SMessage, PushKind::Subscribe, PushKind::Disconnection]
            {
                dispatch(PushInfo { kind, data: data.clone() }, &channels, &nonces);
            }
        });
    }
}

//! [`Connections`]: the connections, and their subscriptions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::reply::{Push, Reply};

#[derive(Debug, Default)]
pub(super) struct Connections {
    all: BTreeMap<u64, Connection>,
    last: u64,
    listeners: BTreeMap<(Messages, Vec<u8>), BTreeSet<u64>>,
}

#[derive(Debug)]
struct Connection {
    /// `None` before authentication.
    user: Option<Arc<str>>,
    is_resp3: bool,
    name: Vec<u8>,
}

/// The two kinds of messages, with separate channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Messages {
    Plain,
    Sharded,
}

impl Messages {
    /// The name of a push of this kind: a message, or the start or the end of a subscription.
    fn kind(self, plain: &str) -> Reply {
        Reply::bulk(if self == Self::Sharded { ["s", plain].concat() } else { plain.to_owned() })
    }
}

impl Connections {
    pub(super) fn add(&mut self, user: Option<Arc<str>>) -> u64 {
        self.last += 1;
        self.all.insert(self.last, Connection { user, is_resp3: false, name: Vec::new() });
        self.last
    }

    /// Returns false if already removed.
    pub(super) fn remove(&mut self, connection: u64) -> bool {
        self.listeners.retain(|_, listeners| {
            listeners.remove(&connection);
            !listeners.is_empty()
        });
        self.all.remove(&connection).is_some()
    }

    pub(super) fn has(&self, connection: u64) -> bool {
        self.all.contains_key(&connection)
    }

    pub(super) fn user(&self, connection: u64) -> Option<Arc<str>> {
        self.all[&connection].user.clone()
    }

    pub(super) fn set_user(&mut self, connection: u64, user: Arc<str>) {
        self.get(connection).user = Some(user);
    }

    pub(super) fn is_resp3(&self, connection: u64) -> bool {
        self.all[&connection].is_resp3
    }

    pub(super) fn set_resp3(&mut self, connection: u64, is_resp3: bool) {
        self.get(connection).is_resp3 = is_resp3;
    }

    pub(super) fn name(&self, connection: u64) -> &[u8] {
        &self.all[&connection].name
    }

    pub(super) fn set_name(&mut self, connection: u64, name: &[u8]) {
        self.get(connection).name = name.to_vec();
    }

    pub(super) fn address(connection: u64) -> String {
        format!("127.0.0.1:{}", 1024 + connection % 64_512)
    }

    pub(super) fn ids(&self) -> Vec<u64> {
        self.all.keys().copied().collect()
    }

    fn get(&mut self, connection: u64) -> &mut Connection {
        self.all.get_mut(&connection).expect("it is connected")
    }

    pub(super) fn subscribe(&mut self, messages: Messages, connection: u64, channel: &[u8]) -> Push {
        self.listeners.entry((messages, channel.to_vec())).or_default().insert(connection);
        self.changed("subscribe", messages, connection, Some(channel))
    }

    /// Unsubscribes from one channel, or from all if `channel` is `None`.
    pub(super) fn unsubscribe(
        &mut self,
        messages: Messages,
        connection: u64,
        channel: Option<&[u8]>,
    ) -> Vec<Push> {
        let channels: Vec<Vec<u8>> = match channel {
            Some(channel) => vec![channel.to_vec()],
            None => {
                let theirs = |((its, _), listeners): &(&(Messages, _), &BTreeSet<u64>)| {
                    *its == messages && listeners.contains(&connection)
                };
                self.listeners.iter().filter(theirs).map(|((_, channel), _)| channel.clone()).collect()
            }
        };
        if channels.is_empty() {
            return vec![self.changed("unsubscribe", messages, connection, None)];
        }
        let mut pushes = Vec::new();
        for channel in channels {
            let key = (messages, channel);
            if let Some(listeners) = self.listeners.get_mut(&key) {
                listeners.remove(&connection);
                if listeners.is_empty() {
                    self.listeners.remove(&key);
                }
            }
            pushes.push(self.changed("unsubscribe", messages, connection, Some(&key.1)));
        }
        pushes
    }

    fn changed(&self, kind: &str, messages: Messages, connection: u64, channel: Option<&[u8]>) -> Push {
        let theirs = |((its, _), listeners): &(&(Messages, _), &BTreeSet<u64>)| {
            *its == messages && listeners.contains(&connection)
        };
        let count = Reply::count(self.listeners.iter().filter(theirs).count());
        Push { connection, reply: vec![messages.kind(kind), Reply::bulk_or_nil(channel), count] }
    }

    pub(super) fn listeners(&self, messages: Messages, channel: &[u8]) -> usize {
        self.listeners.get(&(messages, channel.to_vec())).map_or(0, BTreeSet::len)
    }

    pub(super) fn publish(&self, messages: Messages, channel: &[u8], message: &[u8]) -> Vec<Push> {
        let Some(listeners) = self.listeners.get(&(messages, channel.to_vec())) else { return Vec::new() };
        let reply = vec![messages.kind("message"), Reply::bulk(channel), Reply::bulk(message)];
        listeners.iter().map(|connection| Push { connection: *connection, reply: reply.clone() }).collect()
    }

    pub(super) fn subscriptions_of(&self, connection: u64) -> usize {
        self.listeners.values().filter(|listeners| listeners.contains(&connection)).count()
    }

    pub(super) fn channels(&self) -> Vec<String> {
        self.listeners.keys().map(|(_, channel)| String::from_utf8_lossy(channel).into_owned()).collect()
    }

    pub(super) fn subscriptions(&self) -> usize {
        self.listeners.values().map(BTreeSet::len).sum()
    }
}

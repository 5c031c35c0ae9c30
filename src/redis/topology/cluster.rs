//! A Redis Cluster: each command goes to the node that has its key's slot.
//!
//! The routing is our own: the redis crate resends a command after a lost reply without telling, and the
//! answer to a release depends on whether the release may have run twice.

mod layout;
mod nodes;

use std::sync::Arc;
use std::time::Instant;

use ::redis::{Cmd, RedisError, RedisResult};
use tokio::sync::watch;

use crate::backend::LockName;
use crate::lock::NameError;
use crate::support::runtime::Runtime;

use super::super::connection::{
    Address, Boxed, Common, ConnectOptions, Dialer, Error, ErrorKind, Known, Meaning, MultiplexedConnection,
    Push, Server, ServerEpoch, WireRequest,
};
use super::router::{Hop, Node, Topology};
use super::url::parse;

use self::layout::{check_name, redirected, slot};
use self::nodes::{Nodes, in_touch};

/// The kind of messages that tells the waiters of a Cluster that a lock is free.
///
/// All clients that share a lock must agree, Redisson's included: a subscriber of the other kind hears no
/// message, and sleeps until the lease has expired.
///
/// # Examples
///
/// ```
/// use latchwork::redis::{Redis, ShardedMessages};
///
/// assert_eq!(ShardedMessages::default(), ShardedMessages::Auto);
/// // To share locks with clients of Redisson before 3.22:
/// let builder = Redis::builder().sharded_messages(ShardedMessages::Off);
/// # drop(builder);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShardedMessages {
    /// Redisson's own rule: sharded messages if the server supports them, as Redis does since 7.0.
    #[default]
    Auto,
    /// Sharded messages (`SPUBLISH`): each goes from the node that has the lock to that node's subscribers.
    On,
    /// Plain messages (`PUBLISH`): each goes to every node of the Cluster, as with Redisson before 3.22.
    Off,
}

/// Commands go to the slot's master; sharded messages come from there, plain messages from any node.
struct Cluster {
    nodes: Arc<Nodes>,
    is_sharded: bool,
    /// The source of plain messages.
    any: Arc<Node>,
}

/// Connects to the nodes of `url`, of which at least one must answer.
pub(super) async fn connect(
    url: &str,
    introduction: ConnectOptions,
    sharded: ShardedMessages,
    common: &Arc<Common>,
) -> Result<Arc<dyn Topology>, Error> {
    let urls = node_urls(url);
    let seeds = urls.iter().map(|url| parse(url)).collect::<Result<Vec<_>, _>>()?;
    if seeds.iter().any(|seed| seed.redis_settings().db() != 0) {
        return Err(Error::url("a Cluster has no database but 0; leave the database out"));
    }
    let addresses = seeds.iter().filter_map(Address::of).collect();
    let Some(info) = seeds.into_iter().next() else { return Err(Error::url("it names no node")) };
    let dialer = Arc::new(Dialer::new(info, introduction, common)?);
    let nodes = Nodes::new(dialer, Arc::clone(common), addresses);
    nodes.refresh(None).await?;
    let is_sharded = match sharded {
        ShardedMessages::Auto => has_sharded_messages(&nodes, common).await?,
        ShardedMessages::On => true,
        ShardedMessages::Off => false,
    };
    let any = Arc::new(AnyNode { nodes: Arc::clone(&nodes), last: watch::Sender::new(None) });
    let any = Node::new(0, Arc::clone(&any) as Arc<dyn Server>, any, common);
    Ok(Arc::new(Cluster { nodes, is_sharded, any }))
}

/// Asks as Redisson does, so that both clients decide alike.
async fn has_sharded_messages(nodes: &Nodes, common: &Common) -> Result<bool, Error> {
    let words = |question: &mut Cmd, _: Instant| _ = question.arg("PUBSUB").arg("SHARDNUMSUB");
    let request = WireRequest::plain(&words, common.timing.response);
    let mut failure = None;
    for node in nodes.candidates(None) {
        let now = common.runtime.now();
        let reply = node.commands.send(&request, false, now, &mut (now + request.limit)).await;
        match reply {
            Ok(_) => return Ok(true),
            // The server is too old. NOPERM is no answer: taking that for plain messages would separate us
            // from clients that may ask.
            Err(error)
                if error.meaning() == Some(Meaning::Refused)
                    && error.redis_error().and_then(RedisError::code) != Some("NOPERM") =>
            {
                return Ok(false);
            }
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(Error::no_node))
}

impl Topology for Cluster {
    fn node(&self, key: &str) -> Option<Arc<Node>> {
        self.nodes.owner(slot(key))
    }

    fn source(&self, channel: &str) -> Option<Arc<Node>> {
        if self.is_sharded { self.nodes.owner(slot(channel)) } else { Some(Arc::clone(&self.any)) }
    }

    fn is_sharded(&self) -> bool {
        self.is_sharded
    }

    fn knows_all_listeners(&self) -> bool {
        // Subscribers of plain messages may be at any node.
        self.is_sharded
    }

    fn slot(&self, key: &str) -> u16 {
        slot(key)
    }

    fn redirect(&self, asked: &Node, key: &str, error: &RedisError) -> Option<Hop> {
        let (to, _) = error.redirect_node()?;
        let address = redirected(to, &asked.commands.server().address())?;
        if error.code() == Some("ASK") {
            return Some(Hop { node: self.nodes.at(address), asking: true });
        }
        let node = self.nodes.moved(slot(key), address);
        // The node may have taken over other slots as well: ask the node, which knows at least its own.
        self.nodes.refresh_soon(Some(Arc::clone(&node)));
        Some(Hop { node, asking: false })
    }

    fn refresh_in_background(&self) {
        self.nodes.refresh_soon(None);
    }

    fn check_name(&self, name: &LockName) -> Result<(), NameError> {
        check_name(name)
    }
}

/// Returns a URL for each node of a Cluster's URL, alike but for host and port.
fn node_urls(url: &str) -> Vec<String> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    let scheme = if scheme.eq_ignore_ascii_case("rediss-cluster") { "rediss" } else { "redis" };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // The last @ ends the user's part, as in every URL.
    let (user, hosts) = match authority.rfind('@') {
        Some(at) => authority.split_at(at + 1),
        None => ("", authority),
    };
    hosts.split(',').map(|host| format!("{scheme}://{user}{}{path}", host.trim())).collect()
}

/// The next node for each connection: every node delivers plain messages published at any node.
struct AnyNode {
    nodes: Arc<Nodes>,
    last: watch::Sender<Known>,
}

impl Server for AnyNode {
    fn address(&self) -> Arc<str> {
        self.last.borrow().clone().unwrap_or_else(|| "any node of the Cluster".into())
    }

    fn dial(&self, push: Push) -> Boxed<'_, Result<(MultiplexedConnection, ServerEpoch), Error>> {
        Box::pin(async move {
            let next = self.nodes.candidates(None).into_iter().next().ok_or_else(Error::no_node)?;
            self.last.send_replace(Some(next.listening.address()));
            let (connection, _) = next.listening.dial(push).await?;
            Ok((connection, self.epoch()))
        })
    }

    fn heartbeat<'a>(&'a self, connection: &'a mut MultiplexedConnection) -> Boxed<'a, RedisResult<()>> {
        Box::pin(in_touch(connection))
    }

    fn known(&self) -> &watch::Sender<Known> {
        &self.last
    }
}

impl Error {
    pub(crate) fn not_a_cluster(&self, address: &str) -> Self {
        let context = format!(
            "Redis at {address} is not a Cluster; write redis:// instead of redis-cluster://, or start it with \
             cluster-enabled yes"
        );
        Self::new(ErrorKind::NotACluster, context, self.redis_error().cloned())
    }

    pub(crate) fn no_node() -> Self {
        Self::no_connection("no node of the Cluster answers; write more of them into its URL".into())
    }

    pub(crate) fn no_slots(address: &str) -> Self {
        Self::no_connection(format!(
            "Redis at {address} knows of no Cluster's slots; it has left its Cluster or was never in one"
        ))
    }

    fn no_connection(context: String) -> Self {
        Self::new(ErrorKind::Connection, context, None)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::connection::Timing;
    use super::super::super::fake::{Fake, alive, layout, refusal};
    use super::super::super::hostile::attack;
    use super::super::url::{Names, parse};
    use super::layout::SLOTS;
    use super::*;
    use crate::support::runtime::TokioRuntime;

    const QUESTION: &str = "PUBSUB SHARDNUMSUB";
    const LOOK: &str = "CLUSTER SLOTS";
    const YES: &str = "*0\r\n";

    /// Three nodes, the first of which has all slots. `answers`: the replies to the question for sharded
    /// messages; an empty reply breaks the connection.
    async fn three(answers: [&'static str; 3]) -> [Fake; 3] {
        let mut fakes = [Fake::silent().await, Fake::silent().await, Fake::silent().await];
        let ports = [fakes[0].port, fakes[1].port, fakes[2].port];
        for (fake, answer) in fakes.iter_mut().zip(answers) {
            fake.answer(alive(move |command| match command {
                LOOK => Some(layout(&[(0, SLOTS - 1, &ports)])),
                QUESTION => Some(answer.to_owned()).filter(|answer| !answer.is_empty()),
                "CLUSTER INFO" => Some("+cluster_state:ok\r\n".to_owned()),
                _ => Some("+OK\r\n".to_owned()),
            }));
        }
        fakes
    }

    async fn connected(url: &str, sharded: ShardedMessages) -> Result<Arc<dyn Topology>, Error> {
        let common = Arc::new(Common::new(Timing::unhurried(), TokioRuntime::current()));
        connect(url, ConnectOptions::default(), sharded, &common).await
    }

    fn url(fakes: &[Fake; 3]) -> String {
        let [first, second, third] = [0, 1, 2].map(|fake| fakes[fake].port);
        format!("redis-cluster://127.0.0.1:{first},127.0.0.1:{second},127.0.0.1:{third}")
    }

    fn port(node: &Node) -> u16 {
        Address::parse(&node.commands.server().address()).unwrap().port
    }

    async fn is_sharded(answers: [&'static str; 3]) -> Result<bool, Error> {
        let fakes = three(answers).await;
        let cluster = connected(&url(&fakes), ShardedMessages::Auto).await;
        let heard: Vec<_> = fakes.iter().flat_map(Fake::calls).collect();
        assert!(heard.iter().all(|command| [LOOK, QUESTION].contains(&&command[..])), "{heard:?}");
        cluster.map(|cluster| cluster.is_sharded())
    }

    #[tokio::test]
    async fn messages_are_sharded_if_a_node_knows_them() {
        const NO: &str = "-ERR unknown subcommand\r\n";
        const MAY_NOT: &str = "-NOPERM not allowed\r\n";
        const LOADS: &str = "-LOADING it begins\r\n";
        const BREAKS: &str = "";
        assert!(is_sharded([YES; 3]).await.unwrap());
        assert!(!is_sharded([NO; 3]).await.unwrap());
        for mute in [MAY_NOT, LOADS, BREAKS] {
            for answers in [[YES, mute, mute], [mute, YES, mute], [mute, mute, YES]] {
                assert!(is_sharded(answers).await.unwrap(), "{answers:?}");
            }
            for answers in [[NO, mute, mute], [mute, NO, mute], [mute, mute, NO]] {
                assert!(!is_sharded(answers).await.unwrap(), "{answers:?}");
            }
        }
        let error = is_sharded([MAY_NOT; 3]).await.unwrap_err();
        assert!(error.kind() == ErrorKind::Refused && error.to_string().contains("SHARDNUMSUB"), "{error}");
        assert_eq!(is_sharded([BREAKS; 3]).await.unwrap_err().kind(), ErrorKind::Unknown);
    }

    #[tokio::test]
    async fn last_node_that_could_not_be_asked_is_named() {
        let mut knows = Fake::silent().await;
        let all = layout(&[(0, SLOTS - 1, &[1])]);
        knows.answer(alive(move |command| (command == LOOK).then(|| all.clone())));
        let url = format!("redis-cluster://127.0.0.1:{},127.0.0.1:2", knows.port);
        let error = connected(&url, ShardedMessages::Auto).await.err().unwrap();
        assert!(error.to_string().contains("cannot connect to Redis at 127.0.0.1:2"), "{error}");
    }

    #[tokio::test]
    async fn kind_of_messages_that_is_asked_for_is_taken() {
        let fakes = three([""; 3]).await;
        let plain = connected(&url(&fakes), ShardedMessages::Off).await.unwrap();
        assert!(!plain.is_sharded());
        assert!(!plain.knows_all_listeners(), "expected listeners at any node");
        let sharded = connected(&url(&fakes), ShardedMessages::On).await.unwrap();
        assert!(sharded.is_sharded());
        assert!(sharded.knows_all_listeners());
        let (source, node) = (sharded.source("a").unwrap(), sharded.node("a").unwrap());
        assert!(Arc::ptr_eq(&source, &node) && port(&node) == fakes[0].port);

        let source = plain.source("a").unwrap();
        assert_ne!(source.number, plain.node("a").unwrap().number);
        let mut seen = Vec::new();
        let mut last = None;
        for _ in 0..3 {
            let Ok((_, standing)) = source.listening.dial(Arc::new(|_| {})).await else {
                panic!("all of them answer")
            };
            seen.push(Address::parse(&source.listening.address()).unwrap().port);
            assert!(last.replace(standing).is_none_or(|before| before.has_ended()));
        }
        seen.sort_unstable();
        let mut ports = [0, 1, 2].map(|fake| fakes[fake].port);
        ports.sort_unstable();
        assert_eq!(seen, ports);
    }

    #[tokio::test]
    async fn redirects_are_learned_from() {
        let fakes = three([YES; 3]).await;
        let cluster = connected(&url(&fakes), ShardedMessages::On).await.unwrap();
        let asked = cluster.node("a").unwrap();
        let redirected = |word: &str, to: u16| {
            let error = refusal(&format!("{word} {} 127.0.0.1:{to}", cluster.slot("a")));
            cluster.redirect(&asked, "a", &error).unwrap()
        };
        let hop = redirected("ASK", fakes[1].port);
        assert!(hop.asking && port(&hop.node) == fakes[1].port);
        assert!(
            Arc::ptr_eq(&cluster.node("a").unwrap(), &asked),
            "expected the old node of a slot that has not moved yet"
        );

        let looks = fakes[2].count(LOOK);
        let hop = redirected("MOVED", fakes[2].port);
        assert!(!hop.asking && port(&hop.node) == fakes[2].port);
        assert!(Arc::ptr_eq(&cluster.node("a").unwrap(), &hop.node));
        assert!(
            !Arc::ptr_eq(&cluster.node("b").unwrap(), &hop.node),
            "expected the old node of another slot"
        );
        fakes[2].until(LOOK, looks + 1).await;
    }

    #[tokio::test]
    async fn names_whose_keys_would_be_apart_are_refused() {
        let fakes = three([YES; 3]).await;
        let cluster = connected(&url(&fakes), ShardedMessages::On).await.unwrap();
        assert!(cluster.check_name(&LockName::new("{}").unwrap()).is_err());
        assert!(cluster.check_name(&LockName::new("{a}").unwrap()).is_ok());
    }

    #[test]
    fn every_host_has_the_same_user() {
        let urls = node_urls("redis-cluster://me:p,w@a:7000,b,[::1]:7002/0");
        assert_eq!(urls, ["redis://me:p,w@a:7000/0", "redis://me:p,w@b/0", "redis://me:p,w@[::1]:7002/0"]);
        assert_eq!(node_urls("Rediss-Cluster://a"), ["rediss://a"]);
    }

    #[test]
    fn hostile_urls_of_a_cluster_are_those_of_its_nodes() {
        let words = [
            "redis-cluster://",
            "rediss-cluster://",
            "hunter2",
            ":hunter2@",
            "a",
            ":7000",
            ",",
            "/0",
            "@",
            "?",
        ];
        attack("cluster_urls", &words, |input| {
            let url = String::from_utf8_lossy(input);
            if Names::of(&url) != Names::Cluster {
                return;
            }
            for node in node_urls(&url) {
                assert_eq!(Names::of(&node), Names::Server, "{node}");
                if let Err(error) = parse(&node) {
                    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
                }
            }
        });
    }
}

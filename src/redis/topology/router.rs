//! [`Topology`]: the contract for finding the connection of a key or a channel; and [`Router`]: sends a
//! command to its key's node, and retries where and while a retry can help.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ::redis::{FromRedisValue, RedisError, Value};

use crate::backend::LockName;
use crate::lock::NameError;
use crate::support::runtime::{Runtime, shielded};

use super::super::connection::{
    BackOff, Common, Connection, Error, MAX_REDIRECTS, Meaning, RETRY_PAUSES, Server, WireRequest,
};

pub(crate) trait Topology: Send + Sync + 'static {
    /// Returns the node of `key`, for commands; `None` if no node has the key's slot now.
    fn node(&self, key: &str) -> Option<Arc<Node>>;

    /// Returns the node that sends the messages of `channel`; `None` if no node has the channel's slot now.
    fn source(&self, channel: &str) -> Option<Arc<Node>>;

    /// True if the waiters of a channel are woken by sharded messages, from the node of the channel's slot.
    fn is_sharded(&self) -> bool {
        false
    }

    /// True if the node of a channel's slot knows all subscribers of the channel.
    fn knows_all_listeners(&self) -> bool {
        true
    }

    /// Returns the key's slot. Keys of different slots never share a command.
    fn slot(&self, key: &str) -> u16 {
        let _ = key;
        0
    }

    /// Returns the next node for a command that `asked` redirected; `None`: do not follow.
    fn redirect(&self, asked: &Node, key: &str, error: &RedisError) -> Option<Hop> {
        let _ = (asked, key, error);
        None
    }

    /// Begins to look for the nodes, after a node did not answer or serve a command.
    fn refresh_in_background(&self) {}

    /// Fails if the keys of a lock of this name cannot be kept together.
    fn check_name(&self, name: &LockName) -> Result<(), NameError> {
        let _ = name;
        Ok(())
    }
}

/// A server, and the connection for commands to it.
pub(crate) struct Node {
    /// Unique among all nodes of this topology, past and present.
    pub(crate) number: u64,
    pub(crate) commands: Connection,
    pub(crate) listening: Arc<dyn Server>,
}

impl Node {
    /// `listening`: like `server`, for the connection that listens.
    pub(crate) fn new(
        number: u64,
        server: Arc<dyn Server>,
        listening: Arc<dyn Server>,
        common: &Arc<Common>,
    ) -> Arc<Self> {
        Arc::new(Self { number, commands: Connection::new(server, common, None), listening })
    }
}

/// The topology of one server.
impl Topology for Arc<Node> {
    fn node(&self, _: &str) -> Option<Arc<Node>> {
        Some(Arc::clone(self))
    }

    fn source(&self, _: &str) -> Option<Arc<Node>> {
        Some(Arc::clone(self))
    }
}

pub(crate) struct Hop {
    pub(crate) node: Arc<Node>,
    /// True if the node is taking the key's slot over, and serves the slot only after ASKING.
    pub(crate) asking: bool,
}

#[derive(Clone)]
pub(crate) struct Router {
    topology: Arc<dyn Topology>,
    common: Arc<Common>,
}

impl Router {
    pub(crate) fn new(topology: Arc<dyn Topology>, common: Arc<Common>) -> Self {
        Self { topology, common }
    }

    /// Returns a router over a connection of its own, for commands that block others. Not for a Cluster.
    pub(crate) fn with_own_connection(&self) -> Self {
        let source = self.topology.source("").expect("a server alone sends all its messages");
        let server = Arc::clone(&source.listening);
        let node = Node::new(0, Arc::clone(&server), server, &self.common);
        Self::new(Arc::new(node), Arc::clone(&self.common))
    }

    pub(crate) fn topology(&self) -> &Arc<dyn Topology> {
        &self.topology
    }

    /// Returns an address for errors that concern no single key.
    pub(crate) fn address(&self) -> Arc<str> {
        self.topology.node("").map_or_else(Arc::default, |node| node.commands.server().address())
    }

    /// Sends a command until the server answers or refuses for good, or the limit is over. The second part of
    /// the result is true if an earlier sending may have run, too.
    pub(crate) async fn send<T: FromRedisValue>(
        &self,
        request: &WireRequest<'_>,
    ) -> Result<(T, bool), Error> {
        let now = self.common.runtime.now();
        let mut give_up = now + request.limit;
        let hop = self.owner(request);
        let failure = match &hop {
            Some(hop) => match hop.node.commands.send(request, hop.asking, now, &mut give_up).await {
                Ok(reply) => return Ok((self.read(request, hop, reply)?, false)),
                Err(failure) => Some(failure),
            },
            None => None,
        };
        // Cold: boxed, to keep the hot future small.
        Box::pin(async { shielded(pin!(self.persist(request, hop, failure, give_up))).await }).await
    }

    fn owner(&self, request: &WireRequest<'_>) -> Option<Hop> {
        self.topology.node(request.key).map(|node| Hop { node, asking: false })
    }

    fn read<T: FromRedisValue>(
        &self,
        request: &WireRequest<'_>,
        hop: &Hop,
        reply: Value,
    ) -> Result<T, Error> {
        T::from_redis_value(reply).map_err(|error| {
            let now = self.common.runtime.now();
            request.error(&hop.node.commands.server().address(), now, error.into())
        })
    }

    async fn persist<T: FromRedisValue>(
        &self,
        request: &WireRequest<'_>,
        mut hop: Option<Hop>,
        mut failure: Option<Error>,
        mut give_up: Instant,
    ) -> Result<(T, bool), Error> {
        let runtime = &self.common.runtime;
        let (mut back_off, mut redirects) = (BackOff::new(RETRY_PAUSES), 0);
        // After a lost reply the command may have run, whatever follows.
        let mut lost: Option<Error> = None;
        let mut refusal: Option<Error> = None;
        loop {
            let no_owner = || Error::no_owner(self.topology.slot(request.key));
            let error = failure.take().unwrap_or_else(no_owner);
            let (mut next, mut is_urgent) = (None, false);
            match error.meaning() {
                Some(Meaning::Lost) => {
                    // If the node is dead, the next command should go elsewhere.
                    self.topology.refresh_in_background();
                    if !request.again {
                        return Err(lost.unwrap_or(error));
                    }
                    lost.get_or_insert_with(|| error.clone());
                    is_urgent = true;
                }
                Some(Meaning::Elsewhere) => {
                    let met = error.redis_error().zip(hop.as_ref());
                    next = met.and_then(|(met, hop)| self.topology.redirect(&hop.node, request.key, met));
                    if next.is_none() {
                        return Err(lost.unwrap_or(error));
                    }
                    redirects += 1;
                    is_urgent = true;
                }
                Some(Meaning::CrossSlot) if !request.waits_for_slot => return Err(error),
                Some(Meaning::CrossSlot) => {}
                Some(Meaning::Refused) => return Err(lost.unwrap_or(error)),
                meaning @ (Some(Meaning::NotServing) | None) => {
                    // A permanent failure, such as a master unknown to the Sentinels.
                    if refusal.is_none() && lost.is_none() && !error.may_pass() {
                        return Err(error);
                    }
                    if meaning.is_some() || hop.is_none() {
                        refusal.get_or_insert_with(|| error.clone());
                    }
                    self.topology.refresh_in_background();
                }
            }
            let is_urgent = is_urgent && redirects <= MAX_REDIRECTS;
            let pause = if is_urgent { Duration::ZERO } else { back_off.next(runtime.random()) };
            let again_at = runtime.now() + pause;
            // After the end of the runtime, timers never fire.
            if again_at >= give_up || runtime.has_ended() {
                // The command's fate says more than an unreachable node.
                return Err(lost.or(refusal).unwrap_or(error));
            }
            if pause > Duration::ZERO {
                runtime.sleep_until(again_at).await;
            }
            hop = next.or_else(|| self.owner(request));
            let Some(to) = &hop else { continue };
            match to.node.commands.send(request, to.asking, runtime.now(), &mut give_up).await {
                Ok(reply) => return Ok((self.read(request, to, reply)?, lost.is_some())),
                Err(met) => failure = Some(met),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ::redis::{Cmd, RedisResult};
    use tokio::sync::watch;

    use super::super::super::connection::{
        Boxed, ErrorKind, Known, MultiplexedConnection, Push, ServerEpoch, Timing,
    };
    use super::super::super::fake::{act, at_once};
    use super::*;
    use crate::support::runtime::TokioRuntime;
    use crate::support::sync::Mutex;
    use crate::support::sync::atomic::{AtomicUsize, Ordering};

    const LIMIT: Duration = Duration::from_secs(10);
    const SHORT: Duration = Duration::from_millis(80);
    const DOWN: &str = "-CLUSTERDOWN it is down\r\n";
    const DONE: &str = "+done\r\n";
    const BREAK: &str = "";

    type Heard = Arc<Mutex<Vec<(&'static str, String, Instant)>>>;

    struct Actor {
        name: &'static str,
        replies: Result<Arc<Mutex<Vec<&'static str>>>, ErrorKind>,
        heard: Heard,
        runtime: TokioRuntime,
        known: watch::Sender<Known>,
    }

    impl Server for Actor {
        fn address(&self) -> Arc<str> {
            self.name.into()
        }

        fn dial(&self, _: Push) -> Boxed<'_, Result<(MultiplexedConnection, ServerEpoch), Error>> {
            Box::pin(async move {
                let replies = match &self.replies {
                    Ok(replies) => Arc::clone(replies),
                    Err(kind) => return Err(Error::new(*kind, self.name.to_owned(), None)),
                };
                let (ours, theirs) = tokio::io::duplex(1 << 16);
                let (name, heard, clock) = (self.name, Arc::clone(&self.heard), self.runtime.clone());
                tokio::spawn(act(theirs, move |command| {
                    if command.starts_with("CLIENT") {
                        // Refuses CLIENT INFO, so the connections have no sessions.
                        return Some("-ERR unknown command\r\n".to_owned());
                    }
                    let asks = command == "ASKING";
                    heard.lock().push((name, command, clock.now()));
                    if asks {
                        return Some("+OK\r\n".to_owned());
                    }
                    let mut replies = replies.lock();
                    let reply = if replies.len() > 1 { replies.remove(0) } else { replies[0] };
                    (reply != BREAK).then(|| reply.to_owned())
                }));
                Ok((MultiplexedConnection::over(ours, &self.runtime).await, self.epoch()))
            })
        }

        fn heartbeat<'a>(&'a self, _: &'a mut MultiplexedConnection) -> Boxed<'a, RedisResult<()>> {
            Box::pin(async { Ok(()) })
        }

        fn known(&self) -> &watch::Sender<Known> {
            &self.known
        }
    }

    struct Stage {
        nodes: Vec<Arc<Node>>,
        /// Index of the key's server after each look.
        ways: Vec<Option<usize>>,
        refreshes: AtomicUsize,
        heard: Heard,
    }

    impl Topology for Stage {
        fn node(&self, _: &str) -> Option<Arc<Node>> {
            let way = self.ways[self.seen().min(self.ways.len() - 1)];
            way.map(|node| Arc::clone(&self.nodes[node]))
        }

        fn source(&self, _: &str) -> Option<Arc<Node>> {
            unreachable!("it is asked for commands only")
        }

        fn redirect(&self, _: &Node, _: &str, error: &RedisError) -> Option<Hop> {
            let (to, _) = error.redirect_node()?;
            let to = to.split(':').next()?;
            let node = self.nodes.iter().find(|node| *node.commands.server().address() == *to)?;
            Some(Hop { node: Arc::clone(node), asking: error.code() == Some("ASK") })
        }

        fn refresh_in_background(&self) {
            // Ordering: Relaxed, a single thread.
            self.refreshes.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Stage {
        /// `actors`: the replies of the servers `a`, `b` and `c`, each last one forever, or the dials' error.
        async fn new(
            actors: &[Result<&[&'static str], ErrorKind>],
            ways: &[Option<usize>],
        ) -> (Arc<Self>, Router) {
            let runtime = TokioRuntime::current();
            let timing = Timing { response: LIMIT, heartbeat: LIMIT, ..Timing::default() };
            let common = Arc::new(Common::new(timing, runtime.clone()));
            let (heard, mut nodes) = (Heard::default(), Vec::new());
            for (number, (replies, name)) in actors.iter().zip(["a", "b", "c"]).enumerate() {
                let replies = replies.map(|replies| Arc::new(Mutex::new(replies.to_vec())));
                let is_there = replies.is_ok();
                let (heard, runtime) = (Arc::clone(&heard), runtime.clone());
                let server = Actor { name, replies, heard, runtime, known: watch::Sender::new(None) };
                let server: Arc<dyn Server> = Arc::new(server);
                let commands = Connection::new(Arc::clone(&server), &common, None);
                if is_there {
                    commands.live().await.unwrap();
                }
                nodes.push(Arc::new(Node { number: number as u64, commands, listening: server }));
            }
            let stage = Arc::new(Self { nodes, ways: ways.to_vec(), refreshes: AtomicUsize::new(0), heard });
            let router = Router::new(Arc::clone(&stage) as Arc<dyn Topology>, common);
            (stage, router)
        }

        fn seen(&self) -> usize {
            // Ordering: Relaxed, as above.
            self.refreshes.load(Ordering::Relaxed)
        }

        fn heard(&self) -> Vec<String> {
            self.heard.lock().iter().map(|(name, command, _)| format!("{name}:{command}")).collect()
        }

        fn pause_after(&self, command: usize) -> Duration {
            let heard = self.heard.lock();
            heard[command + 1].2 - heard[command].2
        }
    }

    fn words(command: &mut Cmd, _: Instant) {
        let _ = command.arg("GET");
    }

    fn get(limit: Duration) -> WireRequest<'static> {
        WireRequest::plain(&words, limit)
    }

    /// Returns true if the command was sent again after a lost reply.
    async fn sent(router: &Router, limit: Duration) -> Result<bool, Error> {
        router.send::<String>(&get(limit)).await.map(|(reply, resent)| {
            assert_eq!(reply, "done");
            resent
        })
    }

    #[tokio::test(start_paused = true)]
    async fn redirects_are_followed_at_once_but_not_for_ever() {
        let (stage, router) = Stage::new(
            &[Ok(&["-MOVED 7 b:1\r\n"]), Ok(&["-MOVED 7 a:1\r\n", "-MOVED 7 a:1\r\n", DONE])],
            &[Some(0)],
        )
        .await;
        let mut reply = pin!(sent(&router, LIMIT));
        let early = at_once(reply.as_mut()).await;
        assert!(stage.heard().len() >= 5, "{:?}", stage.heard());
        let reply = if let Some(reply) = early { reply } else { reply.await };
        assert!(!reply.unwrap());
        assert_eq!(stage.heard(), ["a:GET", "b:GET", "a:GET", "b:GET", "a:GET", "b:GET"]);
        assert!(stage.pause_after(4) >= RETRY_PAUSES.0 / 2, "{:?}", stage.pause_after(4));
        assert_eq!(stage.seen(), 0);

        let (stage, router) = Stage::new(&[Ok(&["-ASK 7 b:1\r\n"]), Ok(&[DONE])], &[Some(0)]).await;
        assert!(!at_once(sent(&router, LIMIT)).await.expect("at once").unwrap());
        assert_eq!(stage.heard(), ["a:GET", "b:ASKING", "b:GET"]);
    }

    #[tokio::test(start_paused = true)]
    async fn command_that_did_not_run_is_retried_after_growing_pauses() {
        let (stage, router) = Stage::new(&[Ok(&[DOWN, DOWN, DONE])], &[Some(0)]).await;
        assert!(!sent(&router, LIMIT).await.unwrap());
        assert_eq!(stage.heard(), ["a:GET"; 3]);
        assert!(stage.pause_after(0) >= RETRY_PAUSES.0 / 2 && stage.pause_after(1) >= RETRY_PAUSES.0);
        assert_eq!(stage.seen(), 2);

        let keys = "-TRYAGAIN Multiple keys request during rehashing of slot\r\n";
        let (stage, router) = Stage::new(&[Ok(&[keys, DONE])], &[Some(0)]).await;
        assert!(!sent(&router, LIMIT).await.unwrap());
        assert!(stage.heard() == ["a:GET"; 2] && stage.pause_after(0) >= RETRY_PAUSES.0 / 2);
        assert_eq!(stage.seen(), 0);

        let (stage, router) = Stage::new(&[Ok(&[keys, DONE])], &[Some(0)]).await;
        let request = WireRequest { waits_for_slot: false, ..get(LIMIT) };
        let told = router.send::<String>(&request).await;
        assert!(told.is_err_and(|error| error.meaning() == Some(Meaning::CrossSlot)));
        assert_eq!(stage.heard(), ["a:GET"]);
    }

    #[tokio::test(start_paused = true)]
    async fn lost_command_is_sent_again_at_once_if_it_may_be() {
        let (stage, router) = Stage::new(&[Ok(&[BREAK]), Ok(&[DONE])], &[Some(0), Some(1)]).await;
        assert!(at_once(sent(&router, LIMIT)).await.expect("at once").unwrap());
        assert_eq!(stage.heard(), ["a:GET", "b:GET"]);
        assert_eq!(stage.seen(), 1);

        let (stage, router) = Stage::new(&[Ok(&[BREAK])], &[Some(0)]).await;
        let request = WireRequest { again: false, ..get(LIMIT) };
        let error = router.send::<String>(&request).await.unwrap_err();
        assert_eq!((error.kind(), stage.heard().len()), (ErrorKind::Unknown, 1));
        assert_eq!(stage.seen(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn error_says_most_about_what_became_of_the_command() {
        let gone = Err(ErrorKind::Connection);
        // A server's refusal outranks a missing server, in either order.
        for (ways, limit) in [([Some(0), Some(1)], SHORT), ([Some(1), Some(0)], 4 * SHORT)] {
            let (stage, router) = Stage::new(&[Ok(&[DOWN]), gone], &ways).await;
            assert_eq!(sent(&router, limit).await.unwrap_err().kind(), ErrorKind::Refused);
            assert!(stage.seen() > 0);
        }
        let (_, router) = Stage::new(&[gone], &[None, Some(0)]).await;
        let error = sent(&router, SHORT).await.unwrap_err();
        assert!(error.to_string().contains("no node of the Cluster has slot"), "{error}");
        // A command that may have run outranks every other error.
        let (_, router) = Stage::new(&[Ok(&[BREAK]), gone], &[Some(0), Some(1)]).await;
        assert_eq!(sent(&router, SHORT).await.unwrap_err().kind(), ErrorKind::Unknown);
        // Waiting mends no permanent refusal.
        let (_, router) = Stage::new(&[Ok(&[DOWN, "-ERR no\r\n"])], &[Some(0)]).await;
        let error = sent(&router, LIMIT).await.unwrap_err();
        assert_eq!(error.redis_error().and_then(RedisError::code), Some("ERR"));
    }

    #[tokio::test(start_paused = true)]
    async fn missing_server_is_waited_for_only_if_there_was_one() {
        let (unknown, gone) = (Err(ErrorKind::UnknownMaster), Err(ErrorKind::Connection));
        let (stage, router) = Stage::new(&[unknown], &[Some(0)]).await;
        assert_eq!(sent(&router, SHORT).await.unwrap_err().kind(), ErrorKind::UnknownMaster);
        assert_eq!(stage.seen(), 0);
        for (first, told) in [(Ok(&[DOWN, DONE][..]), false), (Ok(&[BREAK, DONE]), true)] {
            let (stage, router) = Stage::new(&[first, unknown], &[Some(0), Some(1), Some(0)]).await;
            assert_eq!(sent(&router, LIMIT).await.unwrap(), told);
            assert_eq!(stage.heard(), ["a:GET"; 2]);
        }
        let (stage, router) = Stage::new(&[Ok(&[DONE]), gone], &[Some(1), Some(0)]).await;
        assert!(!sent(&router, LIMIT).await.unwrap());
        assert_eq!((stage.heard().len(), stage.seen()), (1, 1));
    }

    /// The lock rolls back an acquisition that may have run, not a refused acquisition.
    #[tokio::test(start_paused = true)]
    async fn indeterminate_command_stays_so_despite_other_replies() {
        for (first, ways) in [(&[BREAK][..], &[0, 1][..]), (&[DOWN, BREAK], &[0, 0, 1])] {
            let ways: Vec<_> = ways.iter().copied().map(Some).collect();
            let (stage, router) = Stage::new(&[Ok(first), Ok(&[DOWN])], &ways).await;
            let error = sent(&router, SHORT).await.unwrap_err();
            assert!(stage.heard().ends_with(&["b:GET".to_owned()]), "{:?}", stage.heard());
            assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
        }
    }
}

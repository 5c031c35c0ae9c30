//! The supervisor of sharded messages: subscribes each channel at the node that has the channel's slot, and
//! follows the slot to other nodes. Plain messages need none: they have one source and one [`Subscriber`].
//!
//! While a slot moves, a lock may be released at the new master, and its waiters still be subscribed at the
//! old one. The end of the move wakes these waiters.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;

use crate::support::runtime::Runtime;

use super::super::connection::BackOff;
use super::super::topology::Node;
use super::channels::Source;
use super::subscriber::{Changes, Shared, Subscriber};

/// Keeps the subscriptions as the table says, until the transport, the sender of changes, is dropped.
pub(super) async fn supervise(shared: Shared, mut changes: Changes) {
    let (tell, mut events) = mpsc::unbounded_channel();
    let runtime = shared.common.runtime.clone();
    let mut supervisor = Supervisor::new(shared, tell);
    loop {
        tokio::select! {
            // In this order no branch starves another: looks are rare, and events come only after changes.
            biased;
            () = runtime.sleep_until(supervisor.next_look) => supervisor.look_around(),
            // Never `None`: the supervisor has a sender, too.
            Some(()) = events.recv() => supervisor.look_soon(),
            change = changes.recv() => match change {
                Some(channel) => supervisor.bring_into_line(channel),
                // Dropping the senders of changes ends the subscribers.
                None => return,
            },
        }
    }
}

struct Supervisor {
    shared: Shared,
    tell: mpsc::UnboundedSender<()>,
    /// Senders of changes, by the node's number.
    subscribers: HashMap<u64, mpsc::UnboundedSender<Arc<str>>>,
    /// Time at which all channels are compared with the owners of their slots.
    next_look: Instant,
    /// True if a channel has no node, so that the next look comes soon.
    is_soon: bool,
    back_off: BackOff,
}

impl Supervisor {
    fn new(shared: Shared, tell: mpsc::UnboundedSender<()>) -> Self {
        let (next_look, back_off) = (shared.common.runtime.now(), BackOff::default());
        Self { shared, tell, subscribers: HashMap::new(), next_look, is_soon: false, back_off }
    }

    fn bring_into_line(&mut self, channel: Arc<str>) {
        match self.shared.channels.source(&channel) {
            // Even if subscribed: a new waiter needs the confirmation.
            Some(Some(node)) => self.change_at(node, channel),
            Some(None) => self.place(channel, None),
            None => {}
        }
    }

    /// Subscribes to the channel at the node that has its slot. `at`: the node it is subscribed at.
    fn place(&mut self, channel: Arc<str>, at: Source) {
        if at.is_none() && !self.shared.channels.is_wanted(&channel, at) {
            return;
        }
        let Some(node) = self.shared.topology.source(&channel) else {
            if at.is_none() {
                self.look_soon();
            }
            return;
        };
        let number = node.number;
        if let Some(at) = at.filter(|at| *at != number) {
            self.shared.channels.lose(&channel, Some(at));
            self.change_at(at, Arc::clone(&channel));
        }
        if at != Some(number) {
            self.subscribe_at(node);
            self.shared.channels.place(&channel, Some(number));
            self.change_at(number, channel);
        }
    }

    fn subscribe_at(&mut self, node: Arc<Node>) {
        self.subscribers.entry(node.number).or_insert_with(|| {
            let (changed, changes) = mpsc::unbounded_channel();
            let subscriber = Subscriber::new(node, self.shared.clone(), changes, self.tell.clone());
            self.shared.common.runtime.spawn(subscriber.run());
            changed
        });
    }

    fn change_at(&self, node: u64, channel: Arc<str>) {
        if let Some(subscriber) = self.subscribers.get(&node) {
            // The subscriber ends only after the supervisor.
            let _ = subscriber.send(channel);
        }
    }

    /// After a channel has lost its node, or a node its connection.
    fn look_soon(&mut self) {
        if !std::mem::replace(&mut self.is_soon, true) {
            let runtime = &self.shared.common.runtime;
            self.next_look = runtime.now() + self.back_off.next(runtime.random());
            self.shared.topology.refresh_in_background();
        }
    }

    /// Moves channels whose slots have moved, and ends subscribers without channels.
    fn look_around(&mut self) {
        let (channels, common) = (Arc::clone(&self.shared.channels), &self.shared.common);
        self.next_look = common.runtime.now() + common.timing.heartbeat;
        let was_soon = std::mem::take(&mut self.is_soon);
        for (channel, at) in channels.placed() {
            self.place(channel, at);
        }
        let used: HashSet<Source> = channels.placed().into_iter().map(|(_, at)| at).collect();
        self.subscribers.retain(|node, _| used.contains(&Some(*node)));
        if !was_soon && !self.is_soon {
            self.back_off.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use ::redis::RedisResult;
    use tokio::sync::watch;

    use super::super::super::connection::{
        Boxed, Common, Connection, Error, Known, MultiplexedConnection, Push, Server, ServerEpoch, Timing,
    };
    use super::super::super::keys::Nonces;
    use super::super::super::topology::Topology;
    use super::super::channels::ChannelTable;
    use super::*;
    use crate::subscription::Registry;
    use crate::support::runtime::TokioRuntime;
    use crate::support::sync::atomic::{AtomicU64, Ordering};

    struct Silent(watch::Sender<Known>);

    impl Server for Silent {
        fn address(&self) -> Arc<str> {
            "silent".into()
        }

        fn dial(&self, _: Push) -> Boxed<'_, Result<(MultiplexedConnection, ServerEpoch), Error>> {
            Box::pin(std::future::pending())
        }

        fn heartbeat<'a>(&'a self, _: &'a mut MultiplexedConnection) -> Boxed<'a, RedisResult<()>> {
            Box::pin(std::future::pending())
        }

        fn known(&self) -> &watch::Sender<Known> {
            &self.0
        }
    }

    /// Two nodes, numbers 7 and 8. Either has all slots, or none has.
    struct Nodes {
        nodes: [Arc<Node>; 2],
        with: AtomicU64,
        looks: AtomicU64,
    }

    impl Nodes {
        /// `node`: 0 gives the slots to no node.
        fn give(&self, node: u64) {
            // Ordering: Relaxed, the test is single-threaded.
            self.with.store(node, Ordering::Relaxed);
        }

        fn looks(&self) -> u64 {
            // Ordering: Relaxed, the test is single-threaded.
            self.looks.swap(0, Ordering::Relaxed)
        }
    }

    impl Topology for Nodes {
        fn node(&self, _: &str) -> Option<Arc<Node>> {
            unreachable!("it is asked for messages only")
        }

        fn source(&self, _: &str) -> Option<Arc<Node>> {
            // Ordering: Relaxed, the test is single-threaded.
            let with = self.with.load(Ordering::Relaxed);
            self.nodes.iter().find(|node| node.number == with).cloned()
        }

        fn is_sharded(&self) -> bool {
            true
        }

        fn refresh_in_background(&self) {
            // Ordering: Relaxed, the test is single-threaded.
            self.looks.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn supervisor() -> (Supervisor, Arc<Nodes>) {
        let runtime = TokioRuntime::current();
        let common = Arc::new(Common::new(Timing::default(), runtime.clone()));
        let nodes = [7, 8].map(|number| {
            let listening = Arc::new(Silent(watch::Sender::new(None)));
            let commands = Connection::new(Arc::clone(&listening) as Arc<dyn Server>, &common, None);
            Arc::new(Node { number, commands, listening })
        });
        let topology = Arc::new(Nodes { nodes, with: AtomicU64::new(7), looks: AtomicU64::new(0) });
        let nodes = Arc::clone(&topology) as Arc<dyn Topology>;
        let (channels, nonces) = (ChannelTable::new(None), Nonces::new(&runtime));
        let (channels, nonces) = (Arc::new(channels), Arc::new(nonces));
        let shared = Shared { topology: nodes, common, channels, nonces };
        (Supervisor::new(shared, mpsc::unbounded_channel().0), topology)
    }

    /// A node, and a channel for its subscriber to compare with the table.
    type Told = (u64, Arc<str>);

    fn supervisor_of_changes() -> (Supervisor, Arc<Nodes>, impl FnMut() -> Vec<Told>) {
        let (mut supervisor, topology) = supervisor();
        let mut all = [7, 8].map(|node| {
            let (changed, changes) = mpsc::unbounded_channel();
            supervisor.subscribers.insert(node, changed);
            (node, changes)
        });
        let told = move || {
            let of_each = all.iter_mut().map(|(node, changes)| {
                let node = *node;
                std::iter::from_fn(|| changes.try_recv().ok())
                    .map(|channel| (node, channel))
                    .collect::<Vec<_>>()
            });
            of_each.flatten().collect()
        };
        (supervisor, topology, told)
    }

    fn lose(supervisor: &mut Supervisor, channel: &str, node: u64) {
        if supervisor.shared.channels.lose(channel, Some(node)) {
            supervisor.look_soon();
        }
    }

    #[tokio::test]
    async fn channel_without_a_node_is_not_ready_for_its_next_waiter() {
        let (mut supervisor, topology) = supervisor();
        let (channel, channels): (Arc<str>, _) = ("orders".into(), Arc::clone(&supervisor.shared.channels));
        let registry = Registry::new(Arc::clone(&channels));
        let first = registry.subscribe(&channel);
        supervisor.bring_into_line(Arc::clone(&channel));
        channels.confirm(&channel, Some(7));
        assert!(first.is_ready());
        topology.give(0);
        lose(&mut supervisor, &channel, 7);
        drop(first);
        let next = registry.subscribe(&channel);
        assert!(!next.is_ready(), "expected no readiness without a node");
        supervisor.bring_into_line(Arc::clone(&channel));
        supervisor.look_around();
        assert!(!next.is_ready(), "expected no readiness before a node has the slot");
        topology.give(8);
        supervisor.look_around();
        channels.confirm(&channel, Some(8));
        assert!(next.is_ready());
    }

    #[tokio::test]
    async fn returning_waiter_is_confirmed_again_unlike_a_departed_one() {
        let (mut supervisor, _, mut said) = supervisor_of_changes();
        let channel: Arc<str> = "orders".into();
        let registry = Registry::new(Arc::clone(&supervisor.shared.channels));
        let interest = registry.subscribe(&channel);
        for _ in 0..2 {
            supervisor.bring_into_line(Arc::clone(&channel));
            assert_eq!(said(), [(7, Arc::clone(&channel))]);
        }
        drop(interest);
        supervisor.bring_into_line(Arc::clone(&channel));
        assert_eq!(said(), [(7, Arc::clone(&channel))]);
        assert!(!supervisor.shared.channels.is_wanted(&channel, Some(7)));
        supervisor.bring_into_line(channel);
        assert!(said().is_empty() && supervisor.shared.channels.placed().is_empty());
    }

    #[tokio::test]
    async fn channel_follows_its_slot_and_counts_messages_as_lost() {
        let (mut supervisor, topology, mut said) = supervisor_of_changes();
        let (channel, channels): (Arc<str>, _) = ("orders".into(), Arc::clone(&supervisor.shared.channels));
        let registry = Registry::new(Arc::clone(&channels));
        let interest = registry.subscribe(&channel);
        supervisor.bring_into_line(Arc::clone(&channel));
        supervisor.look_around();
        channels.confirm(&channel, Some(7));
        assert_eq!(said().len(), 1, "expected no move of a channel that is at its node");
        topology.give(8);
        let before = supervisor.shared.common.runtime.now();
        supervisor.look_around();
        assert_eq!(said(), [(7, Arc::clone(&channel))]);
        assert_eq!(channels.source(&channel), Some(Some(8)));
        assert!(!channels.is_active(&channel));
        assert!(supervisor.next_look > before);
        assert!(
            !supervisor.subscribers.contains_key(&7),
            "expected no subscriber of a node without channels"
        );
        // Later notices of the old node are stale.
        lose(&mut supervisor, &channel, 7);
        assert_eq!(channels.source(&channel), Some(Some(8)));
        lose(&mut supervisor, &channel, 8);
        assert_eq!(channels.source(&channel), Some(None));
        supervisor.bring_into_line(Arc::clone(&channel));
        assert_eq!(channels.source(&channel), Some(Some(8)));
        lose(&mut supervisor, &channel, 8);
        drop(interest);
        supervisor.look_around();
        assert!(said().is_empty() && channels.placed().is_empty());
    }

    #[tokio::test]
    async fn one_refresh_of_slots_serves_all_channels_that_lost_theirs() {
        let (mut supervisor, topology, _said) = supervisor_of_changes();
        let registry = Registry::new(Arc::clone(&supervisor.shared.channels));
        let interests =
            ["one", "two"].map(|channel| (Arc::<str>::from(channel), registry.subscribe(channel)));
        for (channel, _) in &interests {
            supervisor.bring_into_line(Arc::clone(channel));
        }
        let mut next_tries = Vec::new();
        for (channel, _) in &interests {
            lose(&mut supervisor, channel, 7);
            next_tries.push(supervisor.next_look);
        }
        assert_eq!(topology.looks(), 1);
        assert_eq!(next_tries[0], next_tries[1]);
        topology.give(0);
        supervisor.look_around();
        assert!(supervisor.subscribers.is_empty(), "expected no subscriber without a node");
    }

    #[tokio::test]
    async fn channel_search_goes_on_until_a_node_has_its_slot() {
        let (mut supervisor, topology, mut said) = supervisor_of_changes();
        let channel: Arc<str> = "orders".into();
        let registry = Registry::new(Arc::clone(&supervisor.shared.channels));
        let _interest = registry.subscribe(&channel);
        topology.give(0);
        supervisor.bring_into_line(Arc::clone(&channel));
        assert_eq!(topology.looks(), 1);
        for _ in 0..3 {
            let before = supervisor.next_look;
            supervisor.look_around();
            assert!(said().is_empty() && supervisor.shared.channels.source(&channel) == Some(None));
            assert_eq!(topology.looks(), 1, "expected one refresh of the slots");
            assert!(supervisor.next_look > before, "expected a pause before the next try");
        }
        topology.give(8);
        supervisor.look_around();
        assert_eq!(supervisor.shared.channels.source(&channel), Some(Some(8)));
        assert!(!supervisor.is_soon);
    }

    #[tokio::test]
    async fn lost_node_keeps_its_subscriber_while_a_channel_moves_away() {
        let (mut supervisor, _) = supervisor();
        let registry = Registry::new(Arc::clone(&supervisor.shared.channels));
        let interest = registry.subscribe("orders");
        supervisor.bring_into_line("orders".into());
        supervisor.look_around();
        assert!(supervisor.subscribers.contains_key(&7));
        drop(interest);
        supervisor.look_around();
        assert!(
            supervisor.subscribers.contains_key(&7),
            "expected the subscriber until it has processed the end"
        );
        assert!(!supervisor.shared.channels.is_wanted("orders", Some(7)));
        supervisor.look_around();
        assert!(!supervisor.subscribers.contains_key(&7));
    }

    #[tokio::test]
    async fn retry_pauses_restart_once_each_channel_has_its_node() {
        let (mut supervisor, topology) = supervisor();
        let registry = Registry::new(Arc::clone(&supervisor.shared.channels));
        let _interest = registry.subscribe("orders");
        topology.give(0);
        supervisor.bring_into_line("orders".into());
        supervisor.look_around();
        let shortest = BackOff::default().next(0);
        assert_eq!(supervisor.back_off.next(0), 4 * shortest, "expected growing pauses without a node");
        topology.give(8);
        supervisor.look_around();
        assert_eq!(
            supervisor.back_off.next(0),
            8 * shortest,
            "expected growing pauses before the confirmation"
        );
        supervisor.look_around();
        assert_eq!(supervisor.back_off.next(0), shortest);
    }
}

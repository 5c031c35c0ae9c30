//! The supervisor: subscribes each channel that is desired at the subscriber of the node that it comes from,
//! and after that node when it moves.
//!
//! While a slot of a Cluster moves, a lock that has moved already is released at the new master, and its
//! waiters are subscribed at the old one. It is called once the move is over.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::runtime::Runtime;

use super::super::connection::{BackOff, Common};
use super::super::nonces::Nonces;
use super::super::topology::{Messages, Node, Topology};
use super::deliveries::Deliveries;
use super::desired::Desired;
use super::subscriber::{News, Subscriber, Wish};
use crate::runtime::TokioRuntime;

/// Keeps the subscriptions as `desired`, until the transport is dropped.
pub(super) async fn supervise(
    topology: Arc<dyn Topology>,
    common: Arc<Common>,
    desired: Arc<Desired>,
    nonces: Arc<Nonces>,
    mut changes: mpsc::UnboundedReceiver<Arc<str>>,
) {
    let (tell, mut news) = mpsc::unbounded_channel();
    let (runtime, heartbeat) = (common.runtime.clone(), common.timing.heartbeat);
    let look_around = runtime.sleep(Duration::ZERO);
    tokio::pin!(look_around);
    let mut supervisor = Supervisor {
        topology,
        common,
        desired,
        nonces,
        tell,
        subscribers: HashMap::new(),
        placed: HashMap::new(),
        astray: BTreeSet::new(),
        next_try: runtime.now(),
        back_off: BackOff::between_dials(),
    };
    supervisor.begin();
    loop {
        tokio::select! {
            // In this order: timers are ready seldom, and there is news after changes only. So none keeps the
            // others waiting.
            biased;
            () = &mut look_around => {
                supervisor.compare();
                look_around.set(runtime.sleep(heartbeat));
            }
            () = until(&runtime, supervisor.next_try), if !supervisor.astray.is_empty() => {
                supervisor.place_astray();
            }
            // There is always a sender left: the supervisor has one itself.
            Some(news) = news.recv() => supervisor.hear(news),
            change = changes.recv() => match change {
                Some(channel) => supervisor.bring_into_line(channel),
                // With the orders to them the subscribers end, too.
                None => return,
            },
        }
    }
}

async fn until(runtime: &TokioRuntime, deadline: Instant) {
    runtime.sleep(deadline.saturating_duration_since(runtime.now())).await;
}

struct Supervisor {
    topology: Arc<dyn Topology>,
    common: Arc<Common>,
    desired: Arc<Desired>,
    nonces: Arc<Nonces>,
    tell: mpsc::UnboundedSender<News>,
    /// By the node's number: where their orders go.
    subscribers: HashMap<u64, mpsc::UnboundedSender<(Arc<str>, Wish)>>,
    /// Which node each channel is subscribed to at.
    placed: HashMap<Arc<str>, u64>,
    /// Channels that were taken from us, and that no node has been found for yet.
    astray: BTreeSet<Arc<str>>,
    /// When to look for one, if there are any.
    next_try: Instant,
    back_off: BackOff,
}

impl Supervisor {
    /// Plain messages all come from one place, so the first waiter need not wait for the connection.
    fn begin(&mut self) {
        if self.topology.messages() == Messages::Plain
            && let Some(node) = self.topology.source("")
        {
            self.subscribe_at(node);
        }
    }

    fn bring_into_line(&mut self, channel: Arc<str>) {
        let wanted = self.desired.contains(&channel);
        match self.placed.get(&channel).copied() {
            // Again if it is there already: the waiter that wants it now may be another than before.
            Some(node) if wanted => self.order(node, channel, Wish::Subscribe),
            Some(node) => {
                self.placed.remove(&channel);
                self.order(node, channel, Wish::Unsubscribe);
            }
            None if !wanted => {
                self.astray.remove(&channel);
            }
            None if self.astray.contains(&channel) => {}
            None => self.place(channel, Wish::Subscribe),
        }
    }

    fn place(&mut self, channel: Arc<str>, wish: Wish) {
        let Some(node) = self.topology.source(&channel) else {
            self.lose(channel);
            return;
        };
        let number = node.number;
        self.subscribe_at(node);
        self.placed.insert(Arc::clone(&channel), number);
        self.order(number, channel, wish);
    }

    /// Sees to it that the node has a subscriber.
    fn subscribe_at(&mut self, node: Arc<Node>) {
        self.subscribers.entry(node.number).or_insert_with(|| {
            let (orders, to_do) = mpsc::unbounded_channel();
            let messages = self.topology.messages();
            let deliveries = Deliveries::new(&self.desired, &self.nonces);
            let subscriber =
                Subscriber::new(node, messages, &self.common, deliveries, to_do, self.tell.clone());
            self.common.runtime.spawn(subscriber.run());
            orders
        });
    }

    fn order(&self, node: u64, channel: Arc<str>, wish: Wish) {
        if let Some(subscriber) = self.subscribers.get(&node) {
            // It ends only when we do.
            let _ = subscriber.send((channel, wish));
        }
    }

    /// The channel is nowhere now.
    fn lose(&mut self, channel: Arc<str>) {
        self.desired.mark_lost(&channel);
        if self.astray.is_empty() {
            let runtime = &self.common.runtime;
            self.next_try = runtime.now() + self.back_off.next(runtime.random());
            self.topology.refresh_in_background();
        }
        self.astray.insert(channel);
    }

    fn place_astray(&mut self) {
        for channel in std::mem::take(&mut self.astray) {
            if self.desired.contains(&channel) {
                self.place(channel, Wish::Resubscribe);
            }
        }
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Gone { node, channel } => {
                if self.placed.get(&channel).is_some_and(|at| *at == node) {
                    self.placed.remove(&channel);
                    self.lose(channel);
                }
            }
            // Its slots may be another's soon.
            News::Down { node } => {
                self.topology.refresh_in_background();
                self.retire(&HashSet::from([node]));
            }
        }
    }

    /// Follows channels of which commands have learned since that they are elsewhere.
    fn compare(&mut self) {
        let elsewhere = |channel: &Arc<str>, at: &u64| {
            self.topology.source(channel).is_some_and(|node| node.number != *at)
        };
        let mut moved: Vec<_> = self.placed.extract_if(|channel, at| elsewhere(channel, at)).collect();
        // A map has them in another order in each process.
        moved.sort_unstable();
        let mut left = HashSet::new();
        for (channel, node) in moved {
            self.order(node, Arc::clone(&channel), Wish::Unsubscribe);
            self.lose(channel);
            left.insert(node);
        }
        if !left.is_empty() {
            self.retire(&left);
        }
        if self.astray.is_empty() {
            self.back_off.reset();
        }
    }

    /// Those of `nodes` that no channel comes from any more need no subscriber, if channels come from other
    /// nodes as well.
    fn retire(&mut self, nodes: &HashSet<u64>) {
        if self.topology.messages() == Messages::Plain {
            return;
        }
        let used: HashSet<u64> = self.placed.values().copied().collect();
        self.subscribers.retain(|node, _| !nodes.contains(node) || used.contains(node));
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use ::redis::RedisResult;
    use tokio::sync::watch;

    use super::super::super::connection::{
        Boxed, Connection, Error, MultiplexedConnection, Push, Server, ServerEpoch, Timing,
    };
    use super::*;
    use crate::registry::Registry;
    use crate::sync::atomic::{AtomicU64, Ordering};

    /// One that does not answer.
    struct Silent;

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

        fn invalidate(&self, _: &ServerEpoch) {}

        fn moved(&self) -> ServerEpoch {
            ServerEpoch::until_moved(watch::Sender::new(None).subscribe())
        }
    }

    /// Two nodes, number 7 and 8. All slots are with one of them, or with none.
    struct Nodes {
        messages: Messages,
        nodes: [Arc<Node>; 2],
        with: AtomicU64,
        looks: AtomicU64,
    }

    impl Nodes {
        /// All slots go there. `0`: to none.
        fn give(&self, node: u64) {
            // Ordering: Relaxed, all is on one thread.
            self.with.store(node, Ordering::Relaxed);
        }

        /// How often it was looked where they are, since this was asked last.
        fn looks(&self) -> u64 {
            // Ordering: Relaxed, all is on one thread.
            self.looks.swap(0, Ordering::Relaxed)
        }
    }

    impl Topology for Nodes {
        fn node(&self, _: &str) -> Option<Arc<Node>> {
            unreachable!("it is asked for messages only")
        }

        fn source(&self, _: &str) -> Option<Arc<Node>> {
            // Ordering: Relaxed, all is on one thread.
            let with = self.with.load(Ordering::Relaxed);
            self.nodes.iter().find(|node| node.number == with).cloned()
        }

        fn messages(&self) -> Messages {
            self.messages
        }

        fn refresh_in_background(&self) {
            // Ordering: Relaxed, all is on one thread.
            self.looks.fetch_add(1, Ordering::Relaxed);
        }

        fn with_own_connections(&self) -> Arc<dyn Topology> {
            unreachable!("it is asked for messages only")
        }
    }

    impl fmt::Debug for Nodes {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Nodes")
        }
    }

    fn supervisor(messages: Messages) -> (Supervisor, Arc<Nodes>) {
        let runtime = TokioRuntime::current();
        let common = Arc::new(Common::new(Timing::default(), runtime.clone()));
        let desired = Arc::new(Desired::default());
        let nodes = [7, 8].map(|number| {
            let listening = Arc::new(Silent);
            let commands = Connection::new(Arc::clone(&listening) as Arc<dyn Server>, &common, None);
            Arc::new(Node { number, commands, listening })
        });
        let topology = Arc::new(Nodes { messages, nodes, with: AtomicU64::new(7), looks: AtomicU64::new(0) });
        let supervisor = Supervisor {
            topology: Arc::clone(&topology) as Arc<dyn Topology>,
            nonces: Arc::new(Nonces::new(&runtime)),
            common,
            desired,
            tell: mpsc::unbounded_channel().0,
            subscribers: HashMap::new(),
            placed: HashMap::new(),
            astray: BTreeSet::new(),
            next_try: runtime.now(),
            back_off: BackOff::between_dials(),
        };
        (supervisor, topology)
    }

    /// Which node is ordered what about which channel.
    type Order = (u64, Arc<str>, Wish);

    /// A supervisor whose orders to both nodes come here.
    fn supervisor_of_orders() -> (Supervisor, Arc<Nodes>, impl FnMut() -> Vec<Order>) {
        let (mut supervisor, topology) = supervisor(Messages::Sharded);
        let mut orders = [7, 8].map(|node| {
            let (orders, to_do) = mpsc::unbounded_channel();
            supervisor.subscribers.insert(node, orders);
            (node, to_do)
        });
        let said = move || {
            let of_each = orders.iter_mut().map(|(node, to_do)| {
                let node = *node;
                std::iter::from_fn(|| to_do.try_recv().ok())
                    .map(|(channel, wish)| (node, channel, wish))
                    .collect::<Vec<_>>()
            });
            of_each.flatten().collect()
        };
        (supervisor, topology, said)
    }

    /// The first waiter need not wait for a connection to the one place that plain messages come from. Of the
    /// nodes of a Cluster that any of them is needed is not known before there is a channel.
    #[tokio::test]
    async fn only_the_one_source_of_plain_messages_is_connected_to_before_there_is_a_channel() {
        for (messages, connected) in [(Messages::Plain, 1), (Messages::Sharded, 0)] {
            let (mut supervisor, _) = supervisor(messages);
            supervisor.begin();
            assert_eq!(supervisor.subscribers.len(), connected, "{messages:?}");
        }
    }

    /// Its messages do not arrive until then.
    #[tokio::test]
    async fn channel_whose_slot_no_node_has_is_not_ready_for_its_next_waiter() {
        let (mut supervisor, topology) = supervisor(Messages::Sharded);
        let (channel, desired): (Arc<str>, _) = ("orders".into(), Arc::clone(&supervisor.desired));
        let registry = Registry::new(Arc::clone(&desired));
        let first = registry.subscribe(&channel);
        supervisor.bring_into_line(Arc::clone(&channel));
        desired.confirm(&channel, false);
        assert!(first.is_ready());
        topology.give(0);
        supervisor.hear(News::Gone { node: 7, channel: Arc::clone(&channel) });
        drop(first);
        let next = registry.subscribe(&channel);
        assert!(!next.is_ready(), "no node sends its messages");
        supervisor.bring_into_line(Arc::clone(&channel));
        supervisor.place_astray();
        assert!(!next.is_ready(), "none has it yet");
        desired.confirm(&channel, true);
        assert!(next.is_ready());
    }

    #[tokio::test]
    async fn waiter_that_comes_again_is_confirmed_again_and_one_that_has_left_is_not_subscribed() {
        let (mut supervisor, _, mut said) = supervisor_of_orders();
        let channel: Arc<str> = "orders".into();
        let registry = Registry::new(Arc::clone(&supervisor.desired));
        let interest = registry.subscribe(&channel);
        for _ in 0..2 {
            supervisor.bring_into_line(Arc::clone(&channel));
            assert_eq!(said(), [(7, Arc::clone(&channel), Wish::Subscribe)]);
        }
        drop(interest);
        supervisor.bring_into_line(Arc::clone(&channel));
        assert_eq!(said(), [(7, Arc::clone(&channel), Wish::Unsubscribe)]);
        supervisor.bring_into_line(channel);
        assert!(said().is_empty() && supervisor.placed.is_empty());
    }

    #[tokio::test]
    async fn channel_goes_after_its_slot_and_what_was_sent_on_the_way_counts_as_lost() {
        let (mut supervisor, topology, mut said) = supervisor_of_orders();
        let (channel, desired): (Arc<str>, _) = ("orders".into(), Arc::clone(&supervisor.desired));
        let registry = Registry::new(Arc::clone(&desired));
        let interest = registry.subscribe(&channel);
        supervisor.bring_into_line(Arc::clone(&channel));
        supervisor.compare();
        desired.confirm(&channel, false);
        assert_eq!(said().len(), 1, "where it is, it stays");
        topology.give(8);
        let before = supervisor.common.runtime.now();
        supervisor.compare();
        assert_eq!(said(), [(7, Arc::clone(&channel), Wish::Unsubscribe)]);
        assert!(!desired.is_active(&channel));
        assert!(!supervisor.subscribers.contains_key(&7), "nothing comes from there any more");
        assert!(supervisor.next_try > before);
        // What the old node says now is about what was there.
        let ended = News::Gone { node: 7, channel: Arc::clone(&channel) };
        supervisor.place_astray();
        assert_eq!(said(), [(8, Arc::clone(&channel), Wish::Resubscribe)]);
        supervisor.hear(ended);
        assert_eq!(supervisor.placed.get(&channel), Some(&8));
        supervisor.hear(News::Gone { node: 8, channel: Arc::clone(&channel) });
        assert!(supervisor.placed.is_empty() && supervisor.astray.contains(&channel));
        // Not at once for the next waiter: that would ask a Cluster that is on the move again and again.
        supervisor.bring_into_line(Arc::clone(&channel));
        assert!(said().is_empty());
        supervisor.place_astray();
        assert_eq!(said(), [(8, Arc::clone(&channel), Wish::Resubscribe)]);
        // One that nothing waits for goes nowhere.
        supervisor.hear(News::Gone { node: 8, channel: Arc::clone(&channel) });
        drop(interest);
        supervisor.place_astray();
        assert!(said().is_empty() && supervisor.placed.is_empty() && supervisor.astray.is_empty());
    }

    #[tokio::test]
    async fn it_is_looked_once_where_slots_are_for_all_channels_that_have_lost_theirs() {
        let (mut supervisor, topology, _said) = supervisor_of_orders();
        let registry = Registry::new(Arc::clone(&supervisor.desired));
        let interests =
            ["one", "two"].map(|channel| (Arc::<str>::from(channel), registry.subscribe(channel)));
        for (channel, _) in &interests {
            supervisor.bring_into_line(Arc::clone(channel));
        }
        let mut next_tries = Vec::new();
        for (channel, _) in &interests {
            supervisor.hear(News::Gone { node: 7, channel: Arc::clone(channel) });
            next_tries.push(supervisor.next_try);
        }
        assert_eq!(topology.looks(), 1);
        assert_eq!(next_tries[0], next_tries[1]);
        // Of one that is lost alone as well, as its slots may be another's soon.
        supervisor.hear(News::Down { node: 7 });
        assert_eq!(topology.looks(), 1);
        assert!(!supervisor.subscribers.contains_key(&7) && supervisor.subscribers.contains_key(&8));
    }

    #[tokio::test]
    async fn next_try_is_waited_for() {
        let runtime = TokioRuntime::current();
        let deadline = runtime.now() + Duration::from_millis(20);
        until(&runtime, deadline).await;
        assert!(runtime.now() >= deadline);
    }

    /// As in a failover: no node has the slot for longer than it takes to look once.
    #[tokio::test]
    async fn channel_is_looked_after_until_a_node_has_its_slot_however_often_there_was_none() {
        let (mut supervisor, topology, mut said) = supervisor_of_orders();
        let channel: Arc<str> = "orders".into();
        let registry = Registry::new(Arc::clone(&supervisor.desired));
        let _interest = registry.subscribe(&channel);
        topology.give(0);
        supervisor.bring_into_line(Arc::clone(&channel));
        assert_eq!(topology.looks(), 1);
        for _ in 0..3 {
            let before = supervisor.next_try;
            supervisor.place_astray();
            assert!(said().is_empty() && supervisor.placed.is_empty());
            assert_eq!(topology.looks(), 1, "where it is then is asked each time");
            assert!(supervisor.next_try > before, "it would turn and turn");
        }
        topology.give(8);
        supervisor.place_astray();
        assert_eq!(said(), [(8, channel, Wish::Resubscribe)]);
        assert!(supervisor.astray.is_empty());
    }

    #[tokio::test]
    async fn node_that_is_lost_keeps_its_subscriber_while_a_channel_comes_from_it_or_could_from_no_other() {
        for (messages, has_channel, stays) in [
            (Messages::Sharded, true, true),
            (Messages::Sharded, false, false),
            (Messages::Plain, false, true),
        ] {
            let (mut supervisor, _) = supervisor(messages);
            let registry = Registry::new(Arc::clone(&supervisor.desired));
            let interest = registry.subscribe("orders");
            supervisor.bring_into_line("orders".into());
            assert!(supervisor.subscribers.contains_key(&7));
            if !has_channel {
                drop(interest);
                supervisor.bring_into_line("orders".into());
            }
            supervisor.hear(News::Down { node: 7 });
            assert_eq!(supervisor.subscribers.contains_key(&7), stays, "{messages:?}, {has_channel}");
        }
    }

    /// A channel that finds its node and loses it again, over and over, is asked about ever more seldom.
    #[tokio::test]
    async fn tries_begin_anew_once_each_channel_has_its_node_when_it_is_looked_around() {
        let (mut supervisor, topology) = supervisor(Messages::Sharded);
        let registry = Registry::new(Arc::clone(&supervisor.desired));
        let _interest = registry.subscribe("orders");
        topology.give(0);
        supervisor.bring_into_line("orders".into());
        supervisor.place_astray();
        supervisor.compare();
        let shortest = BackOff::between_dials().next(0);
        assert_eq!(supervisor.back_off.next(0), 4 * shortest, "it has no node yet");
        topology.give(8);
        supervisor.place_astray();
        assert_eq!(supervisor.back_off.next(0), 8 * shortest, "it could be gone at once");
        supervisor.compare();
        assert_eq!(supervisor.back_off.next(0), shortest);
    }
}

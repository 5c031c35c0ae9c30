//! Sharded messages: a channel is subscribed to at the master that has its slot, so there is a [line](super::line) for each of
//! these.
//!
//! While a slot moves, a lock that has moved already is released at the new master, and whoever waits is subscribed at the old one. It
//! is called once the move is over.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until};

use super::super::back_off::BackOff;
use super::super::subscriptions::HEARTBEAT;
use super::super::timeouts::Timeouts;
use super::super::transport::Changes;
use super::super::wanted::Wanted;
use super::line::{self, News, Order, Wish};
use super::nodes::Nodes;
use super::slot;

/// Keeps the subscriptions as `wanted`, through every loss of a connection and every move of a slot, until the transport is
/// dropped.
pub(crate) async fn supervise(
    nodes: Arc<Nodes>,
    timeouts: Timeouts,
    wanted: Arc<Wanted>,
    mut changes: Changes,
) {
    let (tell, mut news) = mpsc::unbounded_channel();
    let mut shards = Shards {
        nodes,
        timeouts,
        wanted,
        tell,
        lines: HashMap::new(),
        placed: HashMap::new(),
        astray: HashSet::new(),
        next_try: Instant::now(),
        back_off: BackOff::to_reconnect(),
        line_numbers: 0,
    };
    let mut look_around = interval(HEARTBEAT);
    look_around.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            change = changes.recv() => match change {
                Some(channel) => shards.bring_into_line(channel),
                // With the orders to them the lines end, too.
                None => return,
            },
            // There is always somebody who could tell: `shards` itself.
            Some(news) = news.recv() => shards.hear(news),
            () = sleep_until(shards.next_try), if !shards.astray.is_empty() => shards.place_astray(),
            _ = look_around.tick() => shards.compare(),
        }
    }
}

/// All lines, and what is subscribed to over which.
struct Shards {
    nodes: Arc<Nodes>,
    timeouts: Timeouts,
    wanted: Arc<Wanted>,
    tell: mpsc::UnboundedSender<News>,
    /// By the node's number.
    lines: HashMap<u64, LineHandle>,
    placed: HashMap<Arc<str>, Place>,
    /// Channels that were taken from us, or whose line has ended, and that nobody has been found for yet.
    astray: HashSet<Arc<str>>,
    /// When to look for somebody, if there are any.
    next_try: Instant,
    back_off: BackOff,
    line_numbers: u64,
}

struct LineHandle {
    /// Tells this line of a node from the one before.
    number: u64,
    orders: mpsc::UnboundedSender<Order>,
}

#[derive(Clone, Copy)]
struct Place {
    node: u64,
    slot: u16,
}

impl Shards {
    fn bring_into_line(&mut self, channel: Arc<str>) {
        let wanted = self.wanted.contains(&channel);
        match self.placed.get(&channel).copied() {
            // Again if it is there already: who wants it now may be another than who did before.
            Some(place) if wanted => self.order(place.node, channel, Wish::Subscribe),
            Some(place) => {
                self.placed.remove(&channel);
                self.order(place.node, channel, Wish::Unsubscribe);
            }
            None if !wanted => {
                self.astray.remove(&channel);
            }
            None if self.astray.contains(&channel) => {}
            None => self.place(channel, Wish::Subscribe),
        }
    }

    fn place(&mut self, channel: Arc<str>, wish: Wish) {
        let slot = slot::slot(&channel);
        let Some(node) = self.nodes.owner(slot) else {
            self.lose(channel);
            return;
        };
        self.lines.entry(node.number).or_insert_with(|| {
            self.line_numbers += 1;
            let (orders, to_do) = mpsc::unbounded_channel();
            let ended = News::Ended { node: node.number, line: self.line_numbers };
            let (timeouts, wanted, tell) = (self.timeouts, Arc::clone(&self.wanted), self.tell.clone());
            let node = Arc::clone(&node);
            tokio::spawn(async move {
                let _ = line::serve(node, timeouts, wanted, to_do, &tell).await;
                let _ = tell.send(ended);
            });
            LineHandle { number: self.line_numbers, orders }
        });
        self.placed.insert(Arc::clone(&channel), Place { node: node.number, slot });
        self.order(node.number, channel, wish);
    }

    fn order(&self, node: u64, channel: Arc<str>, what: Wish) {
        if let Some(line) = self.lines.get(&node) {
            // If it has just ended, we are about to be told.
            let _ = line.orders.send(Order { channel, what });
        }
    }

    /// The channel is nowhere now.
    fn lose(&mut self, channel: Arc<str>) {
        self.wanted.falls(&channel);
        if self.astray.is_empty() {
            self.next_try = Instant::now() + self.back_off.next();
            self.nodes.refresh_soon(None);
        }
        self.astray.insert(channel);
    }

    fn place_astray(&mut self) {
        for channel in std::mem::take(&mut self.astray) {
            if self.wanted.contains(&channel) {
                self.place(channel, Wish::Resubscribe);
            }
        }
    }

    fn hear(&mut self, news: News) {
        match news {
            News::Up => {
                if self.astray.is_empty() {
                    self.back_off.reset();
                }
            }
            News::Gone { node, channel } => {
                if self.placed.get(&channel).is_some_and(|place| place.node == node) {
                    self.placed.remove(&channel);
                    self.lose(channel);
                }
            }
            News::Ended { node, line } => {
                if self.lines.get(&node).is_none_or(|known| known.number != line) {
                    return;
                }
                self.lines.remove(&node);
                let gone: Vec<_> = self.placed.extract_if(|_, place| place.node == node).collect();
                event!(WARN, channels = gone.len(), "connection for subscriptions lost");
                for (channel, _) in gone {
                    self.lose(channel);
                }
            }
        }
    }

    /// Looks whether commands have learned since that a slot is elsewhere.
    fn compare(&mut self) {
        let owner = |slot| self.nodes.owner(slot).map(|node| node.number);
        let elsewhere = |place: &Place| owner(place.slot).is_some_and(|node| node != place.node);
        let moved: Vec<_> = self.placed.extract_if(|_, place| elsewhere(place)).collect();
        for (channel, place) in moved {
            self.order(place.node, Arc::clone(&channel), Wish::Unsubscribe);
            self.lose(channel);
        }
    }
}

//! Subscriptions and their messages.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use latchwork::backend::Runtime;
use latchwork::subscription::{Inbox, Message, SubscribeError, Transport};

use super::network::{happens, way};
use super::{Data, Shared};
use crate::world::{Nanos, Process, SECOND};

/// A process that listens to a channel, at the store.
pub(super) struct Subscriber {
    pub(super) process: Process,
    /// Receiver of the messages; `None` while the ended subscription lingers.
    pub(super) inbox: Option<Inbox>,
    /// True while the store knows of the subscription, and messages arrive.
    pub(super) active: bool,
    /// Changes whenever messages in flight are lost.
    generation: u64,
    last_delivery: Nanos,
}

#[derive(Clone)]
struct Ticket {
    channel: String,
    process: usize,
    generation: u64,
}

impl Data {
    fn generation(&mut self) -> u64 {
        self.generations += 1;
        self.generations
    }

    fn find(&mut self, channel: &str, process: usize) -> Option<&mut Subscriber> {
        self.subscribers.get_mut(channel)?.iter_mut().find(|it| it.process.index() == process)
    }

    fn find_by(&mut self, ticket: &Ticket) -> Option<&mut Subscriber> {
        self.find(&ticket.channel, ticket.process).filter(|it| it.generation == ticket.generation)
    }

    fn remove(&mut self, channel: &str, process: usize) -> Option<Subscriber> {
        let subscribers = self.subscribers.get_mut(channel)?;
        let at = subscribers.iter().position(|it| it.process.index() == process)?;
        let removed = subscribers.remove(at);
        if subscribers.is_empty() {
            self.subscribers.remove(channel);
        }
        Some(removed)
    }
}

impl Shared {
    fn way(&self) -> Nanos {
        let has_faults = self.has_faults();
        self.world.chance(|chance| way(&self.network, chance, has_faults))
    }

    /// Publishes to all listeners. Returns the number of listeners except `from`, as far as known.
    pub(super) fn publish(&self, data: &mut Data, from: usize, channel: &str, message: Message) -> usize {
        let (now, faults) = (self.world.now(), self.has_faults());
        data.notice_deaths(&self.world, now);
        let silent_until = data.silent_until;
        let (mut heard, mut cut) = (0, Vec::new());
        let Data { subscribers, links, .. } = data;
        let standing = subscribers.get_mut(channel).into_iter().flatten().filter(|it| it.active);
        for subscriber in standing {
            let process = subscriber.process.index();
            let Some(link) = links.get(&process).filter(|link| !link.is_known_dead(now)) else { continue };
            heard += usize::from(process != from);
            let network = &self.network;
            let (is_cut, is_lost, twice, overtakes) = self.world.chance(|chance| {
                let mut happens = |thousandths| faults && happens(chance, thousandths);
                let is_lost = happens(network.messages_cut) && happens(50);
                (happens(network.messages_cut), is_lost, happens(network.twice), happens(network.reordered))
            });
            if is_cut {
                cut.push(subscriber.process.clone());
            }
            if is_cut || is_lost {
                continue;
            }
            let mut at = now.max(silent_until).max(link.silent_until) + self.way();
            if !overtakes {
                at = at.max(subscriber.last_delivery + 1);
                subscriber.last_delivery = at;
            }
            let ticket = Ticket { channel: channel.to_owned(), process, generation: subscriber.generation };
            let again = self.habits.repeats_grants && matches!(message, Message::Granted(_));
            let again = again.then(|| self.world.chance(|chance| chance.u64(..20 * SECOND)));
            let times = [Some(at), twice.then(|| at + self.way()), again.map(|late| at + late)];
            for at in times.into_iter().flatten() {
                self.deliver(&subscriber.process, ticket.clone(), at, message);
            }
        }
        for process in cut {
            self.cut_messages(data, &process);
        }
        if self.habits.counts_listeners { heard } else { self.world.chance(|chance| chance.usize(..=heard)) }
    }

    /// Delivers a message by a task of the process, so that a suspended process receives the message later.
    fn deliver(&self, process: &Process, ticket: Ticket, at: Nanos, message: Message) {
        let (shared, world) = (self.this.clone(), self.world.clone());
        process.spawn(async move {
            world.sleep_until(at).await;
            let Some(shared) = shared.upgrade() else { return };
            let inbox = shared.data().find_by(&ticket).and_then(|subscriber| subscriber.inbox.clone());
            if let Some(inbox) = inbox {
                world.note(|| format!("p{} {:?} on {:?}", ticket.process, message, ticket.channel));
                tell(|| inbox.deliver(message));
            }
        });
    }

    /// Loses a process's messages in flight and its subscriptions, which are renewed later.
    pub(super) fn cut_messages(&self, data: &mut Data, process: &Process) {
        let world = &self.world;
        let down =
            world.chance(|chance| if chance.bool() { 0 } else { chance.u64(..3 * SECOND) }) + self.way();
        let generation = data.generation();
        for subscriber in data.subscribers.values_mut().flatten() {
            if subscriber.process.index() == process.index() {
                (subscriber.active, subscriber.generation) = (false, generation);
            }
        }
        let until = world.now() + down;
        data.link(process).unheard_until = until;
        world.note(|| format!("p{} loses its messages", process.index()));
        let (shared, index) = (self.this.clone(), process.index());
        world.spawn(async move {
            let Some(shared) = shared.upgrade() else { return };
            shared.world.sleep_until(until).await;
            shared.resubscribe(index, generation);
        });
    }

    fn resubscribe(self: &Arc<Self>, process: usize, generation: u64) {
        let mut data = self.data();
        let mut anew = Vec::new();
        for (channel, subscriber) in
            data.subscribers.iter_mut().flat_map(|(channel, all)| all.iter_mut().map(move |it| (channel, it)))
        {
            if subscriber.process.index() == process && subscriber.generation == generation {
                subscriber.active = true;
                let ticket = Ticket { channel: channel.clone(), process, generation };
                anew.push((subscriber.process.clone(), ticket));
            }
        }
        drop(data);
        for (process, ticket) in anew {
            self.confirm(&process, ticket, |inbox| inbox.resubscribed());
        }
    }

    fn confirm(self: &Arc<Self>, process: &Process, ticket: Ticket, tell_it: fn(&Inbox)) {
        let (shared, at) = (Arc::clone(self), self.world.now() + self.way());
        process.spawn(async move {
            shared.world.sleep_until(at).await;
            let inbox = shared.data().find_by(&ticket).and_then(|it| it.inbox.clone());
            if let Some(inbox) = inbox {
                tell(|| tell_it(&inbox));
            }
        });
    }

    fn begin(self: &Arc<Self>, process: &Process, ticket: Ticket) {
        let network = &self.network;
        let fails = self.has_faults()
            && self.world.chance(|it| happens(it, network.deaf) || happens(it, network.refused) && it.bool());
        let unheard_until = self.data().link(process).unheard_until;
        let at = self.world.now().max(unheard_until) + self.way();
        let (shared, process) = (Arc::clone(self), process.clone());
        self.world.spawn(async move {
            shared.world.sleep_until(at).await;
            if fails {
                return shared.fail(&process, ticket);
            }
            let stands = shared.data().find_by(&ticket).map(|it| it.active = true).is_some();
            if stands {
                shared.confirm(&process, ticket, Inbox::ready);
            }
        });
    }

    fn fail(self: &Arc<Self>, process: &Process, ticket: Ticket) {
        let (shared, at) = (Arc::clone(self), self.world.now() + self.way());
        process.spawn(async move {
            shared.world.sleep_until(at).await;
            let failed = {
                let mut data = shared.data();
                let is_there = data.find_by(&ticket).is_some();
                data.contract.refuses(ticket.process, &ticket.channel, shared.world.now());
                is_there.then(|| data.remove(&ticket.channel, ticket.process)).flatten()
            };
            if let Some(inbox) = failed.and_then(|subscriber| subscriber.inbox) {
                tell(|| inbox.failed(SubscribeError::new("the store does not let it listen")));
            }
        });
    }
}

/// Calls foreign code, and ignores its panics.
fn tell(tell: impl FnOnce()) {
    let _panic = catch_unwind(AssertUnwindSafe(tell));
}

pub(crate) struct ModelTransport {
    shared: Arc<Shared>,
    process: Process,
}

impl ModelTransport {
    pub(super) fn new(shared: &Arc<Shared>, process: &Process) -> Self {
        Self { shared: Arc::clone(shared), process: process.clone() }
    }
}

impl Transport for ModelTransport {
    fn subscribe(&self, channel: &Arc<str>, inbox: Inbox) {
        let (shared, process) = (&self.shared, self.process.index());
        if shared.world.is_over() {
            return;
        }
        let (ticket, stands, before) = {
            let mut data = shared.data();
            let generation = data.generation();
            let ticket = Ticket { channel: channel.to_string(), process, generation };
            match data.find(channel, process) {
                Some(lingers) => {
                    let before = lingers.inbox.replace(inbox);
                    let stands = Some(lingers.active);
                    let ticket = Ticket { generation: lingers.generation, ..ticket };
                    if before.is_some() {
                        let what = || format!("p{process} subscribes to {channel:?} twice at a time");
                        data.contract.is_broken(what);
                    }
                    (ticket, stands, before)
                }
                None => {
                    let process = self.process.clone();
                    let new = Subscriber {
                        process,
                        inbox: Some(inbox),
                        active: false,
                        generation,
                        last_delivery: 0,
                    };
                    data.subscribers.entry(channel.to_string()).or_default().push(new);
                    (ticket, None, None)
                }
            }
        };
        drop(before);
        match stands {
            None => shared.begin(&self.process, ticket),
            Some(true) => shared.confirm(&self.process, ticket, Inbox::ready),
            // Confirmed once the subscription is renewed.
            Some(false) => {}
        }
    }

    fn unsubscribe(&self, channel: &Arc<str>) {
        let (shared, process) = (&self.shared, self.process.index());
        if shared.world.is_over() {
            return;
        }
        let ended = {
            let mut data = shared.data();
            let ended = data.find(channel, process).and_then(|it| it.inbox.take());
            if ended.is_none() {
                let what =
                    || format!("p{process} unsubscribes from {channel:?}, to which it is not subscribed");
                data.contract.is_broken(what);
            }
            ended
        };
        if ended.is_none() {
            return;
        }
        let until = shared.world.now() + shared.habits.lingers + shared.way();
        let (shared, channel) = (Arc::clone(shared), Arc::clone(channel));
        shared.world.clone().spawn(async move {
            shared.world.sleep_until(until).await;
            let mut data = shared.data();
            // A newer subscription may have begun and ended since, and then lingers a little shorter.
            if data.find(&channel, process).is_some_and(|it| it.inbox.is_none()) {
                data.remove(&channel, process);
            }
        });
    }

    fn is_active(&self, channel: &str) -> bool {
        let mut data = self.shared.data();
        self.shared.habits.lingers > 0 && data.find(channel, self.process.index()).is_some_and(|it| it.active)
    }
}

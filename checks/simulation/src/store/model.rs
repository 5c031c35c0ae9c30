//! [`Model`]: a store written from the contract of the traits: the simplest state machine that fulfils the
//! contract, with every liberty that the contract leaves.
//!
//! Commands' effects are in `state`, their transport is in `network`, and messages are in `messages`. Choices
//! that a store makes once and for all are its `habits`.

mod backend;
mod contract;
mod habits;
mod harm;
mod messages;
mod network;
mod state;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use latchwork::backend::Mode;
use latchwork::subscription::Message;
use latchwork::{LeaseId, LockKind};

use self::backend::ModelBackend;
use self::contract::Contract;
use self::habits::Habits;
use self::messages::Subscriber;
use self::network::Link;
use self::state::{NEVER, Name, News, READERS_TURN, Step, Time};
use super::{Harm, Network, Store, StoredLease};
use crate::world::{Nanos, Process, SECOND, World};

/// Number of past changes kept for a fallback.
const REMEMBERED: usize = 4096;

#[derive(Clone)]
pub(crate) struct Model(Arc<Shared>);

struct Shared {
    this: Weak<Shared>,
    world: World,
    network: Network,
    habits: Habits,
    data: Mutex<Data>,
}

#[derive(Default)]
struct Data {
    names: BTreeMap<String, Arc<Name>>,
    /// Lead of the store's clock over the world's.
    clock: Time,
    /// For each step its time, its name, and the name's state before the step.
    changes: VecDeque<(Nanos, String, Option<Arc<Name>>)>,
    commands: u64,
    /// By the process's index.
    links: BTreeMap<usize, Link>,
    /// End of a period without answers.
    silent_until: Nanos,
    /// Attempts that may still take effect, by lease: count, and last expected time.
    attempts: HashMap<LeaseId, (usize, Nanos)>,
    subscribers: BTreeMap<String, Vec<Subscriber>>,
    contract: Contract,
    /// Names with a task that checks for expired leases.
    watched: BTreeSet<String>,
    generations: u64,
}

/// Channels of a name. Different names never share a channel.
mod channels {
    pub(super) fn plain(name: &str) -> String {
        ["plain:", name].concat()
    }

    pub(super) fn calls(name: &str, client: &str) -> String {
        ["called:", client, ":", name].concat()
    }

    pub(super) fn foreign(name: &str) -> String {
        ["foreign:", name].concat()
    }

    pub(super) fn read_write(name: &str) -> String {
        ["read-write:", name].concat()
    }

    pub(super) fn fair_grants(name: &str, client: &str) -> String {
        ["granted:", client, ":", name].concat()
    }

    pub(super) fn permits_grants(name: &str, client: &str) -> String {
        ["granted permits:", client, ":", name].concat()
    }

    pub(super) fn write_grants(name: &str, client: &str) -> String {
        ["granted to write:", client, ":", name].concat()
    }
}

struct Done<T> {
    answer: T,
    /// Number of subscribers in other processes to which the step's message went.
    heard: usize,
}

impl Shared {
    fn data(&self) -> MutexGuard<'_, Data> {
        self.data.lock().expect("nothing panics under this lock")
    }

    fn has_faults(&self) -> bool {
        self.world.now() < self.network.faults_end
    }

    /// Runs one command of a process on a name, and publishes its messages.
    fn step<T>(
        &self,
        from: usize,
        kind: LockKind,
        name: &str,
        step: impl FnOnce(&mut Step<'_>) -> T,
    ) -> Done<T> {
        let now = self.world.now();
        let token_gap = self.world.chance(|chance| if chance.u8(..8) == 0 { chance.u64(1..4) } else { 0 });
        let data = &mut *self.data();
        data.commands += 1;
        data.links.get_mut(&from).into_iter().for_each(|link| link.asked += 1);
        data.notice_deaths(&self.world, now);
        let before = data.names.get(name).cloned();
        data.changes.push_back((now, name.to_owned(), before));
        if data.changes.len() > REMEMBERED {
            data.changes.pop_front();
        }
        let Data { names, subscribers, links, .. } = data;
        if !names.contains_key(name) {
            names.insert(name.to_owned(), Arc::default());
        }
        let state = Arc::make_mut(names.get_mut(name).expect("it was put there"));
        let told = |id: &LeaseId| {
            let channel = grants(kind, name, &id.client_id());
            let subscribers = subscribers.get(&channel).into_iter().flatten();
            let mut links =
                subscribers.filter(|it| it.active).filter_map(|it| links.get(&it.process.index()));
            !self.habits.knows_listeners || links.any(|link| !link.is_known_dead(now))
        };
        let mut step_ = Step {
            now: store_time(now, data.clock),
            name: state,
            told: &told,
            calls_waiters: self.habits.calls_waiters,
            takes_earlier: self.habits.takes_earlier,
            releases_the_dead: self.habits.releases_the_dead,
            scripted_turns: false,
            token_gap,
            news: News::default(),
        };
        let answer = step(&mut step_);
        let news = step_.news;
        let heard = self.tell(data, from, kind, name, &news);
        Done { answer, heard }
    }

    fn look<T>(&self, from: usize, name: &str, look: impl FnOnce(&Name, Time) -> T) -> T {
        let mut data = self.data();
        data.commands += 1;
        data.links.get_mut(&from).into_iter().for_each(|link| link.asked += 1);
        let now = store_time(self.world.now(), data.clock);
        match data.names.get(name) {
            Some(name) => look(name, now),
            None => look(&Name::default(), now),
        }
    }

    fn tell(&self, data: &mut Data, from: usize, kind: LockKind, name: &str, news: &News) -> usize {
        for id in &news.granted {
            let channel = grants(kind, name, &id.client_id());
            self.publish(data, from, &channel, Message::Granted(id.number()));
        }
        let common = match kind {
            LockKind::Fair => channels::foreign(name),
            LockKind::ReadWrite => channels::read_write(name),
            _ => channels::plain(name),
        };
        let mut heard = news.message.map_or(0, |message| self.publish(data, from, &common, message));
        for called in &news.called {
            let channel = grants(kind, name, &called.client_id());
            heard += self.publish(data, from, &channel, Message::Unlock);
        }
        if self.habits.chatters_one_in.is_some_and(|one_in| self.world.chance(|it| it.u32(..one_in)) == 0) {
            let both = [Message::Unlock, Message::ReadUnlock];
            let message = both[self.world.chance(|chance| chance.usize(..both.len()))];
            self.publish(data, from, &common, message);
        }
        heard
    }

    /// Spawns a task to pass the name on after its leases, if ids wait and this store watches ends.
    fn watch(self: &Arc<Self>, kind: LockKind, name: &str) {
        if !self.habits.watches_ends || kind == LockKind::Plain {
            return;
        }
        let mut data = self.data();
        if !self.is_waited_for(&data, name) || !data.watched.insert(name.to_owned()) {
            return;
        }
        let (shared, name) = (Arc::clone(self), name.to_owned());
        self.world.spawn(async move {
            while let Some(at) = shared.next_look(&name) {
                shared.world.sleep_until(at).await;
                shared.find_free(kind, &name);
            }
            shared.data().watched.remove(&name);
        });
    }

    fn is_waited_for(&self, data: &Data, name: &str) -> bool {
        let now = store_time(self.world.now(), data.clock);
        data.names.get(name).is_some_and(|name| name.waits(now))
    }

    /// Returns when the name may have become free by itself, or `None` if no id waits for the name.
    fn next_look(&self, name: &str) -> Option<Nanos> {
        let data = self.data();
        if !self.is_waited_for(&data, name) {
            return None;
        }
        let now = store_time(self.world.now(), data.clock);
        let until = data.names.get(name)?.free_from(now).unwrap_or(now).min(now + 60 * READERS_TURN);
        let lag = self.world.chance(|chance| chance.u64(1..SECOND / 2));
        Some(self.world.now() + until.abs_diff(now) + lag)
    }

    fn find_free(&self, kind: LockKind, name: &str) {
        self.step(usize::MAX, kind, name, |step| match kind {
            LockKind::Fair if step.name.held_as(step.now).is_none() => {
                step.pass_on_fair(None);
            }
            LockKind::ReadWrite if step.begin_read_write().is_ok() => step.pass_on(false),
            LockKind::Semaphore if step.begin_permits().is_ok() => _ = step.grant_permits(None),
            _ => {}
        });
    }
}

impl Data {
    fn link(&mut self, process: &Process) -> &mut Link {
        self.links.entry(process.index()).or_insert_with(|| Link::new(process))
    }

    /// Notices, at once or later, that a dead process's connection is closed.
    fn notice_deaths(&mut self, world: &World, now: Nanos) {
        for link in self.links.values_mut() {
            link.notice_death(world, now);
        }
    }
}

fn store_time(now: Nanos, clock: Time) -> Time {
    Time::try_from(now).unwrap_or(NEVER) + clock
}

/// The channel of a client's grants, or calls.
fn grants(kind: LockKind, name: &str, client: &str) -> String {
    match kind {
        LockKind::ReadWrite => channels::write_grants(name, client),
        LockKind::Plain => channels::calls(name, client),
        LockKind::Semaphore => channels::permits_grants(name, client),
        _ => channels::fair_grants(name, client),
    }
}

impl Store for Model {
    type Backend = ModelBackend;

    fn new(world: &World, network: &Network) -> Self {
        let habits = world.chance(Habits::draw);
        world.note(|| format!("{habits:?}"));
        let (world, network) = (world.clone(), network.clone());
        Self(Arc::new_cyclic(|this| {
            let (this, data) = (this.clone(), Mutex::default());
            Shared { this, world, network, habits, data }
        }))
    }

    fn connect(&self, process: &Process) -> impl Future<Output = ModelBackend> + Send + 'static {
        self.0.data().link(process);
        std::future::ready(ModelBackend::new(&self.0, process))
    }

    fn leases(&self, kind: LockKind, name: &str) -> Vec<StoredLease> {
        let (world_now, data) = (self.0.world.now(), self.0.data());
        let now = store_time(world_now, data.clock);
        let Some(name) = data.names.get(name) else { return Vec::new() };
        let leases = name.leases(kind, now).map(|(term, is_shared)| StoredLease {
            client: term.id.client_id(),
            number: term.id.number(),
            ends: world_now + term.until.abs_diff(now),
            is_shared,
            permits: term.permits,
        });
        leases.collect()
    }

    fn harm(&self, harm: &Harm) -> bool {
        self.0.harm(harm);
        true
    }

    fn under_way(&self, process: &Process) -> usize {
        self.0.data().link(process).under_way
    }

    fn is_idle(&self, process: &Process) -> bool {
        let mut data = self.0.data();
        let link = data.link(process);
        link.under_way + link.renewals == 0
    }

    fn left_over(&self) -> Vec<String> {
        let data = self.0.data();
        let now = store_time(self.0.world.now(), data.clock);
        let named = |name: &String, what: String| format!("{name:?}: {what}");
        let names = data
            .names
            .iter()
            .flat_map(|(name, state)| state.left_over(now).into_iter().map(move |what| named(name, what)));
        let subscriptions = data.subscribers.iter().flat_map(|(channel, subscribers)| {
            let used = subscribers.iter().filter(|it| it.inbox.is_some() && it.process.is_alive());
            used.map(move |it| format!("{channel:?}: a subscription of p{}", it.process.index()))
        });
        let commands = data.links.iter().map(|(process, link)| (process, link.under_way + link.renewals));
        let commands = commands.filter(|(_, count)| *count > 0);
        let commands = commands.map(|(process, count)| format!("{count} commands of p{process}"));
        names.chain(subscriptions).chain(commands).collect()
    }

    fn breach(&self) -> Option<String> {
        self.0.data().contract.breach().map(str::to_owned)
    }

    fn may_have_refused(&self, process: &Process, name: &str, since: Nanos) -> bool {
        self.0.data().contract.may_have_refused(process.index(), name, since)
    }

    fn told_held(&self, client: &str, mode: Mode, name: &str) -> Option<Nanos> {
        self.0.data().contract.told_held(client, mode, name)
    }

    fn subscriptions(&self, process: &Process) -> Option<usize> {
        let data = self.0.data();
        let is_its = |it: &&Subscriber| it.process.index() == process.index() && it.inbox.is_some();
        Some(data.subscribers.values().flatten().filter(is_its).count())
    }

    fn counts_listeners(&self) -> bool {
        self.0.habits.counts_listeners
    }

    fn asked(&self, process: &Process) -> u64 {
        self.0.data().link(process).asked
    }

    fn commands(&self) -> u64 {
        self.0.data().commands
    }
}

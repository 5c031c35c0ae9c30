//! The way of a command to the store, and of its answer back.

use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Poll, Waker};

use defects::twin::Twin;
use latchwork::lock::Failure;
use latchwork::{LeaseId, LockKind};

use super::Shared;
use crate::store::Network;
use crate::store::twin::seeded;
use crate::world::{MS, Nanos, Process, SECOND, World};

/// Default time after which a client gives up waiting for an answer.
const ANSWER_LIMIT: Nanos = 5 * SECOND;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Failed(pub(super) Failure);

impl Failed {
    pub(super) fn other_kind(found: LockKind) -> Self {
        Self(Failure::OtherKind(found))
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl std::error::Error for Failed {}

pub(super) struct Link {
    process: Process,
    pub(super) cuts: u64,
    /// Arrival time of the latest command that keeps its order.
    last_arrival: Nanos,
    /// End of a period without answers to the process.
    pub(super) silent_until: Nanos,
    /// Time before which the process receives no messages.
    pub(super) unheard_until: Nanos,
    /// Number of commands that may still take effect, and begin or end a lease.
    pub(super) under_way: usize,
    pub(super) renewals: usize,
    pub(super) asked: u64,
    awaited: Vec<Weak<dyn Cut>>,
    dead_from: Option<Nanos>,
}

impl Link {
    pub(super) fn new(process: &Process) -> Self {
        Self {
            process: process.clone(),
            cuts: 0,
            last_arrival: 0,
            silent_until: 0,
            unheard_until: 0,
            under_way: 0,
            renewals: 0,
            asked: 0,
            awaited: Vec::new(),
            dead_from: None,
        }
    }

    pub(super) fn process(&self) -> &Process {
        &self.process
    }

    fn under_way_of(&mut self, role: &Role) -> &mut usize {
        if role.renews { &mut self.renewals } else { &mut self.under_way }
    }

    pub(super) fn notice_death(&mut self, world: &World, now: Nanos) {
        if self.dead_from.is_none() && !self.process.is_alive() {
            let late = world.chance(|chance| if chance.bool() { 0 } else { chance.u64(..2 * SECOND) });
            self.dead_from = Some(now + late);
        }
    }

    pub(super) fn is_known_dead(&self, now: Nanos) -> bool {
        self.dead_from.is_some_and(|from| from <= now)
    }

    /// Cuts the link. Returns the waiting clients' answers. Commands in flight may still arrive.
    pub(super) fn cut(&mut self) -> Vec<Arc<dyn Cut>> {
        self.cuts += 1;
        self.awaited.drain(..).filter_map(|answer| answer.upgrade()).collect()
    }
}

pub(super) trait Cut: Send + Sync {
    /// Tells the client that the answer will not come.
    fn cut(&self);
}

struct Answer<T>(Mutex<Awaited<T>>);

struct Awaited<T> {
    answer: Option<T>,
    is_cut: bool,
    waker: Option<Waker>,
}

impl<T> Answer<T> {
    fn set(&self, set: impl FnOnce(&mut Awaited<T>)) {
        let waker = {
            let mut awaited = self.0.lock().expect("nothing panics under this lock");
            set(&mut awaited);
            awaited.waker.take()
        };
        // Wakers are foreign code, and may panic.
        waker.into_iter().for_each(|waker| _ = catch_unwind(AssertUnwindSafe(|| waker.wake())));
    }

    fn take(&self, waker: &Waker) -> Option<Result<T, Failed>> {
        let mut awaited = self.0.lock().expect("nothing panics under this lock");
        if let Some(answer) = awaited.answer.take() {
            return Some(Ok(answer));
        }
        awaited.waker = Some(waker.clone());
        awaited.is_cut.then_some(Err(Failed(Failure::Indeterminate)))
    }
}

impl<T: Send> Cut for Answer<T> {
    fn cut(&self) {
        self.set(|awaited| awaited.is_cut = true);
    }
}

/// The relation of a command to other commands of its lease.
#[derive(Debug, Default)]
pub(super) struct Role {
    /// The lease for which the command is an attempt.
    pub(super) attempts: Option<LeaseId>,
    /// The lease whose attempts the command must not overtake.
    pub(super) behind: Option<LeaseId>,
    /// True if the command neither begins nor ends a lease.
    pub(super) renews: bool,
}

/// The chances of a command, drawn when the command is sent.
struct Fate {
    /// Failure if refused in transit.
    refused: Option<Failure>,
    is_lost: bool,
    reply_is_lost: bool,
    /// Delay after which the command runs a second time.
    again: Option<Nanos>,
    overtakes: bool,
    there: Nanos,
    back: Nanos,
}

pub(super) fn way(network: &Network, chance: &mut fastrand::Rng, has_faults: bool) -> Nanos {
    if has_faults && happens(chance, network.late) {
        return chance.u64(..=network.late_by);
    }
    chance.u64(..=network.latency)
}

pub(super) fn happens(chance: &mut fastrand::Rng, thousandths: u32) -> bool {
    thousandths > 0 && chance.u32(..1000) < thousandths
}

fn fate(network: &Network, chance: &mut fastrand::Rng, faults: bool) -> Fate {
    let (there, back) = (way(network, chance, faults), way(network, chance, faults));
    let mut happens = |thousandths| faults && happens(chance, thousandths);
    let refused = happens(network.refused);
    let (is_lost, reply_is_lost) = (happens(network.requests_lost), happens(network.replies_lost));
    let (twice, overtakes) = (happens(network.twice), happens(network.reordered));
    let failure = if chance.u8(..8) == 0 { Failure::Refused } else { Failure::Unreachable };
    Fate {
        refused: refused.then_some(failure),
        is_lost,
        reply_is_lost,
        // Never at the same moment, where judges would see only the result of both runs.
        again: twice.then(|| way(network, chance, faults) + 1),
        overtakes,
        there,
        back,
    }
}

impl Shared {
    /// Sends a command of a process, and waits for its answer. `run` is the command's effect at the store.
    ///
    /// An answered command never runs again. An unanswered one may run until its delay is over.
    pub(super) async fn command<T: fmt::Debug + Send + 'static>(
        self: &Arc<Self>,
        process: &Process,
        what: String,
        role: Role,
        run: impl Fn(&Arc<Self>) -> T + Send + 'static,
    ) -> Result<T, Failed> {
        let (world, faults) = (&self.world, self.has_faults());
        let fate = world.chance(|chance| fate(&self.network, chance, faults));
        if let Some(failure) = fate.refused {
            // No later than the limit on answers.
            world.sleep((fate.there + fate.back).min(self.answer_limit())).await;
            world.note(|| format!("p{} {what}: {failure:?}", process.index()));
            return Err(Failed(failure));
        }
        let awaited = Awaited { answer: None, is_cut: false, waker: None };
        let answer = Arc::new(Answer(Mutex::new(awaited)));
        if fate.is_lost {
            world.note(|| format!("p{} {what}: lost", process.index()));
        } else {
            self.send(process, what.clone(), role, fate, Arc::clone(&answer), run);
        }
        let mut over = pin!(world.sleep(self.answer_limit()));
        let answered = poll_fn(|task| match answer.take(task.waker()) {
            Some(answered) => Poll::Ready(answered),
            None => over.as_mut().poll(task).map(|()| Err(Failed(Failure::Indeterminate))),
        });
        let answered = answered.await;
        if answered.is_err() {
            world.note(|| format!("p{} {what}: no answer", process.index()));
        }
        answered
    }

    fn answer_limit(&self) -> Nanos {
        if self.network.answer_limit == 0 { ANSWER_LIMIT } else { self.network.answer_limit }
    }

    fn send<T: fmt::Debug + Send + 'static>(
        self: &Arc<Self>,
        process: &Process,
        what: String,
        role: Role,
        fate: Fate,
        answer: Arc<Answer<T>>,
        run: impl Fn(&Arc<Self>) -> T + Send + 'static,
    ) {
        let (arrives, cuts) = self.depart(process, &role, &fate, &answer);
        let (shared, process) = (Arc::clone(self), process.clone());
        self.world.spawn(async move {
            shared.arrive(&process, arrives).await;
            shared.attempts_before(&role).await;
            // A command in flight when its link was cut may or may not have arrived.
            let is_cut = shared.data().link(&process).cuts != cuts && shared.world.chance(|it| it.bool());
            let mut ran = (!is_cut).then(|| {
                let ran = run(&shared);
                shared.world.note(|| format!("p{} {what}: {ran:?}", process.index()));
                ran
            });
            if let Some(again) = fate.again.filter(|_| !is_cut) {
                if seeded() == Some(Twin::RunsAfterItsAnswer) {
                    return shared.run_late(&process, &role, again, answer, ran, run).await;
                }
                shared.expect(&role, shared.world.now() + again);
                shared.world.sleep(again).await;
                let last = run(&shared);
                shared.world.note(|| format!("p{} {what}, again: {last:?}", process.index()));
                // The answer is that of the second run.
                ran = Some(last);
            }
            shared.has_arrived(&process, &role);
            let (Some(ran), false) = (ran, fate.reply_is_lost) else { return };
            shared.arrive(&process, shared.world.now() + fate.back).await;
            if shared.data().link(&process).cuts == cuts {
                answer.set(|awaited| awaited.answer = Some(ran));
            }
        });
    }

    async fn run_late<T: Send>(
        self: &Arc<Self>,
        process: &Process,
        role: &Role,
        again: Nanos,
        answer: Arc<Answer<T>>,
        ran: Option<T>,
        run: impl Fn(&Arc<Self>) -> T,
    ) {
        answer.set(|awaited| awaited.answer = ran);
        self.world.sleep(again).await;
        run(self);
        self.has_arrived(process, role);
    }

    /// Registers a command on its link. Returns its arrival time, and the number of cuts so far.
    fn depart<T: Send + 'static>(
        &self,
        process: &Process,
        role: &Role,
        fate: &Fate,
        answer: &Arc<Answer<T>>,
    ) -> (Nanos, u64) {
        let mut data = self.data();
        let link = data.link(process);
        let mut arrives = self.world.now() + fate.there;
        if !fate.overtakes {
            arrives = arrives.max(link.last_arrival + 1);
            link.last_arrival = arrives;
        }
        *link.under_way_of(role) += 1;
        // Only when full: a slow network has ten thousand commands under way.
        if link.awaited.len() == link.awaited.capacity() {
            link.awaited.retain(|answer| answer.strong_count() > 0);
            link.awaited.reserve(link.awaited.len() + 1);
        }
        let weak: Weak<Answer<T>> = Arc::downgrade(answer);
        link.awaited.push(weak);
        let cuts = link.cuts;
        if let Some(lease) = &role.attempts {
            let (count, last) = data.attempts.entry(lease.clone()).or_default();
            (*count, *last) = (*count + 1, (*last).max(arrives));
        }
        (arrives, cuts)
    }

    /// Has rollbacks wait for an attempt's second run without a look each millisecond.
    fn expect(&self, role: &Role, at: Nanos) {
        let mut data = self.data();
        let attempt = role.attempts.as_ref().and_then(|lease| data.attempts.get_mut(lease));
        attempt.into_iter().for_each(|(_, last)| *last = at.max(*last));
    }

    fn has_arrived(&self, process: &Process, role: &Role) {
        let mut data = self.data();
        *data.link(process).under_way_of(role) -= 1;
        let Some(lease) = &role.attempts else { return };
        if let Some((count, _)) = data.attempts.get_mut(lease) {
            *count -= 1;
            if *count == 0 {
                data.attempts.remove(lease);
            }
        }
    }

    /// Waits until `at`, and until the store answers again.
    async fn arrive(&self, process: &Process, at: Nanos) {
        let mut at = at;
        loop {
            self.world.sleep_until(at).await;
            let silent_until = {
                let mut data = self.data();
                data.silent_until.max(data.link(process).silent_until)
            };
            if silent_until <= at {
                return;
            }
            at = silent_until + self.world.chance(|chance| chance.u64(..=self.network.latency));
        }
    }

    async fn attempts_before(&self, role: &Role) {
        let Some(lease) = role.behind.as_ref().filter(|_| seeded() != Some(Twin::RollsBackTooSoon)) else {
            return;
        };
        loop {
            let expected = self.data().attempts.get(lease).map(|(_, last)| *last);
            let Some(expected) = expected else { return };
            self.world.sleep_until(expected.max(self.world.now() + MS)).await;
        }
    }
}

//! A model of the engine, which runs every sequence of events up to a length: a few acquisitions, another
//! process, time, and a store without a queue, with a queue, or of a shared lock. After each sequence all
//! waiters are served, and nothing may be left.
//!
//! `cargo xtask verify ownership` seeds faults into the engine: a test here has to find each.

mod store;

use std::collections::{BTreeMap, HashMap};
use std::env;
use std::task::Waker;
use std::time::{Duration, Instant};

use self::store::{KEPT, Reply, Store, StoreKind, THEIRS};
use super::super::gate::OPEN;
use super::super::queue::Place;
use super::super::{
    Answer, Attempt, Effects, Extension, Grant, HeadTicket, LossReason, NextHead, PendingRelease, Request,
    Ticket, Turn,
};
use super::{Hold, Ownership, Phase, Policy, Renewal, Rules};
use crate::support::moment::Moment;

const LEASE: Duration = Duration::from_millis(900);
const UNPOLLED: Duration = Duration::from_millis(100);
const TENURE: Duration = Duration::from_millis(150);
const STEP: Duration = Duration::from_millis(60);

#[derive(Debug)]
enum Stage {
    Outside,
    /// The actor has asked the store before it enters.
    Claims(Sent),
    Queued(Ticket),
    /// The actor is the queue head, with the question if sent.
    Head(HeadTicket, Option<Sent>),
    Holding(Grant),
    Done,
}

// Actors read a hold's state by a copy of its grant, and answer an attempt late by a copy.
macro_rules! copied {
    ($($of:ty),*) => {$(
        impl Copy for $of {}
        impl Clone for $of {
            fn clone(&self) -> Self {
                *self
            }
        }
    )*};
}
copied!(Grant, Attempt);

#[derive(Clone, Copy, Debug)]
struct Sent {
    attempt: Attempt,
    /// The last token; `None` for a refusal.
    answer: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Release {
    number: u64,
    appoints: bool,
    rolls_back: bool,
    named: Option<(NextHead, Attempt)>,
}

impl From<PendingRelease> for Release {
    fn from(pending_release: PendingRelease) -> Self {
        let PendingRelease { number, appoints, rolls_back, .. } = pending_release;
        Self { number, appoints, rolls_back, named: None }
    }
}

/// A question for older leases, run and not yet answered.
struct OlderLeases {
    sent: Moment,
    into: u64,
    there: Vec<u64>,
    gone: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct SentCommand {
    number: u64,
    sent: Moment,
    lease: Duration,
    asks: Asks,
    caller: Option<usize>,
    /// Answer of a command that has run, not yet reported: presence of the lease, and a token.
    answer: Option<(bool, Option<u64>)>,
}

#[derive(Clone, Copy, Debug)]
enum Asks {
    /// An attempt to take the lock, with the start of the wait and the count of tokens.
    Lock(Moment, u64),
    Extends(Extension),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Enter(usize),
    /// The actor asks the store before it enters an idle entry; others may come before its answer.
    Claim(usize),
    Take(usize),
    Poll(usize),
    Ask(usize),
    Answer(usize),
    /// The command does not run, and the queue head learns this.
    AskInVain(usize),
    Drop(usize),
    /// The queue head asks, and gets no answer: the command may run at any time.
    AskUnanswered(usize),
    Extend(usize),
    GiveUp(usize),
    /// A command takes effect, unless it ran before, and answers its caller if the caller still waits.
    Run(usize),
    RunUnheard(usize),
    LeaveByName(usize),
    Forget(usize),
    Try(usize),
    Adopt(usize),
    Send,
    Release,
    /// The release takes effect, and the answer is lost.
    ReleaseUnanswered,
    /// The release takes no effect, unknown to all.
    ReleaseLost,
    Hear,
    /// Time passes; the client looks at each planned time, and at the end.
    Step,
    /// Time passes likewise, with a store that answers renewals.
    StepRenewed,
    /// The time of a lease passes; the client looks only at its end.
    LeaseOver,
    Renewed,
    /// The client asks the store for leases older than the lease in hand.
    AskForOlder,
    Merge,
    MergeUnanswered,
    TheyAcquire,
    TheyQueue,
    TheyRelease,
    Force,
}

struct World {
    now: Moment,
    engine: Ownership,
    store: Store,
    releases: Vec<Release>,
    commands: Vec<SentCommand>,
    is_late: bool,
    /// Answers may come later than their commands.
    answers_late: bool,
    /// Releases that name a waiter, not yet sent: meanwhile the waiter may leave.
    unsent: Vec<Release>,
    cast: Vec<Request>,
    stages: Vec<Stage>,
    waiting: Vec<usize>,
    /// A waiter has left or lost its turn: grants out of turn are allowed.
    disturbed: bool,
    last_grant: (u64, Option<u64>),
    asked: HashMap<u64, Moment>,
    tries: Vec<bool>,
    /// Owners that have given back a hold by name, while a guard lived.
    given_back: Vec<u64>,
    /// End and number of each actor's hold after the previous event.
    believed: Vec<Option<(Moment, u64)>>,
    /// Actors whose guard's hold was over after the previous event.
    over: Vec<bool>,
    looks: Vec<Moment>,
    /// Ends of the holds without a guard, by serial.
    forgotten: Vec<(u64, Moment)>,
    renewed_since: BTreeMap<u64, Moment>,
    /// Renewals on their way, each with its send time and the store's answer.
    renewals: Vec<(Renewal, Moment, bool)>,
    has_older_leases: bool,
    older: Option<OlderLeases>,
    unsettled: Vec<u64>,
    /// End of a number's position, by the store's last answer.
    kept: HashMap<u64, Moment>,
    /// Leases that an event has ended without a release and without a wake.
    silently_ended: Vec<u64>,
    used: Vec<Ticket>,
    acquisitions: u64,
    handed_off: u64,
    history: Vec<Event>,
}

impl Drop for World {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("after {:?}", self.history);
        }
    }
}

impl World {
    fn new(cast: &[Request], kind: StoreKind) -> Self {
        let policy = match kind {
            StoreKind::Queue => Policy::Queued { position: KEPT },
            StoreKind::Shared => Policy::Shared { tenure: TENURE },
            _ => Policy::Exclusive { tenure: TENURE },
        };
        let rules = Rules { policy, renewed_lease: LEASE, unpolled_limit: UNPOLLED, ..Rules::default() };
        Self {
            now: Moment::from(Instant::now()),
            engine: Ownership::new(rules),
            store: Store::new(kind),
            releases: Vec::new(),
            commands: Vec::new(),
            is_late: false,
            answers_late: false,
            unsent: Vec::new(),
            cast: cast.to_vec(),
            stages: cast.iter().map(|_| Stage::Outside).collect(),
            waiting: Vec::new(),
            disturbed: false,
            last_grant: (0, None),
            asked: HashMap::new(),
            tries: vec![false; cast.len()],
            given_back: Vec::new(),
            believed: vec![None; cast.len()],
            over: vec![false; cast.len()],
            looks: Vec::new(),
            forgotten: Vec::new(),
            renewed_since: BTreeMap::new(),
            renewals: Vec::new(),
            has_older_leases: false,
            older: None,
            unsettled: Vec::new(),
            kept: HashMap::new(),
            silently_ended: Vec::new(),
            used: Vec::new(),
            acquisitions: 0,
            handed_off: 0,
            history: Vec::new(),
        }
    }

    fn after(cast: &[Request], kind: StoreKind, prelude: &[Event]) -> Self {
        let mut world = Self::new(cast, kind);
        prelude.iter().for_each(|event| world.step(*event));
        world
    }

    fn enabled(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (actor, stage) in self.stages.iter().enumerate() {
            match stage {
                Stage::Outside => {
                    events.push(Event::Enter(actor));
                    if self.engine.gate() == OPEN {
                        events.push(Event::Claim(actor));
                    }
                }
                Stage::Claims(_) => events.extend([Event::Take(actor), Event::Drop(actor)]),
                Stage::Queued(ticket) => {
                    if !self.engine.is_queued(ticket) {
                        events.push(Event::Poll(actor));
                    }
                    events.push(Event::Drop(actor));
                }
                Stage::Head(_, None) => {
                    events.extend([Event::Ask(actor), Event::Drop(actor)]);
                    if self.store.queues() {
                        events.push(Event::AskInVain(actor));
                    }
                    if self.is_late && self.commands.len() < 2 {
                        events.push(Event::AskUnanswered(actor));
                    }
                }
                Stage::Head(_, Some(_)) => events.extend([Event::Answer(actor), Event::Drop(actor)]),
                Stage::Holding(_) => {
                    events.push(Event::Drop(actor));
                    if self.is_late && self.commands.len() < 2 {
                        events.push(Event::Extend(actor));
                    }
                    if self.store.is_shared() {
                        events.push(Event::LeaveByName(actor));
                    }
                }
                Stage::Done => {}
            }
        }
        for (at, command) in self.commands.iter().enumerate() {
            events.push(Event::Run(at));
            if command.caller.is_some() {
                events.push(Event::GiveUp(at));
            }
            if command.caller.is_some() && command.answer.is_none() && self.answers_late {
                events.push(Event::RunUnheard(at));
            }
        }
        if !self.unsent.is_empty() {
            events.push(Event::Send);
        }
        if let Some(first) = self.releases.first() {
            events.push(Event::Release);
            if first.named.is_some() {
                events.extend([Event::ReleaseUnanswered, Event::ReleaseLost]);
            }
        }
        if !self.renewals.is_empty() {
            events.push(Event::Renewed);
        }
        match (&self.older, self.has_older_leases) {
            (Some(_), _) => events.extend([Event::Merge, Event::MergeUnanswered]),
            (None, true) => events.push(Event::AskForOlder),
            (None, false) => {}
        }
        if self.store.has_told() {
            events.push(Event::Hear);
        }
        if self.stages.iter().any(|stage| !matches!(stage, Stage::Outside | Stage::Done)) {
            events.extend([Event::Step, Event::LeaseOver]);
        }
        match self.store.held(self.now) {
            None => events.push(Event::TheyAcquire),
            Some(THEIRS) => events.push(Event::TheyRelease),
            Some(_) => events.push(Event::Force),
        }
        if self.store.queues()
            && self.store.held(self.now).is_some()
            && !self.store.has_position(THEIRS, self.now)
        {
            events.push(Event::TheyQueue);
        }
        if self.store.is_shared() && self.store.held(self.now).is_some_and(|held| held != THEIRS) {
            events.push(Event::TheyQueue);
        }
        events
    }

    fn apply(&mut self, effects: Effects) {
        for (pending_release, next) in effects.releases() {
            match next {
                None => self.releases.push(pending_release.into()),
                Some(next) if pending_release.rolls_back => {
                    self.releases.push(pending_release.into());
                    self.event(|engine, now, effects| {
                        engine.asks_itself(next.head.serial, now, effects);
                    });
                }
                Some(next) => {
                    let (fresh, lease) = (self.store.fresh(), next.request.own_lease().unwrap_or(LEASE));
                    let attempt = self.engine.attempt(next.head.serial, fresh, self.now, lease);
                    let attempt = attempt.expect("the queue head has not left meanwhile");
                    let named = Some((next, attempt));
                    self.unsent.push(Release { named, ..pending_release.into() });
                }
            }
        }
        self.disturbed |= effects.superseded() > 0;
        self.handed_off += u64::from(effects.handed_off);
        self.has_older_leases |= effects.has_older_leases();
        if effects.look_at != Moment::NEVER {
            self.looks.push(effects.look_at);
        }
    }

    fn event<T>(&mut self, event: impl FnOnce(&mut Ownership, Moment, &mut Effects) -> T) -> T {
        let mut effects = Effects::default();
        let held = self.guarded();
        let known: Vec<_> = self.engine.losses.keys().copied().collect();
        let leases: Vec<_> = self.engine.lease_numbers().collect();
        let outcome = event(&mut self.engine, self.now, &mut effects);
        // Both counts omit a hold whose only guard learns of the loss by the event that ends the hold.
        let fresh = self.engine.losses.keys().filter(|serial| !known.contains(serial)).count();
        let ended = held.len() - self.guarded().iter().filter(|serial| held.contains(serial)).count();
        let told = effects.holds_lost() as usize;
        assert!(
            fresh <= told && told <= ended,
            "expected reports for {fresh} to {ended} lost holds, and saw {told}"
        );
        assert_eq!(effects.lost().is_some(), told > 0);
        let released: Vec<_> = effects.releases().map(|(release, _)| release).collect();
        for release in &released {
            match leases.contains(&release.number) {
                true => self.check_rolls_back(release),
                false => assert!(
                    release.rolls_back || !self.may_come_late(release.number),
                    "expected a rollback, as a plain release may precede the command it undoes"
                ),
            }
        }
        for number in leases {
            let is_told = effects.wakes_sleepers() || released.iter().any(|release| release.number == number);
            if !is_told && !self.engine.knows_lease(number) {
                self.silently_ended.push(number);
            }
        }
        self.apply(effects);
        self.note_renewed();
        outcome
    }

    /// A number whose commands are all answered needs no rollback, which would wait for late commands.
    fn check_rolls_back(&self, release: &PendingRelease) {
        let is_late = self.may_come_late(release.number);
        assert!(!release.rolls_back || is_late, "expected a plain release, as all commands are answered");
    }

    fn may_come_late(&self, number: u64) -> bool {
        self.unsettled.contains(&number) || self.commands.iter().any(|command| command.number == number)
    }

    fn guarded(&self) -> Vec<u64> {
        let holds = self.engine.held().flat_map(|(hold, _)| hold.owner_holds.iter());
        holds.filter(|(_, sharer)| sharer.guards > 0).map(|(serial, _)| serial).collect()
    }

    fn step(&mut self, event: Event) {
        self.history.push(event);
        match event {
            Event::Enter(actor) | Event::Try(actor) => {
                let (request, may_wait) = (self.cast[actor], matches!(event, Event::Enter(_)));
                self.tries[actor] = !may_wait;
                let had_it = self.engine.each_hold(self.now).iter().any(|hold| hold.owner == request.owner());
                self.stages[actor] = match self
                    .event(|engine, now, effects| engine.enter(&request, may_wait, now, effects))
                {
                    Turn::Granted(grant, extension) => {
                        assert!(
                            had_it || self.is_within_tenure(&grant),
                            "expected no newcomer after the tenure"
                        );
                        self.granted(actor, grant, extension)
                    }
                    Turn::Head(head) => Stage::Head(head, None),
                    Turn::Queued(ticket) => {
                        self.use_again();
                        Stage::Queued(ticket)
                    }
                    Turn::Busy if !may_wait => {
                        let refused = matches!(&self.engine.phase, Phase::Competing(head) if head.refused);
                        assert!(refused || !self.store.is_shared(), "expected a wait for the answer");
                        Stage::Done
                    }
                    other => panic!("{other:?}"),
                };
                if !matches!(self.stages[actor], Stage::Holding(_) | Stage::Done) {
                    self.waiting.push(actor);
                }
            }
            Event::Claim(actor) => self.claim(actor),
            Event::Take(actor) => self.take(actor),
            Event::Poll(actor) => {
                let Stage::Queued(ticket) = std::mem::replace(&mut self.stages[actor], Stage::Done) else {
                    unreachable!()
                };
                self.stages[actor] =
                    match self.event(|engine, now, effects| engine.claim(&ticket, now, effects)) {
                        Turn::Granted(grant, extension) => self.granted(actor, grant, extension),
                        Turn::Head(head) => Stage::Head(head, None),
                        Turn::Superseded => self.superseded(),
                        Turn::Busy => {
                            assert!(self.tries[actor], "expected no `Busy` for a waiter");
                            self.waiting.retain(|waits| *waits != actor);
                            Stage::Done
                        }
                        Turn::Queued(_) | Turn::Closed => {
                            panic!("expected neither `Queued` nor `Closed`, as only `enter` returns them")
                        }
                    };
                self.used.push(ticket);
            }
            Event::Ask(actor) => self.ask(actor),
            Event::Answer(actor) => self.answer(actor),
            Event::Drop(actor) => self.drop_one(actor),
            Event::AskUnanswered(actor) => {
                if let Some((head, attempt)) = self.attempt(actor) {
                    let asks = Asks::Lock(head.since, attempt.tokens());
                    let (number, sent, lease) = (attempt.number(), self.now, self.lease_of(actor));
                    self.asked.entry(number).or_insert(sent);
                    self.unsettled.push(number);
                    self.commands.push(SentCommand { number, sent, lease, asks, caller: None, answer: None });
                }
            }
            Event::Extend(actor) => {
                let Stage::Holding(grant) = self.stages[actor] else { unreachable!() };
                if let Ok(hold) = self.engine.state_of(&grant, self.now) {
                    self.extend(actor, Extension { number: hold.number, lease: LEASE * 2, fenced: false });
                }
            }
            Event::GiveUp(at) => {
                self.unsettled.push(self.commands[at].number);
                self.commands[at].caller = None;
            }
            Event::Run(at) => {
                let command = self.commands.remove(at);
                self.run(command);
            }
            Event::RunUnheard(at) => {
                let command = self.commands[at];
                self.commands[at].answer = self.take_effect(command);
            }
            Event::LeaveByName(actor) => self.leave_by_name(actor),
            Event::Adopt(actor) => self.adopt(actor),
            Event::AskInVain(actor) => {
                if let Some((head, attempt)) = self.attempt(actor) {
                    let _ = self.answered(head.serial, attempt, Answer::DidNotRun);
                }
            }
            Event::Send => self.releases.push(self.unsent.remove(0)),
            Event::Release | Event::ReleaseUnanswered | Event::ReleaseLost => self.release(event),
            Event::Hear => {
                self.store.tell();
                for actor in 0..self.stages.len() {
                    self.hear(actor);
                }
            }
            Event::Forget(actor) => self.forget(actor),
            Event::Step | Event::StepRenewed => self.pass_time_in_steps(STEP, event == Event::StepRenewed),
            Event::LeaseOver => {
                self.disturbed |= self.stages.iter().any(|stage| self.is_told(stage));
                self.pass_time(LEASE);
            }
            Event::Renewed => {
                let (renewal, sent, held) = self.renewals.remove(0);
                self.event(|engine, now, effects| engine.renewed(renewal, Some(held), sent, now, effects));
            }
            Event::AskForOlder => {
                self.has_older_leases = false;
                let (into, older) = self.engine.older_leases();
                let (mut there, mut gone): (Vec<_>, Vec<_>) =
                    older.into_iter().partition(|number| self.store.holds(*number, self.now));
                if !self.store.holds(into, self.now) {
                    gone.push(into);
                    there.clear();
                }
                self.older = Some(OlderLeases { sent: self.now, into, there, gone });
            }
            Event::Merge => {
                let OlderLeases { sent, into, there, gone } = self.older.take().expect("asked before");
                for number in gone {
                    self.event(|engine, now, effects| engine.gone(number, sent, now, effects));
                }
                self.event(|engine, now, effects| engine.merge(into, &there, now, effects));
            }
            Event::MergeUnanswered => {
                let into = self.older.take().expect("asked before").into;
                self.event(|engine, now, effects| engine.merge(into, &[], now, effects));
            }
            Event::TheyAcquire => _ = self.store.acquire(THEIRS, LEASE * 3, 0, self.now, self.now),
            Event::TheyQueue if self.store.is_shared() => self.store.writer_waits(self.now),
            Event::TheyQueue => self.store.push(THEIRS, self.now, LEASE * 3, self.now),
            Event::TheyRelease => self.store.release(THEIRS, self.now),
            Event::Force => self.store.force(self.now),
        }
        self.check();
    }

    fn claim(&mut self, actor: usize) {
        let (request, lease, number) = (self.cast[actor], self.lease_of(actor), self.store.fresh());
        self.engine.settle(true);
        let attempt = Attempt::outside_of_queue(number, &request, self.now, lease);
        self.asked.insert(number, self.now);
        let answer = self.store.lease_anew(number, lease, attempt.tokens(), self.now);
        self.stages[actor] = Stage::Claims(Sent { attempt, answer });
    }

    fn take(&mut self, actor: usize) {
        let Stage::Claims(Sent { attempt, answer }) = self.stages[actor] else { unreachable!() };
        let request = self.cast[actor];
        let granted = match answer {
            Some(last_token) => {
                self.event(|engine, now, effects| engine.take(&request, &attempt, last_token, now, effects))
            }
            None => {
                self.event(|engine, now, effects| engine.appoint_next(0, now, effects));
                None
            }
        };
        self.stages[actor] = match granted {
            Some(grant) => self.granted(actor, grant, None),
            None => Stage::Outside,
        };
    }

    fn superseded(&mut self) -> Stage {
        self.disturbed = true;
        Stage::Outside
    }

    fn release(&mut self, event: Event) {
        let release = self.releases.remove(0);
        let Release { number, appoints, named, rolls_back } = release;
        let Some((next, attempt)) = named else {
            if rolls_back {
                for command in
                    self.commands.extract_if(.., |command| command.number == number).collect::<Vec<_>>()
                {
                    self.run(command);
                }
            }
            self.store.release(number, self.now);
            if appoints {
                self.event(|engine, now, effects| engine.appoint_next(1, now, effects));
            }
            return;
        };
        let (lease, serial) = (next.request.own_lease().unwrap_or(LEASE), next.head.serial);
        let answer = match event {
            Event::ReleaseLost => None,
            _ => self.store.release_for(
                number,
                attempt.number(),
                lease,
                attempt.tokens(),
                next.head.since,
                self.now,
            ),
        };
        if event != Event::Release {
            self.unsettled.push(attempt.number());
            let _ = self.answered(serial, attempt, Answer::Unanswered);
            self.releases.push(Release { named: None, ..release });
            return;
        }
        match answer {
            Some(Reply::Leased(last_token)) => {
                let _ = self.answered(serial, attempt, Answer::Granted { last_token });
                let in_hand = self.engine.lease_numbers().any(|number| number == attempt.number());
                assert!(
                    !in_hand || !self.engine.each_hold(self.now).is_empty(),
                    "expected a granted lease that lasts"
                );
            }
            Some(Reply::Queued) => {
                self.kept.insert(attempt.number(), attempt.sent() + KEPT);
                let _ = self.answered(serial, attempt, Answer::Held { kept: Some(KEPT) });
            }
            None => _ = self.answered(serial, attempt, Answer::Unsaid),
        }
    }

    fn extend(&mut self, actor: usize, extension: Extension) {
        let sent = self.now;
        let lease = self.event(|engine, now, effects| engine.extending(extension, now, effects));
        let Some(lease) = lease else { return };
        let (number, asks) = (extension.number, Asks::Extends(extension));
        self.commands.push(SentCommand { number, sent, lease, asks, caller: Some(actor), answer: None });
    }

    fn take_effect(&mut self, command: SentCommand) -> Option<(bool, Option<u64>)> {
        let SentCommand { number, lease, asks, .. } = command;
        match asks {
            Asks::Lock(since, tokens) => {
                self.store.acquire(number, lease, tokens, since, self.now);
                None
            }
            Asks::Extends(Extension { fenced: false, .. }) => {
                Some((self.store.renew(number, lease, self.now), None))
            }
            Asks::Extends(Extension { fenced: true, .. }) => {
                let token = self.store.lease_anew(number, lease, 1, self.now);
                Some((token.is_some(), token))
            }
        }
    }

    fn run(&mut self, command: SentCommand) {
        let SentCommand { number, sent, lease, asks, caller, answer } = command;
        let answer = answer.or_else(|| self.take_effect(command));
        let (Some((held, token)), Asks::Extends(extension)) = (answer, asks) else { return };
        let Some(actor) = caller else { return };
        if !held {
            self.engine.not_extended(extension);
            self.event(|engine, now, effects| engine.gone(number, sent, now, effects));
            self.believed.fill(None);
            return;
        }
        let in_hand =
            self.event(|engine, now, effects| engine.extended(number, sent, lease, token, now, effects));
        if !in_hand {
            // A renewal begins no lease: the lease's own release suffices.
            if extension.fenced {
                self.releases.push(Release { number, appoints: false, rolls_back: true, named: None });
            }
        } else if let Stage::Holding(mut grant) = self.stages[actor] {
            let grant = match token {
                Some(token) => {
                    if self.engine.state_of(&grant, self.now).is_ok() {
                        self.last_grant.1 = self.last_grant.1.max(Some(token));
                    }
                    grant.with_token(token)
                }
                None => {
                    self.engine.prolong(&mut grant, sent + lease, self.now);
                    grant
                }
            };
            self.stages[actor] = Stage::Holding(grant);
        }
    }

    /// Reads the messages. True if they have granted the actor the lock.
    fn hear(&mut self, actor: usize) -> bool {
        let Stage::Head(head, None) = &self.stages[actor] else { return false };
        let (serial, number) = (head.serial, self.store.receivers());
        let request = self.cast[actor];
        let suffices = self.engine.is_head(serial)
            && self.engine.knows_lease(number)
            && request.is_watched()
            && !request.is_fenced()
            && self.kept.get(&number).is_some_and(|until| *until > self.now);
        let granted =
            self.event(|engine, now, effects| engine.granted_by_message(serial, number, now, effects));
        assert!(granted.is_some() || !suffices, "expected the grant by a sufficient message");
        if granted.is_some() {
            self.unsettled.push(number);
        }
        if let Some(grant) = granted {
            self.stages[actor] = self.granted(actor, grant, None);
        }
        granted.is_some()
    }

    fn granted(&mut self, actor: usize, grant: Grant, extension: Option<Extension>) -> Stage {
        assert!(self.engine.state_of(&grant, self.now).is_ok(), "expected a granted lease that lasts");
        // All waiters of an owner get the lock with the first, and nearly all waiters of a shared lock.
        let first = self.waiting.first().map(|first| self.cast[*first].owner());
        let in_turn = self.store.is_shared() || first.is_none_or(|first| first == self.cast[actor].owner());
        let joins = grant.serial() == self.last_grant.0 || !self.waiting.contains(&actor);
        assert!(in_turn || joins || self.disturbed, "expected grants in the order of the queue");
        self.waiting.retain(|waits| *waits != actor);
        self.acquisitions += 1;
        assert!(
            !self.cast[actor].is_fenced() || grant.token().is_some() || extension.is_some(),
            "expected a token for a fenced request"
        );
        if grant.serial() > self.last_grant.0 {
            // A dead process keeps others out no longer than its request's lease. (A position may last
            // longer.)
            let number = self.engine.state_of(&grant, self.now).map(|hold| hold.number);
            let ends = number.ok().and_then(|number| self.store.ends(number, self.now));
            let longest = self.now + self.lease_of(actor);
            let alone = !self.store.queues() && !self.store.is_shared() && !self.cast[actor].shared_owner;
            assert!(!alone || ends <= Some(longest), "expected no longer lease than requested");
            if let Some(last) = self.last_grant.1
                && let Some(token) = grant.token()
            {
                let rises = token > last || token == last && self.store.is_shared();
                assert!(rises, "expected a token above {last}, and got {token}");
            }
            self.last_grant = (grant.serial(), grant.token().or(self.last_grant.1));
        }
        if let (Some(extension), true) = (extension, self.is_late) {
            self.extend(actor, extension);
        }
        Stage::Holding(grant)
    }

    fn lease_of(&self, actor: usize) -> Duration {
        self.cast[actor].own_lease().unwrap_or(LEASE)
    }

    fn attempt(&mut self, actor: usize) -> Option<(HeadTicket, Attempt)> {
        if self.hear(actor) {
            return None;
        }
        let Stage::Head(head, _) = self.stages[actor] else { unreachable!() };
        let (lease, fresh) = (self.lease_of(actor), self.store.fresh());
        let is_head = self.engine.is_head(head.serial);
        let attempt = self.engine.attempt(head.serial, fresh, self.now, lease);
        assert_eq!(attempt.is_some(), is_head, "expected an attempt of the queue head only");
        if attempt.is_none() {
            self.stages[actor] = self.superseded();
        }
        Some((head, attempt?))
    }

    fn ask(&mut self, actor: usize) {
        let Some((head, attempt)) = self.attempt(actor) else { return };
        let (lease, now) = (self.lease_of(actor), self.now);
        self.asked.insert(attempt.number(), now);
        let answer = self.store.acquire(attempt.number(), lease, attempt.tokens(), head.since, now);
        self.stages[actor] = Stage::Head(head, Some(Sent { attempt, answer }));
    }

    fn answer(&mut self, actor: usize) {
        let Stage::Head(head, Some(sent)) = &self.stages[actor] else { unreachable!() };
        let (head, Sent { attempt, answer }) = (*head, *sent);
        let waker = Waker::noop().clone();
        self.event(|engine, _, effects| engine.register_head(head.serial, waker, effects));
        let answer = match answer {
            Some(last_token) => Answer::Granted { last_token },
            None if self.store.queues() || self.store.is_shared() => Answer::Held { kept: Some(KEPT) },
            None => Answer::Held { kept: None },
        };
        if let Answer::Held { kept: Some(kept) } = answer {
            self.kept.insert(attempt.number(), attempt.sent() + kept);
        }
        self.stages[actor] = match self.answered(head.serial, attempt, answer) {
            Some(Turn::Granted(grant, _)) => self.granted(actor, grant, None),
            None | Some(Turn::Head(_)) => Stage::Head(head, None),
            Some(_) => self.superseded(),
        };
    }

    fn answered(&mut self, serial: u64, attempt: Attempt, answer: Answer) -> Option<Turn> {
        self.event(|engine, now, effects| engine.answered(serial, attempt, answer, now, effects))
    }

    fn drop_one(&mut self, actor: usize) {
        self.waiting.retain(|waits| *waits != actor);
        for command in self.commands.iter_mut().filter(|command| command.caller == Some(actor)) {
            command.caller = None;
            self.unsettled.push(command.number);
        }
        match std::mem::replace(&mut self.stages[actor], Stage::Done) {
            Stage::Queued(ticket) => self.event(|engine, now, effects| engine.cancel(&ticket, now, effects)),
            Stage::Head(head, _) => {
                self.event(|engine, now, effects| engine.abandon(head.serial, now, effects))
            }
            Stage::Claims(sent) => {
                self.releases.push(sent.attempt.rollback().into());
                self.event(|engine, now, effects| engine.appoint_next(0, now, effects));
            }
            Stage::Holding(grant) => {
                let left = self.event(|engine, now, effects| engine.leave(&grant, now, effects));
                self.return_if(left);
            }
            Stage::Outside | Stage::Done => {}
        }
    }

    fn return_if(&mut self, left: Result<Option<PendingRelease>, LossReason>) {
        if let Ok(Some(pending_release)) = left {
            self.silently_ended.retain(|number| *number != pending_release.number);
            self.check_rolls_back(&pending_release);
            self.releases.push(Release { appoints: false, ..pending_release.into() });
            if pending_release.appoints {
                self.event(|engine, now, effects| engine.appoint_next(0, now, effects));
            }
        }
    }

    fn leave_by_name(&mut self, actor: usize) {
        let owner = self.cast[actor].owner();
        let left = self.event(|engine, now, effects| engine.leave_by_name(owner, now, effects));
        self.given_back.push(owner);
        self.return_if(left);
    }

    fn adopt(&mut self, actor: usize) {
        let (request, lease, number) = (self.cast[actor], self.lease_of(actor), self.store.fresh());
        self.store.share_beside(number, lease, self.now);
        self.asked.insert(number, self.now);
        let attempt = Attempt::outside_of_queue(number, &request, self.now, lease);
        let granted = self.event(|engine, now, effects| engine.adopt(&request, attempt, 1, now, effects));
        self.stages[actor] = Stage::Holding(granted.expect("the lease has just begun"));
        self.acquisitions += 1;
    }

    /// Checks that used tickets do nothing, also if another waiter has the slot.
    fn use_again(&mut self) {
        for ticket in std::mem::take(&mut self.used) {
            let told = self.event(|engine, now, effects| engine.claim(&ticket, now, effects));
            assert!(matches!(told, Turn::Superseded), "expected `Superseded` for a used ticket");
            self.event(|engine, now, effects| engine.cancel(&ticket, now, effects));
        }
    }

    fn forget(&mut self, actor: usize) {
        let Stage::Holding(grant) = std::mem::replace(&mut self.stages[actor], Stage::Done) else {
            unreachable!()
        };
        let held = self.engine.held_by_serial(grant.serial).map(|(_, lease)| lease.sure_until);
        self.event(|engine, now, effects| engine.forget(&grant, now, effects));
        if let (Some(ends), true) = (held, self.engine.held_by_serial(grant.serial).is_some()) {
            self.forgotten.push((grant.serial, grant.own_end.unwrap_or(ends)));
        }
    }

    fn may_adopt(&self) -> bool {
        !self.store.holds(THEIRS, self.now)
    }

    fn is_within_tenure(&self, grant: &Grant) -> bool {
        let hold = self.engine.state_of(grant, self.now);
        hold.is_ok_and(|hold| self.asked.get(&hold.number).is_some_and(|asked| self.now < *asked + TENURE))
    }

    /// Lets time pass without polls: a queue head whose reply has come is woken.
    fn pass_time(&mut self, time: Duration) {
        self.wake_head();
        self.now = self.now + time;
        self.look(false);
    }

    fn pass_time_in_steps(&mut self, time: Duration, answers: bool) {
        self.wake_head();
        let until = self.now + time;
        while let Some(at) = self.looks.iter().copied().filter(|at| *at <= until).min() {
            self.now = self.now.max(at);
            self.look(answers);
        }
        self.now = until;
    }

    fn wake_head(&mut self) {
        if self.stages.iter().any(|stage| matches!(stage, Stage::Head(_, Some(_)))) {
            self.event(|engine, now, effects| engine.head_woken(now, effects));
        }
    }

    fn look(&mut self, answers: bool) {
        self.looks.retain(|at| *at > self.now);
        while let Some(renewal) = self.event(|engine, now, effects| engine.tick(now, effects)) {
            let (number, sent) = (renewal.number, self.now);
            let held = match renewal.lease {
                _ if !answers => None,
                Some(lease) => Some(self.store.renew(number, lease, self.now)),
                None => Some(self.store.holds(number, self.now)),
            };
            match held {
                Some(held) => self.renewals.push((renewal, sent, held)),
                None => {
                    _ = self.event(|engine, now, effects| engine.renewed(renewal, None, now, now, effects))
                }
            }
        }
        let by = self.now + STEP;
        while answers
            && let Some(renewal) = self.event(|engine, now, effects| engine.renew_early(by, now, effects))
        {
            let is_under_way = self.renewals.iter().any(|(other, ..)| other.number == renewal.number);
            assert!(!is_under_way, "expected one renewal of a lease at a time");
            let lease = renewal.lease.expect("no question is sent early");
            let held = self.store.renew(renewal.number, lease, self.now);
            self.renewals.push((renewal, self.now, held));
        }
        assert!(self.engine.next_look(self.now) > self.now, "expected the next look in the future");
    }

    fn renew_what_is_due(&mut self) {
        while self.engine.next_look(self.now) <= self.now
            && let Some(renewal) = self.event(|engine, now, effects| engine.tick(now, effects))
        {
            let lease = renewal.lease.expect("a waiter is left that a question would not serve");
            let (held, sent) = (self.store.renew(renewal.number, lease, self.now), self.now);
            self.event(|engine, now, effects| engine.renewed(renewal, Some(held), sent, now, effects));
        }
    }

    fn check(&mut self) {
        let next = self.engine.next_look(self.now);
        let is_told = next == Moment::NEVER || self.looks.iter().any(|at| *at <= next.max(self.now));
        assert!(is_told, "expected a scheduled look for all that is due");
        self.check_counts();
        assert!(
            self.silently_ended.is_empty(),
            "expected a wake-up at the end of a lease, and saw none: {:?}",
            self.silently_ended
        );
        let (mut believed, shared) = (None, self.store.is_shared());
        for (actor, stage) in self.stages.iter().enumerate() {
            let before = self.believed[actor].take().filter(|(until, _)| shared && *until > self.now);
            let was_over = std::mem::take(&mut self.over[actor]);
            let Stage::Holding(grant) = stage else { continue };
            let hold = match self.engine.state_of(grant, self.now) {
                Ok(hold) => hold,
                Err(reason) => {
                    self.over[actor] = true;
                    let by_itself = self.given_back.contains(&self.cast[actor].owner());
                    let is_gone = |(_, number)| {
                        reason == LossReason::Gone && self.store.ends(number, self.now).is_none()
                    };
                    assert!(
                        before.is_none_or(is_gone) || by_itself,
                        "expected no loss by another owner's release"
                    );
                    assert!(
                        reason != LossReason::GivenBack || by_itself,
                        "expected a reported loss, or a release by name"
                    );
                    continue;
                }
            };
            assert!(!was_over, "expected no hold after its loss");
            assert!(
                before.is_none_or(|(before, _)| before <= hold.ends),
                "expected no hold with a shorter lease than before"
            );
            let goes_on_unharmed = |(_, number)| {
                !self.store.was_forced(number) || self.store.was_forced(hold.number) || number == hold.number
            };
            assert!(
                before.is_none_or(goes_on_unharmed),
                "expected a loss, and not another lease for the holder"
            );
            self.believed[actor] = Some((hold.ends, hold.number));
            assert!(
                shared || *believed.get_or_insert(grant.serial()) == grant.serial(),
                "expected one owner that believes in the lock"
            );
            let forced = self.store.was_forced(hold.number);
            let ends = self.store.ends(hold.number, self.now);
            assert!(forced || ends.is_some(), "expected a stored lease for each believed hold");
            assert!(
                forced || !self.is_late || ends >= Some(hold.ends),
                "expected no belief beyond the store's lease"
            );
        }
        self.check_no_lease_is_left();
        let claimed = self.stages.iter().any(|stage| matches!(stage, Stage::Claims(_)));
        for (actor, stage) in self.stages.iter().enumerate() {
            if let Stage::Queued(ticket) = stage
                && self.tries[actor]
                && !claimed
            {
                let waits = self.engine.is_queued(ticket) && self.engine.is_known_held();
                assert!(!waits, "expected no wait of a try");
            }
        }
        for number in self.store.numbers(self.now) {
            let asks = |stage: &Stage| match stage {
                Stage::Head(_, Some(sent)) | Stage::Claims(sent) => sent.attempt.number() == number,
                _ => false,
            };
            let asked = self.stages.iter().any(asks);
            let known = self.engine.knows_lease(number);
            let returning = self.releases.iter().chain(&self.unsent).any(|release| {
                let named = release.named.map(|(_, attempt)| attempt.number());
                release.number == number || named == Some(number)
            });
            assert!(asked || known || returning, "expected no lease at the store, and found number {number}");
        }
    }

    fn unheard(&self) -> impl Iterator<Item = (Grant, Moment)> {
        self.stages.iter().filter_map(|stage| match stage {
            Stage::Queued(ticket) if self.engine.queue.is_current(ticket.slot, ticket.serial) => {
                match self.engine.queue.place(ticket.slot) {
                    Place::Granted(grant, _, since) => Some((*grant, *since)),
                    _ => None,
                }
            }
            _ => None,
        })
    }

    fn guards(&self) -> impl Iterator<Item = Grant> {
        self.stages.iter().filter_map(|stage| match stage {
            Stage::Holding(grant) => Some(*grant),
            _ => None,
        })
    }

    fn watched(&self) -> Vec<u64> {
        let grants = self.guards().chain(self.unheard().map(|(grant, _)| grant));
        grants.filter(Grant::is_watched).map(|grant| grant.serial).collect()
    }

    fn note_renewed(&mut self) {
        for serial in self.watched() {
            self.renewed_since.entry(serial).or_insert(self.now);
        }
    }

    fn check_counts(&mut self) {
        self.note_renewed();
        let (now, watched) = (self.now, self.watched());
        self.renewed_since.retain(|serial, _| watched.contains(serial));
        self.forgotten
            .retain(|(serial, _)| self.engine.held().any(|(hold, _)| hold.owner_holds.has(*serial)));
        self.given_back.retain(|owner| {
            let has_guard = |(actor, stage): (usize, &Stage)| {
                matches!(stage, Stage::Holding(_)) && self.cast[actor].owner() == *owner
            };
            self.stages.iter().enumerate().any(has_guard)
                || self.engine.held().any(|(hold, _)| hold.owner_holds.of_owner(*owner).is_some())
        });
        for (serial, loss) in &self.engine.losses {
            let guards = self.guards().filter(|grant| grant.serial == *serial).count();
            assert_eq!(
                loss.guards as usize, guards,
                "expected a loss kept for each guard that has to learn of it"
            );
        }
        let (mut acquisitions, mut ends) = (Vec::new(), Vec::new());
        for (hold, lease) in self.engine.held() {
            self.check_hold(hold);
            for (_, sharer) in hold.owner_holds.iter().filter(|(_, sharer)| sharer.loss(lease, now).is_none())
            {
                acquisitions.push((sharer.owner, sharer.count, lease.number()));
                ends.push((sharer.since, sharer.due().min(lease.sure_until), sharer.watched > 0));
            }
        }
        let each = self.engine.each_hold(now);
        assert!(each.iter().map(|held| (held.owner, held.holds, held.number)).eq(acquisitions));
        assert!(each.iter().map(|held| (held.since, held.ends, held.is_watched)).eq(ends.iter().copied()));
        assert_eq!(self.engine.acquisitions, self.acquisitions);
        assert_eq!(self.engine.hand_offs, self.handed_off);
        let queued = self.stages.iter().filter(|stage| match stage {
            Stage::Queued(ticket) => {
                self.engine.is_queued(ticket) && matches!(self.engine.queue.place(ticket.slot), Place::Queued)
            }
            _ => false,
        });
        assert_eq!(self.engine.queue.len(), queued.count());
        let held = |serial| self.engine.held().any(|(hold, _)| hold.owner_holds.has(serial));
        let overdue = self.unheard().any(|(grant, since)| since + UNPOLLED <= now && held(grant.serial));
        assert!(!overdue, "expected the supersession of an unpolled waiter");
    }

    fn check_hold(&self, hold: &Hold) {
        let (mut guards, mut unclaimed, mut watched, mut first_due) = (0, 0, 0, Moment::NEVER);
        let mut granted = Moment::NEVER;
        for (serial, sharer) in hold.owner_holds.iter() {
            let its = |grant: &Grant| grant.serial == serial;
            let claimed: Vec<_> = self.guards().filter(its).collect();
            let unheard: Vec<_> = self.unheard().filter(|(grant, _)| its(grant)).collect();
            granted = unheard.iter().fold(granted, |first, (_, since)| first.min(*since));
            let all: Vec<_> =
                claimed.iter().copied().chain(unheard.iter().map(|(grant, _)| *grant)).collect();
            let renewed = all.iter().filter(|grant| grant.is_watched()).count() as u32;
            let forgotten = self.forgotten.iter().filter(|(other, _)| *other == serial);
            let counts = (sharer.guards as usize, sharer.unclaimed as usize, sharer.watched);
            assert_eq!(
                counts,
                (claimed.len(), unheard.len(), renewed),
                "expected counts of guards, unclaimed grants and watched holds"
            );
            if !self.given_back.contains(&sharer.owner) {
                assert_eq!(
                    sharer.count as usize,
                    all.len() + forgotten.clone().count(),
                    "expected the owner's number of holds"
                );
                assert_eq!(sharer.is_forgotten(), forgotten.clone().next().is_some());
            }
            let own = all.iter().filter_map(|grant| grant.own_end);
            let own = own.chain(forgotten.map(|(_, ends)| *ends)).max();
            let limit = self
                .renewed_since
                .get(&serial)
                .map(|since| self.engine.rules.max_hold.map_or(Moment::NEVER, |limit| *since + limit));
            let due = limit.max(own).unwrap_or(Moment::NEVER);
            // Giving a hold back by name may have removed a forgotten hold or a guard's.
            if !self.given_back.contains(&sharer.owner) {
                assert_eq!(sharer.due(), due, "expected the last lease's end");
            }
            first_due = first_due.min(sharer.due());
            (guards, unclaimed, watched) =
                (guards + sharer.guards, unclaimed + sharer.unclaimed, watched + sharer.watched);
        }
        assert_eq!(
            (hold.guards, hold.unclaimed, hold.watched),
            (guards, unclaimed, watched),
            "expected sums over all owners"
        );
        let greatest =
            self.guards().filter(|grant| hold.owner_holds.has(grant.serial)).filter_map(|it| it.token());
        let rises = self.store.is_shared() || hold.token >= greatest.max();
        assert!(rises, "expected no older token for the next inner hold");
        assert!(hold.limit <= first_due, "expected a look no later than the end of a lease");
        assert!(unclaimed == 0 || hold.granted <= granted, "expected a supersession in time");
    }

    fn is_head(&self, actor: usize) -> bool {
        matches!(&self.stages[actor], Stage::Head(head, _) if self.engine.is_head(head.serial))
    }

    /// True if the stage is a waiter's whose turn the waiter has not read.
    fn is_told(&self, stage: &Stage) -> bool {
        matches!(stage, Stage::Queued(ticket) if !self.engine.is_queued(ticket))
    }

    /// Checks that a lease is in hand only while a guard believes in it, or a waiter has an unread grant.
    fn check_no_lease_is_left(&self) {
        if !self.given_back.is_empty()
            || !self.forgotten.is_empty()
            || self.stages.iter().any(|stage| self.is_told(stage))
        {
            return;
        }
        let believes = |stage: &Stage| match stage {
            Stage::Holding(grant) => self.engine.state_of(grant, self.now).ok().map(|hold| hold.number),
            _ => None,
        };
        for number in self.engine.lease_numbers() {
            let is_believed = self.stages.iter().any(|stage| believes(stage) == Some(number));
            let is_due = self.engine.next_look(self.now) <= self.now;
            assert!(
                is_believed || is_due || self.store.ends(number, self.now).is_none(),
                "expected no lease without an owner"
            );
        }
    }

    fn bring_to_an_end(&mut self) {
        for _ in 0..200 {
            if self.store.held(self.now) == Some(THEIRS) {
                self.step(Event::TheyRelease);
            }
            let urgency = |event: &Event| match event {
                Event::Send | Event::Release | Event::Renewed => Some(0),
                Event::Poll(_) | Event::Answer(_) | Event::Take(_) => Some(1),
                Event::Drop(actor) if self.is_done_with_it(*actor) => Some(2),
                // First a superseded head learns of its end, as a holder of its owner may wait for that.
                Event::Ask(actor) if !self.is_head(*actor) => Some(1),
                Event::Ask(_) => Some(3),
                Event::Enter(actor) if self.was_superseded(*actor) => Some(4),
                _ => None,
            };
            let next =
                self.enabled().into_iter().filter(|event| urgency(event).is_some()).min_by_key(urgency);
            match next {
                Some(event) => self.step(event),
                None => break,
            }
        }
        if !self.forgotten.is_empty() {
            self.pass_time_in_steps(LEASE * 4, false);
            self.check();
            return self.bring_to_an_end();
        }
        assert!(self.engine.losses.is_empty(), "expected no loss kept without a guard");
        let unserved = |stage: &Stage| !matches!(stage, Stage::Outside | Stage::Done);
        assert!(
            !self.stages.iter().any(unserved),
            "expected the end of all tasks, and some wait: {:?}",
            self.stages
        );
        assert!(
            self.engine.is_idle() && self.engine.queue.is_empty(),
            "expected an idle entry without waiters"
        );
        let is_bare = self.engine.others_first_until.is_none() && !self.engine.closed;
        assert!(!is_bare || self.engine.gate() == OPEN, "expected an open gate of an idle entry");
        // The commands that are still under way run last.
        for command in std::mem::take(&mut self.commands) {
            self.run(command);
        }
        let left: Vec<_> = self.store.numbers(self.now).collect();
        assert!(left.is_empty(), "expected no lease at the store, and found {left:?}");
    }

    fn was_superseded(&self, actor: usize) -> bool {
        self.history.contains(&Event::Enter(actor))
    }

    /// False while a holder may await another task of its owner that wants the lock.
    fn is_done_with_it(&self, actor: usize) -> bool {
        let owner = self.cast[actor].owner();
        let wants = |other: usize| {
            self.cast[other].owner() == owner
                && matches!(self.stages[other], Stage::Queued(_) | Stage::Head(..))
        };
        matches!(self.stages[actor], Stage::Holding(_)) && !(0..self.cast.len()).any(wants)
    }
}

/// True for the full depths below, as in `verify ownership`; the tests stop one event earlier.
fn is_deep() -> bool {
    env::var_os("LATCHWORK_DEEP").is_some()
}

/// Least count of sequences expected, if the full depth has at least `sequences`.
fn many(sequences: usize) -> usize {
    if is_deep() { sequences } else { sequences / 10 }
}

fn explore(cast: &[Request], kind: StoreKind, prelude: &[Event], depth: usize) -> usize {
    explore_from(|| World::after(cast, kind, prelude), depth)
}

fn explore_from(start: impl Fn() -> World, depth: usize) -> usize {
    let depth = if is_deep() { depth } else { depth - 1 };
    let mut choices: Vec<usize> = Vec::new();
    let mut sequences = 0;
    loop {
        let mut world = start();
        let mut widths = Vec::with_capacity(depth);
        for place in 0..depth {
            let enabled = world.enabled();
            if choices.len() == place {
                choices.push(0);
            }
            widths.push(enabled.len());
            let event = enabled[choices[place]];
            world.step(event);
        }
        world.bring_to_an_end();
        sequences += 1;
        loop {
            let Some(last) = choices.pop() else { return sequences };
            if last + 1 < widths[choices.len()] {
                choices.push(last + 1);
                break;
            }
        }
    }
}

fn casts() -> Vec<(Vec<Request>, usize)> {
    let watched = |owner| Request::new(owner).fenced();
    let short = |owner| Request::new(owner).lease(LEASE / 2).fenced();
    let brief = Request::new(2).lease(STEP / 2);
    vec![
        (vec![watched(1), brief], 6),
        (vec![watched(1), watched(2)], 7),
        (vec![watched(1), short(2)], 7),
        (vec![watched(1), watched(2), watched(3)], 5),
        (vec![watched(1), watched(2).shared_owner(), watched(2).shared_owner()], 5),
        (vec![short(1), watched(2), short(3)], 5),
    ]
}

/// One waiter is queued at the store, and another waiter behind it in the process.
const QUEUED: &[Event] =
    &[Event::TheyAcquire, Event::Enter(0), Event::Ask(0), Event::Answer(0), Event::Enter(1)];

const HELD: &[Event] = &[Event::Enter(0), Event::Ask(0), Event::Answer(0)];

const TWO_TOKENS: &[Event] =
    &[Event::Enter(0), Event::Ask(0), Event::Answer(0), Event::Enter(1), Event::Enter(2)];

/// An inner hold asks for a token, and the owner leaves; the next queue head competes by the same lease.
const TOKEN_OF_THE_HOLD_BEFORE: &[Event] = &[
    Event::Enter(0),
    Event::Ask(0),
    Event::Answer(0),
    Event::Enter(1),
    Event::Enter(2),
    Event::Enter(3),
    Event::LeaveByName(0),
    Event::LeaveByName(0),
    Event::Poll(2),
];

const BEHIND: &[Event] = &[Event::Enter(0), Event::Ask(0), Event::Answer(0), Event::Enter(1)];

/// The first actor holds a shared lock, and the tenure is over.
const ASIDE: &[Event] = &[
    Event::Enter(0),
    Event::Ask(0),
    Event::Answer(0),
    Event::Step,
    Event::Step,
    Event::Step,
    Event::Enter(1),
];

/// The store has granted the lock to the first actor by a message, unread until the lease is over.
const LAPSED: &[Event] = &[
    Event::TheyAcquire,
    Event::Enter(0),
    Event::Ask(0),
    Event::Answer(0),
    Event::TheyRelease,
    Event::LeaseOver,
];

fn wander(seed: u64, kind: StoreKind, steps: usize) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let watched = |owner| Request::new(owner).fenced();
    let shared = watched(5).shared_owner();
    let cast = [
        watched(1),
        watched(2),
        shared,
        shared,
        Request::new(9).lease(LEASE / 2).fenced(),
        if kind == StoreKind::Plain { watched(3) } else { Request::new(3) },
        // Inner holds; the last ends before it would be superseded.
        Request::new(5).shared_owner().lease(LEASE / 2),
        Request::new(5).shared_owner().lease(STEP / 2),
    ];
    let mut world = World::new(&cast, kind);
    if seed.is_multiple_of(2) {
        world.engine.rules.max_hold = Some(LEASE * 3 / 2);
    }
    for _ in 0..steps {
        let enabled = world.enabled();
        match enabled[random(enabled.len())] {
            // Otherwise hardly any actor would be a queue head.
            Event::Claim(actor) if random(4) > 0 => world.step(Event::Enter(actor)),
            Event::Enter(actor) if kind == StoreKind::Shared && random(8) == 0 && world.may_adopt() => {
                world.step(Event::Adopt(actor));
            }
            Event::Enter(actor) if random(3) == 0 => world.step(Event::Try(actor)),
            Event::Step if random(3) > 0 => world.step(Event::StepRenewed),
            Event::Drop(actor) if matches!(world.stages[actor], Stage::Holding(_)) => match random(6) {
                0 => world.step(Event::Forget(actor)),
                1 => world.step(Event::LeaveByName(actor)),
                _ => world.step(Event::Drop(actor)),
            },
            event => world.step(event),
        }
        for actor in 0..world.stages.len() {
            if matches!(world.stages[actor], Stage::Done) && random(2) == 0 {
                world.stages[actor] = Stage::Outside;
            }
        }
    }
    world.bring_to_an_end();
}

/// Explores with commands that are given up, lost or late, and inner holds with leases of their own.
fn late(cast: &[Request], kind: StoreKind, prelude: &[Event], depth: usize, answers_late: bool) -> usize {
    let start = || {
        let mut world = World::new(cast, kind);
        (world.is_late, world.answers_late) = (true, answers_late);
        prelude.iter().for_each(|event| world.step(*event));
        world
    };
    explore_from(start, depth)
}

fn late_commands() {
    let mine = Request::new(1).shared_owner();
    let (inner, brief) = (mine.lease(LEASE / 2), mine.lease(STEP / 2));
    for kind in [StoreKind::Plain, StoreKind::Queue, StoreKind::Shared] {
        for (cast, prelude, depth) in [
            (vec![mine.lease(LEASE / 2), mine.fenced()], HELD, 5),
            (vec![mine, brief, Request::new(2)], HELD, 4),
            (vec![mine.fenced(), inner, Request::new(2).lease(LEASE / 4)], HELD, 4),
            (vec![Request::new(1), Request::new(2).fenced()], &[][..], 5),
        ] {
            assert!(late(&cast, kind, prelude, depth, false) > many(500));
        }
        assert!(late(&[mine, mine.fenced(), mine.fenced()], kind, TWO_TOKENS, 3, true) > many(500));
    }
    // Only at this store the next owner goes on by the lease in hand.
    let cast = [mine, mine.fenced(), Request::new(2).fenced(), Request::new(3).fenced()];
    assert!(late(&cast, StoreKind::Plain, TOKEN_OF_THE_HOLD_BEFORE, 4, true) > many(500));
    // Only by an extension an older lease outlasts the lease in hand after the question.
    let asked = [by_two_leases(&[]), vec![Event::AskForOlder]].concat();
    assert!(late(&[Request::new(1), Request::new(2)], StoreKind::Shared, &asked, 4, false) > many(500));
}

/// Two actors share the lock, each by a lease of its own. `between`: events between both grants.
fn by_two_leases(between: &[Event]) -> Vec<Event> {
    [ASIDE, between, &[Event::Ask(1), Event::Answer(1)]].concat()
}

fn model() {
    for (cast, depth) in casts() {
        assert!(explore(&cast, StoreKind::Plain, &[], depth) > many(1000));
    }
    // A grant's message suffices for `simple`; `fenced` and `short` have to ask the store.
    let [simple, other, fenced] = [Request::new(1), Request::new(2), Request::new(3).fenced()];
    let short = Request::new(4).lease(STEP / 2);
    for (cast, prelude, depth) in [
        (vec![simple, other], &[][..], 6),
        (vec![simple, other], QUEUED, 5),
        (vec![simple, other], BEHIND, 5),
        (vec![simple], LAPSED, 5),
        (vec![simple, short], BEHIND, 5),
        (vec![fenced, simple, other], BEHIND, 4),
    ] {
        assert!(explore(&cast, StoreKind::Queue, prelude, depth) > many(1000));
    }
    for (cast, prelude, depth) in [
        (vec![simple, other], &[][..], 5),
        (vec![simple, other, fenced], ASIDE, 4),
        (vec![simple, short], ASIDE, 5),
        (vec![simple, short, simple.shared_owner()], ASIDE, 4),
        (vec![simple, other], &by_two_leases(&[]), 5),
        (vec![simple, other], &by_two_leases(&[Event::Force]), 4),
    ] {
        assert!(explore(&cast, StoreKind::Shared, prelude, depth) > many(1000));
    }
    for seed in 1..=if is_deep() { 10_000 } else { 500 } {
        wander(seed, [StoreKind::Plain, StoreKind::Queue, StoreKind::Shared][seed as usize % 3], 120);
    }
}

#[test]
fn every_sequence_of_events_keeps_the_invariants() {
    model();
}

#[test]
fn late_or_unanswered_commands_leave_no_lease_or_false_belief() {
    late_commands();
}

/// The answer comes while another owner has the lease.
#[test]
fn answer_to_a_release_changes_nothing_unless_one_is_under_way() {
    let mut world = World::new(&[Request::new(1), Request::new(2)], StoreKind::Plain);
    for event in [Event::Enter(0), Event::Ask(0), Event::Answer(0), Event::Enter(1)] {
        world.step(event);
    }
    world.event(|engine, now, effects| engine.appoint_next(1, now, effects));
    world.check();
    let Stage::Holding(grant) = &world.stages[0] else { panic!("expected a holder") };
    assert!(
        world.engine.state_of(grant, world.now).is_ok(),
        "expected the lock for the holder, and two owners believe"
    );
    world.bring_to_an_end();
}

/// A look without an effect would repeat at once, and block a runtime of one thread.
#[test]
fn waiters_admitted_after_a_long_hold_are_checked_just_in_time() {
    let cast = [1, 2, 3].map(Request::new);
    let mut world = World::after(&cast, StoreKind::Shared, ASIDE);
    let merged = [Event::AskForOlder, Event::Merge, Event::Step, Event::Step];
    for event in [Event::Enter(2), Event::Ask(1), Event::Answer(1)].into_iter().chain(merged) {
        world.step(event);
    }
    assert_eq!(world.engine.queue.len(), 0);
    assert!(matches!(&world.stages[2], Stage::Queued(_)), "expected an unpolled waiter");
    let Stage::Queued(ticket) = std::mem::replace(&mut world.stages[2], Stage::Done) else { unreachable!() };
    let told = world.event(|engine, now, effects| engine.claim(&ticket, now, effects));
    assert!(matches!(told, Turn::Superseded), "expected the supersession of the unpolled waiter");
}

#[test]
fn waiters_that_are_kept_unpolled_are_superseded_together() {
    let mut world = World::new(&[1, 2, 3, 4].map(Request::new), StoreKind::Plain);
    for event in [Event::Enter(0), Event::Ask(0), Event::Answer(0)] {
        world.step(event);
    }
    (1..4).for_each(|actor| world.step(Event::Enter(actor)));
    world.step(Event::Drop(0));
    assert_eq!(world.engine.queue.len(), 2);
    let limit = world.engine.rules.unpolled_limit;
    let (engine, now) = (&mut world.engine, world.now);
    let mut looks = |limits| engine.tick(now + limit * limits, &mut Effects::default());
    let _ = (looks(1), looks(2));
    assert_eq!(world.engine.queue.len(), 0, "expected all waiters superseded");
}

/// The client ends: no task would be left to send the rollback.
#[test]
fn closing_rolls_back_what_the_queue_head_has_at_the_store() {
    for (prelude, at_store) in [(QUEUED, true), (BEHIND, false)] {
        let mut world = World::after(&[Request::new(1), Request::new(2)], StoreKind::Queue, prelude);
        if !at_store {
            world.step(Event::Drop(0));
            assert!(!world.unsent.is_empty(), "expected an unsent release that names a waiter");
        }
        world.event(|engine, _, effects| engine.close(effects));
        assert_eq!(!world.releases.is_empty(), at_store);
        assert!(matches!(&world.stages[1], Stage::Queued(waits) if !world.engine.is_queued(waits)));
        for actor in [0, 1] {
            world.step(Event::Drop(actor));
        }
        world.bring_to_an_end();
    }
}

/// By then the shutdown has counted the leases to release.
#[test]
fn closed_entry_rolls_back_a_lease_requested_without_a_queue() {
    let mut world = World::new(&[Request::new(1).shared_owner()], StoreKind::Shared);
    world.event(|engine, _, effects| engine.close(effects));
    let (request, number) = (world.cast[0], world.store.fresh());
    world.store.share_beside(number, LEASE, world.now);
    let attempt = Attempt::outside_of_queue(number, &request, world.now, LEASE);
    let granted = world.event(|engine, now, effects| engine.adopt(&request, attempt, 1, now, effects));
    assert!(granted.is_none(), "expected no grant by a closed entry");
    assert!(world.releases.iter().any(|release| release.number == number && release.rolls_back));
    world.bring_to_an_end();
}

/// The holder may await its owner's other tasks.
#[test]
fn owner_that_gets_in_another_way_takes_its_waiters_along() {
    let shared = Request::new(1).shared_owner();
    let prelude = [Event::TheyAcquire, Event::Enter(0), Event::Ask(0), Event::Answer(0), Event::Enter(1)];
    let mut world = World::after(&[shared, shared, shared], StoreKind::Shared, &prelude);
    world.step(Event::TheyRelease);
    world.step(Event::Adopt(2));
    let Stage::Head(head, _) = &world.stages[0] else { panic!("expected a queue head") };
    assert!(!world.engine.is_head(head.serial), "expected no queue head that waits for its own owner");
    assert!(
        matches!(&world.stages[1], Stage::Queued(waits) if !world.engine.is_queued(waits)),
        "expected no waiter that waits for its own owner"
    );
    world.bring_to_an_end();
}

#[test]
fn sharing_owner_admits_its_waiters_whatever_lease_they_want() {
    let shared = Request::new(1).shared_owner();
    for inner in [shared.lease(LEASE * 4), shared.fenced()] {
        let prelude = [Event::Enter(0), Event::Ask(0), Event::Enter(1), Event::Answer(0)];
        let mut world = World::after(&[shared, inner], StoreKind::Shared, &prelude);
        let Stage::Queued(ticket) = std::mem::replace(&mut world.stages[1], Stage::Done) else {
            panic!("it waits")
        };
        let told = world.event(|engine, now, effects| engine.claim(&ticket, now, effects));
        let Turn::Granted(grant, extension @ Some(_)) = told else {
            panic!("expected the grant with the owner's hold, and got {told:?}")
        };
        world.stages[1] = world.granted(1, grant, extension);
        world.bring_to_an_end();
    }
}

#[test]
fn store_is_asked_about_a_grant_learnt_after_a_forced_unlock() {
    let (granted, told) = ([Event::Enter(0), Event::Ask(0)], [&QUEUED[..4], &[Event::TheyRelease]].concat());
    for (kind, before, known) in [
        (StoreKind::Plain, &granted[..], Event::Answer(0)),
        (StoreKind::Plain, &[Event::Claim(0)], Event::Take(0)),
        (StoreKind::Queue, &granted, Event::Answer(0)),
        (StoreKind::Shared, &granted, Event::Answer(0)),
        (StoreKind::Queue, &told, Event::Hear),
    ] {
        force_unheard(World::after(&[Request::new(1)], kind, before), kind, known);
    }
}

/// Forces the lock free before the first actor's grant becomes `known`.
fn force_unheard(mut world: World, kind: StoreKind, known: Event) {
    world.step(Event::Force);
    world.engine.forced = Some(world.now);
    world.step(known);
    assert!(matches!(world.stages[0], Stage::Holding(_)), "{kind:?}: expected the grant");
    world.now = world.now + Duration::from_millis(1);
    world.renew_what_is_due();
    let Stage::Holding(grant) = &world.stages[0] else { unreachable!() };
    let state = world.engine.state_of(grant, world.now);
    assert_eq!(state, Err(LossReason::Gone), "{kind:?}: expected the loss of a lease that was forced free");
    world.bring_to_an_end();
}

/// The unlock came before the second grant's question, and needs no verification.
#[test]
fn store_is_asked_about_a_grant_before_the_last_forced_unlock() {
    let mut world = World::after(&[Request::new(1)], StoreKind::Plain, &[]);
    world.engine.forced = Some(world.now);
    world.now = world.now + Duration::from_millis(1);
    world.step(Event::Enter(0));
    world.step(Event::Ask(0));
    force_unheard(world, StoreKind::Plain, Event::Answer(0));
}

/// Two renewals of other sharers, at any two times, cut all leases to the length of a renewal.
#[test]
fn shared_lease_lasts_as_long_as_its_holder_believes() {
    let pace = LEASE / 18;
    for own in [LEASE * 4, LEASE + LEASE / 3, LEASE + pace, LEASE] {
        let paces = own.as_nanos() / pace.as_nanos();
        for (first, second) in (0..paces).flat_map(|first| (first..paces).map(move |second| (first, second)))
        {
            let cast = [Request::new(1).lease(own)];
            let prelude = [Event::Enter(0), Event::Ask(0), Event::Answer(0)];
            let mut world = World::after(&cast, StoreKind::Shared, &prelude);
            for at in 0..paces {
                if at == first || at == second {
                    world.store.cut(LEASE, world.now);
                }
                world.renew_what_is_due();
                world.check();
                world.now = world.now + pace;
            }
            world.renew_what_is_due();
            world.step(Event::Drop(0));
            world.bring_to_an_end();
        }
    }
}

/// A waiter with a limit fails with the lock held, and not with its state unknown.
#[test]
fn waiter_behind_a_hold_knows_that_the_lock_was_held() {
    let mut world = World::after(&[Request::new(1), Request::new(2)], StoreKind::Queue, BEHIND);
    world.step(Event::Drop(0));
    assert!(world.engine.is_known_held());
    world.step(Event::Send);
    world.step(Event::ReleaseLost);
    assert!(!world.engine.is_known_held(), "expected no known holder without an answer of the store");
    assert!(world.engine.was_known_held(world.now), "expected the end of the hold to be remembered");
    world.bring_to_an_end();
}

/// At a store that sets lengths exactly, several commands of one lease run in order, maybe late.
#[test]
fn token_that_is_asked_for_beside_an_extension_shortens_nothing() {
    let mine = Request::new(1).shared_owner();
    for kind in [StoreKind::Plain, StoreKind::Queue] {
        for answers_late in [false, true] {
            let mut world = World::new(&[mine.lease(LEASE / 2), mine.lease(STEP * 2).fenced()], kind);
            world.is_late = true;
            world.store.sets_exactly = true;
            HELD.iter().for_each(|event| world.step(*event));
            world.step(Event::Extend(0));
            world.step(Event::Enter(1));
            if answers_late {
                world.step(Event::Step);
            }
            for _ in 0..2 {
                world.step(Event::Run(0));
            }
            for _ in 0..4 {
                world.step(Event::Step);
            }
            world.bring_to_an_end();
        }
    }
}

//! The engine, by every sequence of events up to a length: a few acquisitions, a store, another process, and time. Each sequence is then
//! brought to its end, and nothing may be left.
//!
//! A mutant is run in a process of its own, with a fault seeded into the engine, and has to fail.

use std::env;
use std::process::Command;
use std::time::{Duration, Instant};

use super::super::{
    Actions, Attempt, Entered, Extension, Grant, HeadTicket, Left, Request, Ticket, Told, Verdict,
};
use super::{Ownership, Rules};
use crate::fault::{Fault, seed};
use crate::moment::Moment;

const LEASE: Duration = Duration::from_millis(900);
const UNPOLLED: Duration = Duration::from_millis(100);
const TENURE: Duration = Duration::from_millis(150);
const STEP: Duration = Duration::from_millis(60);

/// What the store has, and what is on its way there.
struct Store {
    lease: Option<(u64, Moment)>,
    last_token: u64,
    /// Releases in the background, and whether the next waiter is appointed by the answer.
    releases: Vec<(u64, bool)>,
    /// Forced free.
    forced: Vec<u64>,
    next_number: u64,
}

/// Another process's lease.
const THEIRS: u64 = 0;

impl Store {
    fn held(&self, now: Moment) -> Option<u64> {
        self.lease.filter(|(_, until)| *until > now).map(|(number, _)| number)
    }

    fn release(&mut self, number: u64, now: Moment) {
        if self.held(now) == Some(number) {
            self.lease = None;
        }
    }
}

#[derive(Debug)]
enum Stage {
    Outside,
    Queued(Ticket),
    /// The queue head: nothing sent, or sent and not answered, or refused.
    Head(HeadTicket, Option<Sent>),
    Holding(Grant),
    Done,
}

#[derive(Clone, Copy, Debug)]
struct Sent {
    attempt: Attempt,
    at: Moment,
    /// What the store has answered: the last token, or that another has it.
    answer: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Enter(usize),
    Poll(usize),
    Ask(usize),
    Answer(usize),
    Drop(usize),
    Release,
    Step,
    LeaseOver,
    TheyAcquire,
    TheyRelease,
    Force,
}

struct World {
    now: Moment,
    engine: Ownership,
    store: Store,
    cast: Vec<Request>,
    stages: Vec<Stage>,
    /// The last serial that was granted, and its token.
    last_grant: (u64, Option<u64>),
    history: Vec<Event>,
}

impl World {
    fn new(cast: &[Request]) -> Self {
        let position = None;
        let rules = Rules {
            tenure: TENURE,
            renewed_lease: LEASE,
            max_hold: None,
            unpolled_limit: UNPOLLED,
            position,
        };
        Self {
            now: Moment::from(Instant::now()),
            engine: Ownership::new(rules),
            store: Store {
                lease: None,
                last_token: 0,
                releases: Vec::new(),
                forced: Vec::new(),
                next_number: 1,
            },
            cast: cast.to_vec(),
            stages: cast.iter().map(|_| Stage::Outside).collect(),
            last_grant: (0, None),
            history: Vec::new(),
        }
    }

    fn enabled(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for (who, stage) in self.stages.iter().enumerate() {
            match stage {
                Stage::Outside => events.push(Event::Enter(who)),
                Stage::Queued(ticket) => {
                    if !self.engine.is_queued(ticket.0) {
                        events.push(Event::Poll(who));
                    }
                    events.push(Event::Drop(who));
                }
                Stage::Head(_, None) => events.extend([Event::Ask(who), Event::Drop(who)]),
                Stage::Head(_, Some(_)) => events.extend([Event::Answer(who), Event::Drop(who)]),
                Stage::Holding(_) => events.push(Event::Drop(who)),
                Stage::Done => {}
            }
        }
        if !self.store.releases.is_empty() {
            events.push(Event::Release);
        }
        if self.stages.iter().any(|stage| !matches!(stage, Stage::Outside | Stage::Done)) {
            events.extend([Event::Step, Event::LeaseOver]);
        }
        match self.store.held(self.now) {
            None => events.push(Event::TheyAcquire),
            Some(THEIRS) => events.push(Event::TheyRelease),
            Some(_) => events.push(Event::Force),
        }
        events
    }

    fn carry_out(&mut self, actions: Actions) {
        for (give_back, appoints) in [(actions.give_back(), true), (actions.roll_back(), false)] {
            if let Some(give_back) = give_back {
                self.store.releases.push((give_back.number, appoints && give_back.appoints));
            }
        }
    }

    fn event<T>(&mut self, event: impl FnOnce(&mut Ownership, Moment, &mut Actions) -> T) -> T {
        let mut actions = Actions::default();
        let outcome = event(&mut self.engine, self.now, &mut actions);
        self.carry_out(actions);
        outcome
    }

    fn step(&mut self, event: Event) {
        self.history.push(event);
        match event {
            Event::Enter(who) => {
                let request = self.cast[who];
                self.stages[who] =
                    match self.event(|engine, now, actions| engine.enter(&request, true, now, actions)) {
                        Entered::Reentered(grant, extension) => self.granted(who, grant, extension),
                        Entered::Head(head) => Stage::Head(head, None),
                        Entered::Queued(ticket) => Stage::Queued(ticket),
                        other => panic!("{other:?}"),
                    };
            }
            Event::Poll(who) => {
                let Stage::Queued(ticket) = &self.stages[who] else { unreachable!() };
                let slot = ticket.0;
                self.stages[who] = match self.event(|engine, now, actions| engine.claim(slot, now, actions)) {
                    Told::Granted(grant, extension) => self.granted(who, grant, extension),
                    Told::Head(head) => Stage::Head(head, None),
                    Told::Superseded => Stage::Outside,
                    Told::Closed => panic!("nobody closes it"),
                };
            }
            Event::Ask(who) => self.ask(who),
            Event::Answer(who) => self.answer(who),
            Event::Drop(who) => self.drop_one(who),
            Event::Release => {
                let (number, appoints) = self.store.releases.remove(0);
                self.store.release(number, self.now);
                if appoints {
                    self.event(|engine, now, actions| engine.returned(1, now, actions));
                }
            }
            Event::Step => self.pass_time(STEP),
            Event::LeaseOver => self.pass_time(LEASE),
            Event::TheyAcquire => self.store.lease = Some((THEIRS, self.now + LEASE * 3)),
            Event::TheyRelease => self.store.lease = None,
            Event::Force => {
                let (number, _) = self.store.lease.take().expect("somebody has it");
                self.store.forced.push(number);
            }
        }
        self.check();
    }

    fn granted(&mut self, who: usize, grant: Grant, extension: Option<Extension>) -> Stage {
        assert!(self.engine.state_of(&grant, self.now).is_ok(), "granted what is over");
        assert!(!self.cast[who].is_fenced() || grant.token().is_some() || extension.is_some(), "no token");
        if grant.serial() > self.last_grant.0 {
            if let Some(last) = self.last_grant.1
                && let Some(token) = grant.token()
            {
                assert!(token > last, "tokens do not rise: {token} after {last}");
            }
            self.last_grant = (grant.serial(), grant.token().or(self.last_grant.1));
        }
        Stage::Holding(grant)
    }

    fn lease_of(&self, who: usize) -> Duration {
        self.cast[who].own_lease().unwrap_or(LEASE)
    }

    fn ask(&mut self, who: usize) {
        let Stage::Head(head, _) = &self.stages[who] else { unreachable!() };
        let (serial, head, request, lease, now) =
            (head.serial, *head, self.cast[who], self.lease_of(who), self.now);
        let fresh = self.store.next_number;
        self.store.next_number += 1;
        let Some(attempt) = self.engine.attempt(serial, fresh, &request, now, lease) else {
            self.stages[who] = Stage::Outside;
            return;
        };
        let answer = match self.store.held(now) {
            Some(other) if other != attempt.number() => None,
            _ => {
                self.store.lease = Some((attempt.number(), now + lease));
                self.store.last_token += attempt.tokens();
                Some(self.store.last_token)
            }
        };
        self.stages[who] = Stage::Head(head, Some(Sent { attempt, at: now, answer }));
    }

    fn answer(&mut self, who: usize) {
        let Stage::Head(head, Some(sent)) = &self.stages[who] else { unreachable!() };
        let (head, sent, request, lease) = (*head, *sent, self.cast[who], self.lease_of(who));
        let polled = self.engine.head_polled(head.serial);
        self.stages[who] = match sent.answer {
            _ if !polled => Stage::Outside,
            None => {
                self.engine.refused(head.serial);
                Stage::Head(head, None)
            }
            Some(last_token) => {
                let verdict = self.event(|engine, now, actions| {
                    let Sent { attempt, at, .. } = sent;
                    engine.acquired(head.serial, &request, attempt, last_token, at, lease, now, actions)
                });
                match verdict {
                    Verdict::Granted(grant) => self.granted(who, grant, None),
                    Verdict::TooLate => Stage::Head(head, None),
                    Verdict::Superseded => Stage::Outside,
                }
            }
        };
    }

    fn drop_one(&mut self, who: usize) {
        match std::mem::replace(&mut self.stages[who], Stage::Done) {
            Stage::Queued(ticket) => self.event(|engine, now, actions| engine.cancel(ticket.0, now, actions)),
            Stage::Head(head, _) => {
                self.event(|engine, now, actions| engine.abandon(head.serial, now, actions))
            }
            Stage::Holding(grant) => {
                let left = self.event(|engine, now, actions| engine.leave(&grant, now, actions));
                if let Left::Return(give_back) = left {
                    self.store.releases.push((give_back.number, false));
                    self.event(|engine, now, actions| engine.returned(0, now, actions));
                }
            }
            Stage::Outside | Stage::Done => {}
        }
    }

    /// Time passes, and nobody is polled meanwhile: a queue head whose reply has come is woken.
    fn pass_time(&mut self, time: Duration) {
        if self.stages.iter().any(|stage| matches!(stage, Stage::Head(_, Some(_)))) {
            self.event(|engine, now, actions| engine.head_woken(now, actions));
        }
        self.now = self.now + time;
        // The renewals that it asks for are not answered.
        let renewal = self.event(|engine, now, actions| engine.tick(now, actions));
        if let Some(renewal) = renewal {
            self.event(|engine, now, actions| engine.renewal_failed(renewal, now, actions));
        }
    }

    fn check(&self) {
        assert!(self.engine.is_look_told(self.now), "nobody looks when something is due");
        let mut believed = None;
        for stage in &self.stages {
            let Stage::Holding(grant) = stage else { continue };
            let Ok(hold) = self.engine.state_of(grant, self.now) else { continue };
            assert!(*believed.get_or_insert(grant.serial()) == grant.serial(), "two owners believe");
            let forced = self.store.forced.contains(&hold.number);
            assert!(
                forced || self.store.held(self.now) == Some(hold.number),
                "it believes, and the store does not"
            );
        }
        if let Some((number, _)) = self.store.lease
            && self.store.held(self.now).is_some_and(|held| held != THEIRS)
        {
            let asked = self.stages.iter().any(|stage| matches!(stage, Stage::Head(_, Some(_))));
            let known = self.engine.knows_lease(number);
            let returning = self.store.releases.iter().any(|(other, _)| *other == number);
            assert!(asked || known || returning, "lease {number} is left at the store");
        }
    }

    /// Everybody who waits gets the lock, uses it, and goes.
    fn bring_to_an_end(&mut self) {
        for _ in 0..100 {
            if self.store.held(self.now) == Some(THEIRS) {
                self.step(Event::TheyRelease);
            }
            let urgency = |event: &Event| match event {
                Event::Release => Some(0),
                Event::Poll(_) | Event::Answer(_) => Some(1),
                Event::Drop(who) if self.is_done_with_it(*who) => Some(2),
                Event::Ask(_) => Some(3),
                Event::Enter(who) if self.was_superseded(*who) => Some(4),
                _ => None,
            };
            let next =
                self.enabled().into_iter().filter(|event| urgency(event).is_some()).min_by_key(urgency);
            match next {
                Some(event) => self.step(event),
                None => break,
            }
        }
        let unserved = |stage: &Stage| !matches!(stage, Stage::Outside | Stage::Done);
        assert!(!self.stages.iter().any(unserved), "somebody waits for ever: {:?}", self.stages);
        assert!(self.engine.is_idle() && self.engine.waiters() == 0, "the entry is not idle");
        assert_eq!(self.store.held(self.now), None, "the lock is left at the store");
    }

    fn was_superseded(&self, who: usize) -> bool {
        self.history.contains(&Event::Enter(who))
    }

    /// A task that holds the lock may await another one of its owner, which wants it as well.
    fn is_done_with_it(&self, who: usize) -> bool {
        let owner = self.cast[who].owner();
        let wants = |other: usize| {
            self.cast[other].owner() == owner
                && matches!(self.stages[other], Stage::Queued(_) | Stage::Head(..))
        };
        matches!(self.stages[who], Stage::Holding(_)) && !(0..self.cast.len()).any(wants)
    }
}

/// Every sequence of `depth` events.
fn explore(cast: &[Request], depth: usize) -> usize {
    let mut choices: Vec<usize> = Vec::new();
    let mut sequences = 0;
    loop {
        let mut world = World::new(cast);
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
        // The next one.
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
    // Over before anybody is superseded.
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

/// A long walk at random through a larger cast.
fn wander(seed: u64, steps: usize) {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut random = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below as u64) as usize
    };
    let watched = |owner| Request::new(owner).fenced();
    let shared = watched(5).shared_owner();
    let mut world = World::new(&[
        watched(1),
        watched(2),
        shared,
        shared,
        Request::new(9).lease(LEASE / 2).fenced(),
        watched(3),
    ]);
    for _ in 0..steps {
        let enabled = world.enabled();
        // Events of time, and of others, are as frequent as all the rest.
        world.step(enabled[random(enabled.len())]);
        for who in 0..world.stages.len() {
            if matches!(world.stages[who], Stage::Done) && random(2) == 0 {
                world.stages[who] = Stage::Outside;
            }
        }
    }
    world.bring_to_an_end();
}

fn model() {
    for (cast, depth) in casts() {
        assert!(explore(&cast, depth) > 1000);
    }
    for seed in 1..=400 {
        wander(seed, 120);
    }
}

#[test]
fn every_sequence_of_events_keeps_the_invariants_and_leaves_nothing() {
    if let Ok(mutant) = env::var(MUTANT) {
        let seeded = Fault::ALL.iter().find(|fault| format!("{fault:?}") == mutant);
        seed(*seeded.expect("a fault of that name"));
    }
    model();
}

/// An answer comes when the lease is long in other hands.
#[test]
fn answer_to_a_release_changes_nothing_unless_one_is_under_way() {
    if env::var(MUTANT).is_ok_and(|mutant| mutant == "NoPhaseCheck") {
        seed(Fault::NoPhaseCheck);
    }
    let mut world = World::new(&[Request::new(1), Request::new(2)]);
    for event in [Event::Enter(0), Event::Ask(0), Event::Answer(0), Event::Enter(1)] {
        world.step(event);
    }
    world.event(|engine, now, actions| engine.returned(1, now, actions));
    world.check();
    let Stage::Holding(grant) = &world.stages[0] else { panic!("it has the lock") };
    assert!(world.engine.state_of(grant, world.now).is_ok(), "two owners believe");
    world.bring_to_an_end();
}

/// Names the fault that is seeded into this process.
const MUTANT: &str = "LATCHWORK_MUTANT";

/// Runs `test` with a fault, and sees to it that it fails, saying `expected`.
fn must_fail(test: &str, mutant: Fault, expected: &str) {
    let run = Command::new(env::current_exe().expect("a test has a path"))
        .args([&format!("lock_entry::ownership::model::{test}"), "--exact", "--nocapture"])
        .env(MUTANT, format!("{mutant:?}"))
        .output()
        .expect("a test can be run again");
    let said = String::from_utf8_lossy(&run.stderr);
    assert!(!run.status.success(), "{mutant:?} was not found: this model cannot fail");
    assert!(said.contains(expected), "{mutant:?} was found, but not by {expected:?}:\n{said}");
}

macro_rules! mutants {
    ($($name:ident: $fault:ident, $test:literal, $expected:literal;)*) => {
        $(
            #[test]
            fn $name() {
                must_fail($test, Fault::$fault, $expected);
            }
        )*
    };
}

mutants! {
    mutant_without_phase_check_is_killed: NoPhaseCheck,
        "answer_to_a_release_changes_nothing_unless_one_is_under_way", "panicked";
    mutant_without_serial_check_is_killed: NoSerialCheck,
        "every_sequence_of_events_keeps_the_invariants_and_leaves_nothing", "panicked";
    mutant_without_same_owner_grant_is_killed: NoSameOwnerGrant,
        "every_sequence_of_events_keeps_the_invariants_and_leaves_nothing", "somebody waits for ever";
    mutant_that_grants_after_the_deadline_is_killed: GrantedAfterDeadline,
        "every_sequence_of_events_keeps_the_invariants_and_leaves_nothing", "granted what is over";
    mutant_that_keeps_a_token_block_is_killed: TokenBlockKept,
        "every_sequence_of_events_keeps_the_invariants_and_leaves_nothing", "tokens do not rise";
    mutant_whose_head_forgets_its_attempt_is_killed: HeadForgetsItsAttempt,
        "every_sequence_of_events_keeps_the_invariants_and_leaves_nothing", "left at the store";
    mutant_whose_hand_off_dies_with_the_waiter_is_killed: HandOffDiesWithWaiter,
        "every_sequence_of_events_keeps_the_invariants_and_leaves_nothing", "panicked";
    mutant_whose_lease_dies_with_the_last_waiter_is_killed: LeaseDiesWithLastWaiter,
        "every_sequence_of_events_keeps_the_invariants_and_leaves_nothing", "left at the store";
    mutant_that_says_once_when_to_look_is_killed: LookSaidOnce,
        "every_sequence_of_events_keeps_the_invariants_and_leaves_nothing", "nobody looks when something is due";
}

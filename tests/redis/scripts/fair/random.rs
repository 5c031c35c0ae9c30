//! Random commands, and a model that says what each must answer and leave.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use latchwork::LeaseId;
use latchwork::backend::{AcquireOutcome, Backend as _, Mode, NextWaiter, ReleaseOutcome};
use proptest::prelude::*;

use super::stage::{LEASE, Stage, id, next, position};
use latchwork_conformance::commands::RELEASED;

const CLIENTS: u32 = 3;
/// So many ids of each client.
const IDS: u64 = 3;

#[derive(Clone, Debug)]
enum Command {
    /// With a position, at an age, or without.
    Ask(Who, Option<u32>),
    Release(Who, Option<(Who, u32)>),
    Force,
    Listen(u32, bool),
    /// The lease is over.
    Expire,
    /// The id was silent for too long.
    EndPosition(Who),
    /// A client of Redisson takes the lock if it is free, without a mode.
    Stranger,
}

/// A client, and one of its ids.
type Who = (u32, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    Free,
    By(Who),
    ByStranger,
}

/// What a sequence of commands comes to.
struct Model {
    held: Held,
    /// In order: an age in steps and a number that rises from one arrival to the next; and whether the
    /// position lasts.
    queue: BTreeMap<(std::cmp::Reverse<u32>, usize), (Who, bool)>,
    arrivals: usize,
    listening: BTreeSet<u32>,
    /// What was published: a grant and its receiver, or that the lock is free.
    told: Vec<Option<Who>>,
}

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Acquired,
    Held,
    Forced(bool),
    Release(ReleaseOutcome),
    Nothing,
}

impl Model {
    fn new() -> Self {
        let (queue, listening) = (BTreeMap::new(), BTreeSet::new());
        Self { held: Held::Free, queue, arrivals: 0, listening, told: Vec::new() }
    }

    fn leave(&mut self, who: Who) {
        self.queue.retain(|_, (other, _)| *other != who);
    }

    fn enqueue(&mut self, who: Who, age: u32) {
        // What has a place keeps it, unless it has waited for longer than it said.
        if self.queue.iter().any(|((its, _), place)| *place == (who, true) && its.0 >= age) {
            return;
        }
        self.leave(who);
        self.arrivals += 1;
        self.queue.insert((std::cmp::Reverse(age), self.arrivals), (who, true));
    }

    /// Leases the free lock to the first of the queue that listens, unless `asks` comes before it.
    fn pass_on(&mut self, asks: Option<Who>) -> bool {
        let mut over = Vec::new();
        let mut first = None;
        for (who, lasts) in self.queue.values() {
            if Some(*who) == asks {
                break;
            }
            match lasts {
                false => over.push(*who),
                true if self.listening.contains(&who.0) => {
                    first = Some(*who);
                    break;
                }
                true => {}
            }
        }
        over.into_iter().chain(first).for_each(|who| self.leave(who));
        let Some(first) = first else { return false };
        self.held = Held::By(first);
        self.told.push(Some(first));
        true
    }

    fn run(&mut self, command: &Command) -> Answer {
        match *command {
            Command::Ask(who, age) => self.ask(who, age),
            Command::Release(who, next) => Answer::Release(self.release(who, next)),
            Command::Force => {
                let was_held = std::mem::replace(&mut self.held, Held::Free) != Held::Free;
                if !self.pass_on(None) && was_held {
                    self.told.push(None);
                }
                Answer::Forced(was_held)
            }
            Command::Listen(client, true) => {
                self.listening.insert(client);
                Answer::Nothing
            }
            Command::Listen(client, false) => {
                self.listening.remove(&client);
                Answer::Nothing
            }
            Command::Expire => {
                self.held = Held::Free;
                Answer::Nothing
            }
            Command::EndPosition(who) => {
                self.queue.values_mut().filter(|(other, _)| *other == who).for_each(|place| place.1 = false);
                Answer::Nothing
            }
            Command::Stranger => {
                if self.held == Held::Free {
                    self.held = Held::ByStranger;
                }
                Answer::Nothing
            }
        }
    }

    fn ask(&mut self, who: Who, age: Option<u32>) -> Answer {
        if self.held == Held::By(who) {
            return Answer::Acquired;
        }
        if let Some(age) = age {
            self.enqueue(who, age);
        }
        if self.held == Held::Free {
            // A position of its own that is over is none.
            let lasts = self.queue.values().any(|place| *place == (who, true));
            if !lasts {
                self.leave(who);
            }
            if !self.pass_on(lasts.then_some(who)) {
                self.leave(who);
                self.held = Held::By(who);
                return Answer::Acquired;
            }
        }
        Answer::Held
    }

    fn release(&mut self, who: Who, next: Option<(Who, u32)>) -> ReleaseOutcome {
        self.leave(who);
        let next = next.filter(|(next, _)| *next != who);
        if let Some((next, _)) = next
            && self.held == Held::By(next)
        {
            return ReleaseOutcome::GrantedToNext { last_token: 0 };
        }
        if self.held != Held::By(who) {
            let is_queued = next.is_some_and(|(next, _)| self.queue.values().any(|place| place.0 == next));
            if self.held == Held::Free {
                self.pass_on(None);
            }
            return if is_queued { RELEASED } else { ReleaseOutcome::NotHeld };
        }
        self.held = Held::Free;
        if let Some((next, age)) = next {
            self.enqueue(next, age);
        }
        if self.pass_on(next.map(|(next, _)| next)) {
            return RELEASED;
        }
        match next {
            Some((next, _)) => {
                self.leave(next);
                self.held = Held::By(next);
                ReleaseOutcome::GrantedToNext { last_token: 0 }
            }
            None => {
                self.told.push(None);
                RELEASED
            }
        }
    }

    /// What must always be so.
    fn check(&self, command: &Command) {
        let heard = self.queue.values().any(|((client, _), lasts)| *lasts && self.listening.contains(client));
        let acts = matches!(command, Command::Ask(..) | Command::Release(..) | Command::Force);
        assert!(!acts || self.held != Held::Free || !heard, "a free lock is waited for");
        let holds = |who: &Who| self.held == Held::By(*who);
        assert!(!self.queue.values().any(|(who, _)| holds(who)), "somebody who has it waits for it");
    }
}

fn lease_id((client, number): Who) -> LeaseId {
    id(client, number)
}

/// Carries a command out for real.
async fn run(stage: &mut Stage, command: &Command) -> Answer {
    match command {
        Command::Ask(who, age) => match stage.ask(&lease_id(*who), age.map(position)).await.unwrap() {
            AcquireOutcome::Acquired { .. } => Answer::Acquired,
            AcquireOutcome::Held { left } => {
                assert!(left <= LEASE);
                Answer::Held
            }
        },
        Command::Release(who, then) => {
            let then: Option<NextWaiter> =
                then.filter(|(next, _)| next != who).map(|(who, age)| next(&lease_id(who), age, 0));
            Answer::Release(stage.release(&lease_id(*who), then.as_ref()).await)
        }
        Command::Force => Answer::Forced(stage.redis.force_release(Mode::Fair, &stage.name).await.unwrap()),
        Command::Listen(client, true) => {
            stage.listen(&id(*client, 0)).await;
            Answer::Nothing
        }
        Command::Listen(client, false) => {
            stage.listen_no_more(&id(*client, 0)).await;
            Answer::Nothing
        }
        Command::Expire => {
            let () = stage.run("DEL {}").await;
            Answer::Nothing
        }
        Command::EndPosition(who) => {
            stage.end_position(&lease_id(*who)).await;
            Answer::Nothing
        }
        Command::Stranger => {
            if stage.run::<usize>("EXISTS {}").await == 0 {
                let () = stage.run("HSET {} 8743c9c0-0795-4907-87fd-6c719a6b4586:7 1").await;
                let () = stage.run("PEXPIRE {} 600000").await;
            }
            Answer::Nothing
        }
    }
}

/// What is there, as the model would say it.
async fn compare(stage: &mut Stage, model: &mut Model) {
    let fields: Vec<String> = stage.run("HKEYS {}").await;
    match model.held {
        Held::Free => assert!(fields.is_empty(), "{fields:?}"),
        Held::By(who) => assert_eq!(stage.holder().await, Some(lease_id(who))),
        Held::ByStranger => assert_eq!(fields.len(), 1, "{fields:?}"),
    }
    let expected: Vec<_> = model.queue.values().map(|(who, _)| lease_id(*who)).collect();
    assert_eq!(stage.queue().await, expected);
    let told = std::mem::take(&mut model.told).into_iter().map(|told| match told {
        Some(who) => (lease_id(who).client_id(), format!("granted:{}", who.1)),
        None => ("plain".to_owned(), "0".to_owned()),
    });
    assert_eq!(stage.heard().await, told.collect::<Vec<_>>());
    let _ = stage.keys().await;
}

fn commands() -> impl Strategy<Value = Vec<Command>> {
    let who = (1..=CLIENTS, 1..=IDS);
    let age = 0..4_u32;
    let ask = (who.clone(), proptest::option::weighted(0.8, age.clone()));
    let release = (who.clone(), proptest::option::of((who.clone(), age)));
    let command = prop_oneof![
        8 => ask.prop_map(|(who, age)| Command::Ask(who, age)),
        8 => release.prop_map(|(who, next)| Command::Release(who, next)),
        1 => Just(Command::Force),
        3 => (1..=CLIENTS, any::<bool>()).prop_map(|(client, listens)| Command::Listen(client, listens)),
        1 => Just(Command::Expire),
        1 => who.prop_map(Command::EndPosition),
        1 => Just(Command::Stranger),
    ];
    proptest::collection::vec(command, 1..40)
}

#[test]
fn scripts_do_what_a_sequential_queue_does() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(commands in commands())| {
        // Ordering: Relaxed, only numbers that differ.
        let name = format!("fair:random:{}", RUNS.fetch_add(1, Ordering::Relaxed));
        runtime.block_on(async {
            let (mut stage, mut model) = (Stage::set(&name).await, Model::new());
            for command in &commands {
                let expected = model.run(command);
                assert_eq!(run(&mut stage, command).await, expected, "{command:?}");
                compare(&mut stage, &mut model).await;
                model.check(command);
            }
            // All leave, and nothing is left.
            for client in 1..=CLIENTS {
                for number in 1..=IDS {
                    stage.release(&id(client, number), None).await;
                }
            }
            stage.redis.force_release(Mode::Fair, &stage.name).await.unwrap();
            stage.end().await;
        });
    });
}

//! Random commands, and a model that says what each must answer and leave.

use std::collections::{BTreeMap, BTreeSet};

use latchwork::LeaseId;
use latchwork::backend::{AcquireOutcome, NextWaiter, ReleaseOutcome};
use proptest::prelude::*;

use super::super::random::{CLIENTS, Party, parties, play};
use super::super::stage::{LEASE, Stage, id, next, position};
use latchwork_conformance::commands::RELEASED;

/// So many ids of each client.
const IDS: u64 = 3;

#[derive(Clone, Debug)]
enum Command {
    /// With a position, at an age, or without.
    Ask(Party, Option<u32>),
    Release(Party, Option<(Party, u32)>),
    Force,
    Listen(u32, bool),
    /// The lease is over.
    Expire,
    /// The id was silent for too long.
    EndPosition(Party),
    /// A client of Redisson takes the lock if it is free, without a mode.
    Stranger,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeldBy {
    Free,
    By(Party),
    ByStranger,
}

/// What a sequence of commands comes to.
struct Model {
    held: HeldBy,
    /// In order: an age in steps and a number that rises from one arrival to the next; and whether the
    /// position lasts.
    queue: BTreeMap<(std::cmp::Reverse<u32>, usize), (Party, bool)>,
    arrivals: usize,
    listening: BTreeSet<u32>,
    /// What was published: a grant and its receiver, or that the lock is free.
    told: Vec<Option<Party>>,
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
        Self { held: HeldBy::Free, queue, arrivals: 0, listening, told: Vec::new() }
    }

    fn leave(&mut self, party: Party) {
        self.queue.retain(|_, (other, _)| *other != party);
    }

    fn enqueue(&mut self, party: Party, age: u32) {
        // What has a place keeps it, unless it has waited for longer than it said.
        if self.queue.iter().any(|((its, _), place)| *place == (party, true) && its.0 >= age) {
            return;
        }
        self.leave(party);
        self.arrivals += 1;
        self.queue.insert((std::cmp::Reverse(age), self.arrivals), (party, true));
    }

    /// Leases the free lock to the first of the queue that listens, unless `asks` comes before it.
    fn pass_on(&mut self, asks: Option<Party>) -> bool {
        let mut over = Vec::new();
        let mut first = None;
        for (party, lasts) in self.queue.values() {
            if Some(*party) == asks {
                break;
            }
            match lasts {
                false => over.push(*party),
                true if self.listening.contains(&party.0) => {
                    first = Some(*party);
                    break;
                }
                true => {}
            }
        }
        over.into_iter().chain(first).for_each(|party| self.leave(party));
        let Some(first) = first else { return false };
        self.held = HeldBy::By(first);
        self.told.push(Some(first));
        true
    }

    fn run(&mut self, command: &Command) -> Answer {
        match *command {
            Command::Ask(party, age) => self.ask(party, age),
            Command::Release(party, next) => Answer::Release(self.release(party, next)),
            Command::Force => {
                let was_held = std::mem::replace(&mut self.held, HeldBy::Free) != HeldBy::Free;
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
                self.held = HeldBy::Free;
                Answer::Nothing
            }
            Command::EndPosition(party) => {
                self.queue
                    .values_mut()
                    .filter(|(other, _)| *other == party)
                    .for_each(|place| place.1 = false);
                Answer::Nothing
            }
            Command::Stranger => {
                if self.held == HeldBy::Free {
                    self.held = HeldBy::ByStranger;
                }
                Answer::Nothing
            }
        }
    }

    fn ask(&mut self, party: Party, age: Option<u32>) -> Answer {
        if self.held == HeldBy::By(party) {
            return Answer::Acquired;
        }
        if let Some(age) = age {
            self.enqueue(party, age);
        }
        if self.held == HeldBy::Free {
            // A position of its own that is over is none.
            let lasts = self.queue.values().any(|place| *place == (party, true));
            if !lasts {
                self.leave(party);
            }
            if !self.pass_on(lasts.then_some(party)) {
                self.leave(party);
                self.held = HeldBy::By(party);
                return Answer::Acquired;
            }
        }
        Answer::Held
    }

    fn release(&mut self, party: Party, next: Option<(Party, u32)>) -> ReleaseOutcome {
        self.leave(party);
        let next = next.filter(|(next, _)| *next != party);
        if let Some((next, _)) = next
            && self.held == HeldBy::By(next)
        {
            return ReleaseOutcome::GrantedToNext { last_token: 0 };
        }
        if self.held != HeldBy::By(party) {
            let is_queued = next.is_some_and(|(next, _)| self.queue.values().any(|place| place.0 == next));
            if self.held == HeldBy::Free {
                self.pass_on(None);
            }
            return if is_queued { RELEASED } else { ReleaseOutcome::NotHeld };
        }
        self.held = HeldBy::Free;
        if let Some((next, age)) = next {
            self.enqueue(next, age);
        }
        if self.pass_on(next.map(|(next, _)| next)) {
            return RELEASED;
        }
        match next {
            Some((next, _)) => {
                self.leave(next);
                self.held = HeldBy::By(next);
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
        assert!(!acts || self.held != HeldBy::Free || !heard, "a free lock is waited for");
        let holds = |party: &Party| self.held == HeldBy::By(*party);
        assert!(!self.queue.values().any(|(party, _)| holds(party)), "a holder waits for what it has");
    }
}

fn lease_id((client, number): Party) -> LeaseId {
    id(client, number)
}

/// Carries a command out for real.
async fn run(stage: &mut Stage, command: &Command) -> Answer {
    match command {
        Command::Ask(party, age) => match stage.ask(&lease_id(*party), age.map(position)).await.unwrap() {
            AcquireOutcome::Acquired { .. } => Answer::Acquired,
            AcquireOutcome::Held { left } => {
                assert!(left <= LEASE);
                Answer::Held
            }
        },
        Command::Release(party, then) => {
            let then: Option<NextWaiter> =
                then.filter(|(next, _)| next != party).map(|(party, age)| next(&lease_id(party), age, 0));
            Answer::Release(stage.release(&lease_id(*party), then.as_ref()).await)
        }
        Command::Force => Answer::Forced(stage.force_release().await),
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
        Command::EndPosition(party) => {
            stage.end_position(&lease_id(*party)).await;
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
        HeldBy::Free => assert!(fields.is_empty(), "{fields:?}"),
        HeldBy::By(party) => assert_eq!(stage.holder().await, Some(lease_id(party))),
        HeldBy::ByStranger => assert_eq!(fields.len(), 1, "{fields:?}"),
    }
    let expected: Vec<_> = model.queue.values().map(|(party, _)| lease_id(*party)).collect();
    assert_eq!(stage.queue().await, expected);
    let told = std::mem::take(&mut model.told).into_iter().map(|told| match told {
        Some(party) => lease_id(party).to_string(),
        None => "0".to_owned(),
    });
    assert_eq!(stage.heard().await, told.collect::<Vec<_>>());
    let _ = stage.keys().await;
}

fn command() -> impl Strategy<Value = Command> {
    let party = (1..=CLIENTS, 1..=IDS);
    let age = 0..4_u32;
    let ask = (party.clone(), proptest::option::weighted(0.8, age.clone()));
    let release = (party.clone(), proptest::option::of((party.clone(), age)));
    prop_oneof![
        8 => ask.prop_map(|(party, age)| Command::Ask(party, age)),
        8 => release.prop_map(|(party, next)| Command::Release(party, next)),
        1 => Just(Command::Force),
        3 => (1..=CLIENTS, any::<bool>()).prop_map(|(client, listens)| Command::Listen(client, listens)),
        1 => Just(Command::Expire),
        1 => party.prop_map(Command::EndPosition),
        1 => Just(Command::Stranger),
    ]
}

#[test]
fn scripts_do_what_a_sequential_queue_does() {
    play("fair", command(), async |name, commands| {
        let (mut stage, mut model) = (Stage::fair(name).await, Model::new());
        for command in commands {
            let expected = model.run(command);
            assert_eq!(run(&mut stage, command).await, expected, "{command:?}");
            compare(&mut stage, &mut model).await;
            model.check(command);
        }
        // All leave, and nothing is left.
        for (client, number) in parties(IDS) {
            stage.release(&id(client, number), None).await;
        }
        stage.force_release().await;
        stage.end().await;
    });
}

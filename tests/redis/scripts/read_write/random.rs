//! Random commands, and what must always be so.

use std::collections::{BTreeMap, BTreeSet};

use latchwork::LeaseId;
use latchwork::backend::ReleaseOutcome;
use proptest::prelude::*;

use super::super::random::{CLIENTS, Party, parties, play};
use super::super::stage::{LEASE, STEP, Stage, id, lease_key, next, position};
use latchwork_conformance::commands::{Commands as _, left};

/// So many writers of each client, and as many readers.
const IDS: u64 = 2;

#[derive(Clone, Debug)]
enum Command {
    /// With a position, at an age, or without.
    Write(Party, Option<u32>),
    /// The same; and whether the writer of the same number is named.
    Read(Party, Option<u32>, bool),
    /// With a next writer at an age.
    ReleaseWrite(Party, Option<(Party, u32)>),
    ReleaseRead(Party),
    Force,
    Listen(u32, bool),
    /// A reader's lease is over; or the lock's.
    ReaderDies(Party),
    Expire,
    /// A writer was silent for too long.
    EndPosition(Party),
}

fn writer((client, number): Party) -> LeaseId {
    id(client, number)
}

fn reader((client, number): Party) -> LeaseId {
    id(client, number + 100)
}

/// What is on the server.
#[derive(Debug)]
struct Seen {
    writer: Option<LeaseId>,
    readers: BTreeSet<String>,
    /// It is there, in whichever way.
    exists: bool,
    /// Positions that last, of clients that listen: since when they wait (us).
    writers: Vec<(String, f64)>,
    /// The readers that were let in, and have not come.
    invited: BTreeSet<String>,
    phase: f64,
    now: f64,
}

/// What follows from the answers.
#[derive(Default)]
struct Model {
    writer: Option<LeaseId>,
    readers: BTreeSet<String>,
    /// The waiters that were refused, and whether each was told to ask again since.
    waiting: BTreeMap<String, (f64, bool)>,
    listening: BTreeSet<u32>,
    releases: usize,
}

impl Model {
    fn look_again(&mut self) {
        self.waiting.values_mut().for_each(|(_, told)| *told = true);
    }

    fn wrote(&mut self, id: &LeaseId) {
        assert!(
            self.writer.as_ref().is_none_or(|writer| writer == id),
            "{id} writes beside {:?}",
            self.writer
        );
        let beside = self.writer.is_some();
        assert!(beside || self.readers.is_empty(), "{id} writes beside {:?}", self.readers);
        self.writer = Some(id.clone());
    }

    async fn see(&self, stage: &mut Stage) -> Seen {
        let (writer, readers) = (stage.writer().await, stage.readers().await);
        let (seconds, micros): (f64, f64) = stage.run("TIME").await;
        let now = seconds * 1e6 + micros;
        let listens =
            |id: &LeaseId| self.listening.contains(&u32::from_str_radix(&id.client_id()[..8], 16).unwrap());
        let mut writers = stage.positions().await;
        writers.retain(|(id, _, until)| *until > now && listens(id));
        let writers = writers.into_iter().map(|(id, since, _)| (id.to_string(), since)).collect();
        let mut turn: BTreeMap<String, f64> =
            stage.run("ZRANGE {}:latchwork:{{}}:rw_turn 0 -1 WITHSCORES").await;
        let phase = turn.remove("phase").unwrap_or_default();
        let readers = readers.into_iter().map(|reader| reader.id.unwrap().to_string()).collect();
        let exists = stage.run::<usize>("EXISTS {}").await == 1;
        let invited = turn.into_keys().collect();
        Seen { writer: writer.map(|it| it.id.unwrap()), readers, exists, writers, invited, phase, now }
    }

    /// Since when one waits that has waited for so many steps.
    fn since(seen: &Seen, age: Option<u32>) -> f64 {
        age.map_or(f64::INFINITY, |age| seen.now - f64::from(age) * STEP.as_micros() as f64)
    }

    async fn run(&mut self, stage: &mut Stage, command: &Command) {
        let before = self.see(stage).await;
        match command {
            Command::Write(party, age) => self.write(stage, &before, &writer(*party), *age).await,
            Command::Read(party, age, under) => self.read(stage, &before, *party, *age, *under).await,
            Command::ReleaseWrite(party, then) => {
                self.releases += 1;
                let id = writer(*party);
                let then =
                    then.filter(|(other, _)| other != party).map(|(party, age)| next(&writer(party), age, 0));
                let held = self.writer.as_ref() == Some(&id);
                let done = stage.release(&id, then.as_ref()).await;
                if held {
                    assert_ne!(done, ReleaseOutcome::NotHeld);
                    self.writer = None;
                }
                if let ReleaseOutcome::GrantedToNext { .. } = done {
                    self.wrote(&then.unwrap().id);
                }
            }
            Command::ReleaseRead(party) => {
                self.releases += 1;
                let id = reader(*party);
                let did_read = stage.release_read(&id).await;
                assert_eq!(did_read, self.readers.remove(&id.to_string()));
                self.waiting.remove(&id.to_string());
            }
            Command::Force => {
                let had = stage.force_release().await;
                assert_eq!(had, self.writer.is_some() || !self.readers.is_empty());
                (self.writer, self.readers) = (None, BTreeSet::new());
            }
            Command::Listen(client, listens) => {
                if *listens {
                    stage.listen(&id(*client, 0)).await;
                    self.listening.insert(*client);
                } else {
                    stage.listen_no_more(&id(*client, 0)).await;
                    self.listening.remove(client);
                }
                self.look_again();
            }
            Command::ReaderDies(party) => {
                let () = stage.run(&format!("DEL {}", lease_key(&reader(*party).to_string(), 1))).await;
                self.readers.remove(&reader(*party).to_string());
                self.look_again();
            }
            Command::Expire => {
                let () = stage.run("DEL {}").await;
                (self.writer, self.readers) = (None, BTreeSet::new());
                self.look_again();
            }
            Command::EndPosition(party) => {
                stage.end_position(&writer(*party)).await;
                self.look_again();
            }
        }
        let told = stage.heard().await;
        for said in &told {
            match said.parse() {
                Ok(granted) => self.wrote(&granted),
                Err(_) => self.look_again(),
            }
        }
        let after = self.see(stage).await;
        self.check(stage, command, &after, !told.is_empty()).await;
    }

    async fn write(&mut self, stage: &mut Stage, before: &Seen, id: &LeaseId, age: Option<u32>) {
        let text = id.to_string();
        let own = before.writers.iter().find(|(other, _)| *other == text);
        // A client that has waited for longer than its position says is believed: the clock was set back.
        let began = own.map_or(f64::INFINITY, |(_, began)| *began).min(Self::since(before, age));
        let first = before.writers.iter().all(|(other, since)| *other == text || *since > began);
        let lasts = stage.kept_until(id).await;
        let is_in_the_queue = lasts.is_some_and(|until| until as f64 > before.now);
        let taken =
            self.writer.is_some() || !self.readers.is_empty() || !before.invited.is_empty() && before.exists;
        let gets_it = left(stage.ask(id, age.map(position)).await.unwrap()).is_none();
        // Of one that is in the queue, and does not listen, it is not known here since when it waits.
        if !is_in_the_queue || own.is_some() {
            assert_eq!(gets_it, self.writer.as_ref() == Some(id) || !taken && first, "{before:?}");
        }
        if gets_it {
            self.wrote(id);
        }
    }

    async fn read(&mut self, stage: &mut Stage, before: &Seen, party: Party, age: Option<u32>, under: bool) {
        let (id, named) = (reader(party), writer(party));
        let (text, began) = (id.to_string(), Self::since(before, age));
        let beside = under && self.writer.as_ref() == Some(&named);
        let is_first = before.writers.iter().all(|(_, since)| *since > began)
            || before.invited.contains(&text)
            || began <= before.phase;
        let may = self.readers.contains(&text) || beside || self.writer.is_none() && is_first;
        let request = stage.redis.request(&id, LEASE).position(age.map(position));
        let request = request.under(under.then(|| named.clone()));
        let gets_it = left(stage.ask_to_read(&request).await.unwrap()).is_none();
        assert_eq!(gets_it, may, "{before:?}");
        if gets_it {
            self.readers.insert(text.clone());
            self.waiting.remove(&text);
        } else if age.is_some() {
            self.waiting.insert(text, (began, false));
        }
    }

    /// What must always be so.
    async fn check(&self, stage: &mut Stage, command: &Command, after: &Seen, told: bool) {
        assert_eq!((&after.writer, &after.readers), (&self.writer, &self.readers));
        if let Some(writer) = &self.writer {
            assert!(
                !after.writers.iter().any(|(id, _)| *id == writer.to_string()),
                "it waits for what it has"
            );
            let foreign = |reader: &&String| reader[..36] != writer.client_id();
            assert_eq!(self.readers.iter().find(foreign), None, "beside {writer}");
        }
        let unsaid = matches!(
            command,
            Command::Listen(..) | Command::ReaderDies(_) | Command::Expire | Command::EndPosition(_)
        );
        let is_held = self.writer.is_some() || !self.readers.is_empty() || !after.invited.is_empty();
        assert!(
            unsaid
                || is_held
                || after.writers.is_empty()
                || told
                || !matches!(command, Command::ReleaseWrite(..) | Command::ReleaseRead(_)),
            "a free lock is waited for: {after:?}"
        );
        let is_read = matches!(command, Command::Read(..));
        assert!(unsaid || is_held || after.writers.is_empty() || self.releases >= 31 || is_read, "{after:?}");
        for (reader, (began, told)) in &self.waiting {
            let blocked = self.writer.is_some() || after.writers.iter().any(|(_, since)| since <= began);
            assert!(*told || blocked, "{reader} was told nothing: {after:?}");
        }
        let _ = stage.keys().await;
    }
}

fn command() -> impl Strategy<Value = Command> {
    let party = (1..=CLIENTS, 1..=IDS);
    let age = 0..4_u32;
    let asks = proptest::option::weighted(0.8, age.clone());
    let release = (party.clone(), proptest::option::of((party.clone(), age)));
    prop_oneof![
        6 => (party.clone(), asks.clone()).prop_map(|(party, age)| Command::Write(party, age)),
        8 => (party.clone(), asks, any::<bool>())
            .prop_map(|(party, age, under)| Command::Read(party, age, under)),
        6 => release.prop_map(|(party, next)| Command::ReleaseWrite(party, next)),
        8 => party.clone().prop_map(Command::ReleaseRead),
        1 => Just(Command::Force),
        3 => (1..=CLIENTS, any::<bool>()).prop_map(|(client, listens)| Command::Listen(client, listens)),
        1 => party.clone().prop_map(Command::ReaderDies),
        1 => Just(Command::Expire),
        1 => party.prop_map(Command::EndPosition),
    ]
}

#[test]
fn no_writer_is_beside_a_foreign_reader_and_no_waiter_is_forgotten() {
    play("rw", command(), async |name, commands| {
        let (mut stage, mut model) = (Stage::read_write(name).await, Model::default());
        for command in commands {
            model.run(&mut stage, command).await;
        }
        // All leave, and nothing is left, but what ends by itself.
        for party in parties(IDS) {
            stage.release(&writer(party), None).await;
            stage.release_read(&reader(party)).await;
        }
        stage.force_release().await;
        let left = stage.keys().await;
        let ends = |key: &String| key.ends_with(":rw_turn") || key.contains("rwlock_timeout");
        assert!(left.iter().all(ends), "{left:?}");
    });
}

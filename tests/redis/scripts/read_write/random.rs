//! Random commands, and what must always be so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};

use latchwork::LeaseId;
use latchwork::backend::{Backend as _, Mode, ReleaseOutcome};
use proptest::prelude::*;

use super::stage::{LEASE, STEP, Stage, id, lease_key, next, position};
use latchwork_conformance::commands::{Commands as _, left};

const CLIENTS: u32 = 3;
/// So many writers of each client, and as many readers.
const IDS: u64 = 2;

#[derive(Clone, Debug)]
enum Command {
    /// With a position, at an age, or without.
    Write(Who, Option<u32>),
    /// The same; and whether the writer of the same number is named.
    Read(Who, Option<u32>, bool),
    /// With a next writer at an age.
    ReleaseWrite(Who, Option<(Who, u32)>),
    ReleaseRead(Who),
    Force,
    Listen(u32, bool),
    /// A reader's lease is over; or the lock's.
    ReaderDies(Who),
    Expire,
    /// A writer was silent for too long.
    EndPosition(Who),
}

/// A client, and a number of it.
type Who = (u32, u64);

fn writer((client, number): Who) -> LeaseId {
    id(client, number)
}

fn reader((client, number): Who) -> LeaseId {
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
        let kept: BTreeMap<String, f64> = stage.run("ZRANGE {}:latchwork:{{}}:rw_kept 0 -1 WITHSCORES").await;
        let (seconds, micros): (f64, f64) = stage.run("TIME").await;
        let now = seconds * 1e6 + micros;
        let queue: Vec<(String, f64)> = stage.run("ZRANGE {}:latchwork:{{}}:rw_queue 0 -1 WITHSCORES").await;
        assert_eq!(queue.len(), kept.len(), "each position is kept until some time");
        let listens = |id: &String| self.listening.contains(&u32::from_str_radix(&id[..8], 16).unwrap());
        let writers = queue.into_iter().filter(|(id, _)| kept[id] > now && listens(id)).collect();
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
            Command::Write(who, age) => self.write(stage, &before, &writer(*who), *age).await,
            Command::Read(who, age, under) => self.read(stage, &before, *who, *age, *under).await,
            Command::ReleaseWrite(who, then) => {
                self.releases += 1;
                let id = writer(*who);
                let then = then.filter(|(other, _)| other != who).map(|(who, age)| next(&writer(who), age));
                let held = self.writer.as_ref() == Some(&id);
                let done = stage.redis.release(Mode::Write, &stage.name, &id, then.as_ref()).await.unwrap();
                if held {
                    assert_ne!(done, ReleaseOutcome::NotHeld);
                    self.writer = None;
                }
                if let ReleaseOutcome::GrantedToNext { .. } = done {
                    self.wrote(&then.unwrap().id);
                }
            }
            Command::ReleaseRead(who) => {
                self.releases += 1;
                let id = reader(*who);
                let did_read = stage.release_read(&id).await;
                assert_eq!(did_read, self.readers.remove(&id.to_string()));
                self.waiting.remove(&id.to_string());
            }
            Command::Force => {
                let had = stage.redis.force_release(Mode::Write, &stage.name).await.unwrap();
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
            Command::ReaderDies(who) => {
                let () = stage.run(&format!("DEL {}", lease_key(&reader(*who).to_string(), 1))).await;
                self.readers.remove(&reader(*who).to_string());
                self.look_again();
            }
            Command::Expire => {
                let () = stage.run("DEL {}").await;
                (self.writer, self.readers) = (None, BTreeSet::new());
                self.look_again();
            }
            Command::EndPosition(who) => {
                let () =
                    stage.run(&format!("ZADD {{}}:latchwork:{{{{}}}}:rw_kept XX 1 {}", writer(*who))).await;
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
        let began = own.map_or(Self::since(before, age), |(_, began)| *began);
        let first = before.writers.iter().all(|(other, since)| *other == text || *since > began);
        let lasts: Option<f64> = stage.run(&format!("ZSCORE {{}}:latchwork:{{{{}}}}:rw_kept {text}")).await;
        let is_in_the_queue = lasts.is_some_and(|until| until > before.now);
        let taken =
            self.writer.is_some() || !self.readers.is_empty() || !before.invited.is_empty() && before.exists;
        let gets_it = left(stage.ask_to_write(id, age.map(position)).await.unwrap()).is_none();
        // Of one that is in the queue, and does not listen, it is not known here since when it waits.
        if !is_in_the_queue || own.is_some() {
            assert_eq!(gets_it, self.writer.as_ref() == Some(id) || !taken && first, "{before:?}");
        }
        if gets_it {
            self.wrote(id);
        }
    }

    async fn read(&mut self, stage: &mut Stage, before: &Seen, who: Who, age: Option<u32>, under: bool) {
        let (id, named) = (reader(who), writer(who));
        let (text, began) = (id.to_string(), Self::since(before, age));
        let beside = under && self.writer.as_ref() == Some(&named);
        let is_first = before.writers.iter().all(|(_, since)| *since > began)
            || before.invited.contains(&text)
            || began <= before.phase;
        let may = self.readers.contains(&text) || beside || self.writer.is_none() && is_first;
        let request = stage.redis.request(&id, LEASE).position(age.map(position));
        let request = request.under(under.then(|| named.clone()));
        let gets_it = left(stage.ask(&request).await.unwrap()).is_none();
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

fn commands() -> impl Strategy<Value = Vec<Command>> {
    let who = (1..=CLIENTS, 1..=IDS);
    let age = 0..4_u32;
    let asks = proptest::option::weighted(0.8, age.clone());
    let release = (who.clone(), proptest::option::of((who.clone(), age)));
    let command = prop_oneof![
        6 => (who.clone(), asks.clone()).prop_map(|(who, age)| Command::Write(who, age)),
        8 => (who.clone(), asks, any::<bool>()).prop_map(|(who, age, under)| Command::Read(who, age, under)),
        6 => release.prop_map(|(who, next)| Command::ReleaseWrite(who, next)),
        8 => who.clone().prop_map(Command::ReleaseRead),
        1 => Just(Command::Force),
        3 => (1..=CLIENTS, any::<bool>()).prop_map(|(client, listens)| Command::Listen(client, listens)),
        1 => who.clone().prop_map(Command::ReaderDies),
        1 => Just(Command::Expire),
        1 => who.prop_map(Command::EndPosition),
    ];
    proptest::collection::vec(command, 1..40)
}

#[test]
fn nobody_writes_beside_a_strangers_read_and_nobody_who_waits_is_forgotten() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() };
    proptest!(config, |(commands in commands())| {
        // Ordering: Relaxed, only numbers that differ.
        let name = format!("rw:random:{}", RUNS.fetch_add(1, Ordering::Relaxed));
        runtime.block_on(async {
            let (mut stage, mut model) = (Stage::set(&name).await, Model::default());
            for command in &commands {
                model.run(&mut stage, command).await;
            }
            // All leave, and nothing is left, but what ends by itself.
            for client in 1..=CLIENTS {
                for number in 1..=IDS {
                    stage.release_write(&writer((client, number))).await;
                    stage.release_read(&reader((client, number))).await;
                }
            }
            stage.redis.force_release(Mode::Write, &stage.name).await.unwrap();
            let left = stage.keys().await;
            let ends = |key: &String| key.ends_with(":rw_turn") || key.contains("rwlock_timeout");
            assert!(left.iter().all(ends), "{left:?}");
        });
    });
}

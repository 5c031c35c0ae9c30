//! [`Stage`]: a server, the members, and a faulty network between the server and each member.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use defects::twin::Twin;
use fleet::clock::now;
use fleet::{Member, java, journal, this_program};
use latchwork::blocking::LockClient;
use latchwork_testkit::ChaosProxy;

use crate::checks::Checked;
use crate::history::{Event, FaultKind, History, Journal, Life};
use crate::names::{LEASE, LONG_LEASE, LockKind, lock_name};
use crate::probe;
use crate::server::{AT_ALL, SOON, Server};

pub(crate) const MEMBERS: usize = 4;
/// Watchdog's timeout of Redisson's members: a dead holder costs as much; no standstill is as long.
const WATCHDOG: Duration = Duration::from_secs(10);
/// The name of a member's playing thread.
const PLAYS: &str = "stage";

pub(crate) struct Stage {
    pub(crate) server: Server,
    pub(crate) proxies: Vec<ChaosProxy>,
    /// Bypasses the proxies, so that a forced release succeeds at once or never.
    forcer: LockClient,
    pub(crate) journal: Arc<Journal>,
    directory: PathBuf,
    redisson: Option<PathBuf>,
    twin: Option<Twin>,
    pub(crate) members: Vec<Member>,
    /// All members so far: the index, the journal, and the time of the kill.
    lives: Vec<(usize, PathBuf, Option<u64>)>,
}

impl Stage {
    /// Starts everything. With `redisson`, the directory of its classes, every other member is Redisson's.
    pub(crate) fn set(
        directory: PathBuf,
        redisson: Option<PathBuf>,
        twin: Option<Twin>,
        seed: &mut fastrand::Rng,
    ) -> Self {
        let server = Server::start();
        let (port, url) = (server.server.port(), server.server.url());
        let journal = Arc::new(Journal::create(&directory.join("stage.jsonl")));
        probe::start(port, &journal);
        let mut stage = Self {
            server,
            proxies: (0..MEMBERS).map(|_| ChaosProxy::start(port)).collect(),
            forcer: LockClient::connect(&url).expect("the server is up"),
            journal,
            directory,
            redisson,
            twin,
            members: Vec::new(),
            lives: Vec::new(),
        };
        for place in 0..MEMBERS {
            let member = stage.start(place, seed.u64(..));
            stage.members.push(member);
        }
        // A JVM takes a second to start.
        for member in &stage.members {
            member.greeting(AT_ALL).expect("the server is up");
        }
        stage
    }

    pub(crate) fn is_beside_redisson(&self) -> bool {
        self.redisson.is_some()
    }

    pub(crate) fn is_redisson(&self, place: usize) -> bool {
        self.is_beside_redisson() && place % 2 == 1
    }

    fn start(&mut self, place: usize, seed: u64) -> Member {
        let journal = self.directory.join(format!("member-{place}-life-{}.jsonl", self.lives.len()));
        let mut command = match &self.redisson {
            Some(directory) if self.is_redisson(place) => java(directory, "Player"),
            _ => {
                let twin = self.twin.and_then(|twin| twin.to_possible_value());
                let twin = twin.iter().flat_map(|twin| ["--twin", twin.get_name()]);
                this_program(["member"].into_iter().chain(twin))
            }
        };
        let watchdog = if self.is_redisson(place) { WATCHDOG } else { LEASE };
        command.args([self.proxies[place].url(), watchdog.as_millis().to_string()]);
        let member = Member::start(command);
        let beside = if self.is_beside_redisson() { "beside" } else { "alone" };
        let _ = member.begin(PLAYS, &format!("play {} {seed} {place} {beside}", journal.display()));
        self.lives.push((place, journal, None));
        member
    }

    /// Records the end of a fault that began at `since`.
    pub(crate) fn over(&self, kind: FaultKind, member: Option<usize>, since: u64) {
        self.journal.tell(Event::Fault { kind, member, since });
    }

    pub(crate) fn force(&self, name: u32) {
        let since = now();
        let on_server = lock_name(name);
        let lock = match LockKind::of(name) {
            LockKind::Plain => self.forcer.get_lock(&on_server),
            LockKind::Fair => self.forcer.get_fair_lock(&on_server),
            LockKind::ReadWrite => {
                self.forcer.get_read_write_lock(&on_server).map(|both| both.write().clone())
            }
        };
        let _ = lock.expect("the name is valid").force_unlock();
        self.journal.tell(Event::Forced { name, since });
    }

    pub(crate) fn replace(&mut self, place: usize, seed: u64) {
        let life = self.lives.iter().rposition(|life| life.0 == place).expect("it was started");
        let killed = now();
        self.members[place].kill();
        // Events after `killed` are not judged; earlier ones count.
        self.lives[life].2 = Some(killed);
        self.members[place] = self.start(place, seed);
    }

    pub(crate) fn look_after_members(&self) -> Checked {
        for (place, member) in self.members.iter().enumerate() {
            if let Some(status) = member.ended() {
                let what = format!("the member in place {place} ended by itself ({status})");
                self.journal.tell(Event::Stuck { what: what.clone() });
                return Err(what);
            }
        }
        Ok(())
    }

    // === The end ===

    /// Lets all members end, and records what is left. No fault is open.
    pub(crate) fn end(mut self) -> Result<History, String> {
        for member in &self.members {
            let _ = member.begin("all", "stop");
        }
        for member in &self.members {
            // A member that does not become quiet says so in its journal, or has no last line there.
            let _ = member.asked(PLAYS).within(AT_ALL);
        }
        // A forgotten hold lasts for a lease.
        let limit = if self.is_beside_redisson() { AT_ALL } else { LONG_LEASE + SOON };
        self.journal.tell(Event::Remains { what: self.server.remains("", limit, |_| false) });
        self.members.clear();
        let mut history =
            History { stage: journal::read(&self.directory.join("stage.jsonl"))?, ..History::default() };
        for (member, path, killed) in &self.lives {
            // A member that was killed early may have no journal.
            let mut records: Vec<crate::history::Record> =
                if path.exists() { journal::read(path)? } else { Vec::new() };
            records.retain(|record| killed.is_none_or(|killed| record.at <= killed));
            let (member, killed, is_redisson) = (*member, *killed, self.is_redisson(*member));
            history.lives.push(Life { member, is_redisson, records, killed });
        }
        Ok(history.since_its_start())
    }
}

//! [`Reference`]: the simulation's state machine of `Backend`, with the clock of a program.

#[path = "../../../../checks/simulation/src/store/model/state/mod.rs"]
#[allow(dead_code, reason = "some of it is for the simulation alone")]
mod state;

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use latchwork::backend::{Message, Mode, QueuePosition};
use latchwork::{LeaseId, LockKind};

pub(super) use self::state::kind as kind_of;
#[allow(unused_imports, reason = "some of it is for the scripts alone")]
pub(super) use self::state::line::{Line, Place};
pub(super) use self::state::{Name, News, Step, Time, nanos};
#[allow(unused_imports, reason = "some of it is for the scripts alone")]
pub(super) use self::state::{READERS_TURN, left};
use super::program::{Call, HOLDER, Id, WAITER};

/// Tolerance of leases: the server counts in milliseconds, and rounds up.
pub(super) const ROUNDS: Duration = Duration::from_millis(3);
/// As `ROUNDS`, of permits: the scripts round ends up to one of ten a second.
const ROUNDS_OF_PERMITS: Duration = Duration::from_millis(105);
/// Waiters this close together may be in either order: a command contains the time waited so far.
pub(super) const BLUR: Duration = Duration::from_millis(200);

/// The last of several tokens issued together, in the reference and on the server.
struct Tokens {
    expected: u64,
    got: u64,
    are_shared: bool,
}

pub(super) struct Reference {
    pub(super) name: Name,
    pub(super) now: Time,
    pub(super) kind: LockKind,
    pub(super) listening: BTreeSet<String>,
    /// Messages of commands on this kind of lock since the last look.
    pub(super) published: Vec<String>,
    tokens: Vec<Tokens>,
    /// True if positions and releases follow the scripts, and not the store in memory.
    scripted: bool,
}

pub(super) fn same<T: Debug + PartialEq>(what: &str, got: T, expected: T) -> Result<(), String> {
    if got == expected { Ok(()) } else { Err(format!("{what}: {got:?} instead of {expected:?}")) }
}

impl Reference {
    pub(super) fn new(kind: LockKind, now: Time, scripted: bool) -> Self {
        let (name, listening) = (Name::default(), BTreeSet::new());
        Self { name, now, kind, listening, published: Vec::new(), tokens: Vec::new(), scripted }
    }

    /// Tolerance of leases.
    pub(super) fn rounds(&self) -> Duration {
        if self.kind == LockKind::Semaphore { ROUNDS_OF_PERMITS } else { ROUNDS }
    }

    pub(super) fn news<T>(&mut self, mode: Mode, step: impl FnOnce(&mut Step<'_>) -> T) -> (T, News) {
        let Self { name, listening, scripted, .. } = self;
        let told = |id: &LeaseId| listening.contains(&*id.client_id());
        let mut all = Step {
            now: self.now,
            name,
            told: &told,
            calls_waiters: *scripted,
            takes_earlier: *scripted,
            releases_the_dead: !*scripted && mode == Mode::Plain,
            scripted_turns: true,
            token_gap: 0,
            news: News::default(),
        };
        let answer = step(&mut all);
        (answer, all.news)
    }

    /// Runs a command and publishes as the scripts do.
    pub(super) fn step<T>(&mut self, mode: Mode, step: impl FnOnce(&mut Step<'_>) -> T) -> T {
        let (was_held, was_written) = (self.is_held_fairly(), self.name.held(self.now).is_some());
        let (answer, News { granted, called, message }) = self.news(mode, step);
        let is_free = was_held && !self.is_held_fairly();
        // Plain and fair locks share a channel.
        let is_apart = |kind| matches!(kind, LockKind::ReadWrite | LockKind::Semaphore);
        if self.kind != kind_of(mode) && (is_apart(self.kind) || is_apart(kind_of(mode))) {
            return answer;
        }
        self.published.extend(granted.iter().map(LeaseId::to_string));
        // Redisson clients wait for a fair lock by this message, and to read without a place in any queue.
        let was_written = was_written && self.kind == LockKind::ReadWrite;
        self.published.extend(match message {
            Some(Message::Unlock) if !was_written => Some("0".to_owned()),
            Some(_) => Some("1".to_owned()),
            None => (is_free && mode == Mode::Fair).then(|| "0".to_owned()),
        });
        self.published.extend(called.iter().map(|id| format!("called {}", id.client_id())));
        answer
    }

    /// The call with its placeholders replaced by ids.
    pub(super) fn resolved(&self, call: Call) -> Call {
        let of = |mode: Mode, id: Id| {
            let name = &self.name;
            let line = match mode {
                Mode::Read => &name.waiting_readers,
                Mode::Write => &name.writers,
                Mode::Permits => &name.permits,
                _ => &name.fair,
            };
            let number = usize::from(id.1) - 1;
            let found = match (id.0, mode) {
                (HOLDER, Mode::Read | Mode::Permits) => {
                    name.readers.get(number).or(name.readers.first()).map(|term| &term.id)
                }
                (HOLDER, _) => name.lease.as_ref().map(|term| &term.id),
                (WAITER, _) => line.kept(Time::MIN).nth(number).map(|place| &place.id),
                _ => return id,
            };
            let found = found.map(Id::of_lease).filter(|id| Id::numbers(mode).contains(&id.1));
            found.unwrap_or(Id(1, *Id::numbers(mode).start()))
        };
        match call {
            Call::Acquire(mode, id, asks) => Call::Acquire(mode, of(mode, id), asks),
            Call::ReadBeside(id, asks) if id.0 == HOLDER => {
                Call::ReadBeside(of(Mode::Write, id).reader(), asks)
            }
            Call::Release(mode, id, next) => {
                Call::Release(mode, of(mode, id), next.map(|(id, asks)| (of(mode, id), asks)))
            }
            Call::Renew(mode, id, lease) => Call::Renew(mode, of(mode, id), lease),
            call => call,
        }
    }

    /// End of the holder's lease, or of all readers' leases, if near.
    pub(super) fn short_end(&self) -> Option<Time> {
        let Self { name, now, .. } = self;
        let short = *now..*now + nanos(Duration::from_secs(31));
        let of_holder = name.lease.iter().map(|term| term.until).find(|end| short.contains(end));
        let of_readers = name.readers.iter().map(|term| term.until).filter(|end| short.contains(end));
        of_holder.or_else(|| of_readers.max())
    }

    fn is_held_fairly(&self) -> bool {
        self.name.held_as(self.now) == Some(LockKind::Fair)
    }

    fn places(&self, now: Time) -> impl Iterator<Item = &Place> {
        let name = &self.name;
        [&name.plain, &name.fair, &name.permits, &name.writers, &name.waiting_readers]
            .into_iter()
            .flat_map(move |line| line.kept(now))
    }

    /// Advances the time to `then`, or to a moment after `then`, away from all ends.
    pub(super) fn pass_until(&mut self, then: Time) {
        self.now = then;
        let rounds = nanos(self.rounds());
        let is_near = |end: Time| end.abs_diff(self.now) <= rounds.unsigned_abs();
        let leases = self.name.lease.iter().chain(&self.name.readers).map(|term| term.until);
        let places = self.places(then - rounds).map(|place| place.until);
        let turn = self.name.let_in.map(|at| at + READERS_TURN);
        if leases.chain(places).chain(turn).any(is_near) {
            self.pass_until(then + rounds);
        }
    }

    /// A position away from all others.
    pub(super) fn position(&self, id: &LeaseId, (waited, kept): (u64, u64)) -> QueuePosition {
        let since = self.now - nanos(Duration::from_millis(waited));
        let others = self.places(Time::MIN).filter(|place| place.id != *id).map(|place| place.since);
        let is_near = |at: Time| at.abs_diff(since) <= BLUR.as_nanos() as u64;
        match others.chain(self.name.let_in).any(is_near) {
            true => self.position(id, (waited + BLUR.as_millis() as u64, kept)),
            false => {
                QueuePosition { waited: Duration::from_millis(waited), kept: Duration::from_millis(kept) }
            }
        }
    }

    /// Checks that the server's tokens are in the reference's order; the server may skip some.
    pub(super) fn token(&mut self, mode: Mode, count: u64, got: u64, expected: u64) -> Result<(), String> {
        if count == 0 {
            return if got == 0 { Ok(()) } else { Err(format!("token {got} instead of none")) };
        }
        let are_shared = mode == Mode::Read;
        let count = if are_shared { 1 } else { count };
        for earlier in &self.tokens {
            let is_in_order = match (earlier.expected == expected, earlier.are_shared && are_shared) {
                (true, _) => earlier.got == got,
                // A writer without a token may have come in between.
                (false, true) => earlier.got <= got,
                (false, false) => earlier.got + count <= got,
            };
            if !is_in_order {
                return Err(format!(
                    "token {got} after {}, {expected} after {}",
                    earlier.got, earlier.expected
                ));
            }
        }
        self.tokens.push(Tokens { expected, got, are_shared });
        Ok(())
    }
}

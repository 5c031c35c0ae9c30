//! [`Reference`]: the simulation's state machine of what `Backend` promises, by the clock of a program.

#[path = "../../../../checks/simulation/src/store/model/state/mod.rs"]
#[allow(dead_code, reason = "some of it is for the simulation alone")]
mod state;

use std::collections::BTreeSet;
use std::time::Duration;

use latchwork::backend::{Message, Mode, QueuePosition};
use latchwork::{LeaseId, LockKind};

pub(super) use self::state::kind as kind_of;
pub(super) use self::state::line::{Line, Place};
pub(super) use self::state::{Name, READERS_TURN, Time, left, nanos};
use self::state::{News, Step};

/// By how much leases may differ, as the server counts them in milliseconds, and rounds them up.
pub(super) const ROUNDS: Duration = Duration::from_millis(3);
/// Waiters that begin so near to each other may be in either order: for how long each has waited is said when
/// its command is sent.
pub(super) const BLUR: Duration = Duration::from_millis(200);

/// Tokens that were handed out together: the last of them in the reference and on the server.
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
    /// What was published by commands on this kind of lock since the last look.
    pub(super) published: Vec<String>,
    tokens: Vec<Tokens>,
}

impl Reference {
    pub(super) fn new(kind: LockKind, now: Time) -> Self {
        let (name, listening) = (Name::default(), BTreeSet::new());
        Self { name, now, kind, listening, published: Vec::new(), tokens: Vec::new() }
    }

    /// A command, which the store tells as the scripts do.
    pub(super) fn step<T>(&mut self, mode: Mode, step: impl FnOnce(&mut Step<'_>) -> T) -> T {
        let (was_held, was_written) = (self.is_held_fairly(), self.name.held(self.now).is_some());
        let Self { name, listening, .. } = self;
        let told = |id: &LeaseId| listening.contains(&*id.client_id());
        let mut all = Step {
            now: self.now,
            name,
            told: &told,
            takes_earlier: true,
            releases_the_dead: false,
            scripted_turns: true,
            token_gap: 0,
            news: News::default(),
        };
        let answer = step(&mut all);
        let News { granted, message } = all.news;
        let is_free = was_held && !self.is_held_fairly();
        // Plain and fair locks have the same channel.
        if (self.kind == LockKind::ReadWrite) != (kind_of(mode) == LockKind::ReadWrite) {
            return answer;
        }
        self.published.extend(granted.map(|id| id.to_string()));
        // Clients of Redisson wait for a fair lock by its message, and to read without being in any queue.
        let was_written = was_written && self.kind == LockKind::ReadWrite;
        self.published.extend(match message {
            Some(Message::Unlock) if !was_written => Some("0".to_owned()),
            Some(_) => Some("1".to_owned()),
            None => (is_free && mode == Mode::Fair).then(|| "0".to_owned()),
        });
        answer
    }

    fn is_held_fairly(&self) -> bool {
        self.name.held_as(self.now) == Some(LockKind::Fair)
    }

    fn places(&self, now: Time) -> impl Iterator<Item = &Place> {
        let name = &self.name;
        [&name.fair, &name.writers, &name.waiting_readers].into_iter().flat_map(move |line| line.kept(now))
    }

    /// The time goes on to then, or to a moment after, which is not near the end of anything.
    pub(super) fn pass_until(&mut self, then: Time) {
        self.now = then;
        let rounds = nanos(ROUNDS);
        let is_near = |end: Time| end.abs_diff(self.now) <= rounds.unsigned_abs();
        let leases = self.name.lease.iter().chain(&self.name.readers).map(|term| term.until);
        let places = self.places(then - rounds).map(|place| place.until);
        let turn = self.name.let_in.map(|at| at + READERS_TURN);
        if leases.chain(places).chain(turn).any(is_near) {
            self.pass_until(then + rounds);
        }
    }

    /// A position that is not near to another.
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

    /// That the server's tokens are in the order of the reference's, of which the server may skip some.
    pub(super) fn token(&mut self, mode: Mode, count: u64, got: u64, expected: u64) -> Result<(), String> {
        if count == 0 {
            return if got == 0 { Ok(()) } else { Err(format!("token {got} instead of none")) };
        }
        let are_shared = mode == Mode::Read;
        let count = if are_shared { 1 } else { count };
        for earlier in &self.tokens {
            let is_in_order = match (earlier.expected == expected, earlier.are_shared && are_shared) {
                (true, _) => earlier.got == got,
                // A writer without a token may have been between them.
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

//! Random programs run against the store in memory and against the reference used for the scripts
//! (`tests/redis/scripts/differential`). Only programs advance the clock, so answers, holders and messages
//! must match exactly.
//!
//! Outside of the programs, and tested by hand (`read_write`): the readers told of a writer that leaves the
//! queue, a turn that outlasts many other names, leases that end during their renewal, and commands for
//! another kind of lock on a free name.

#[path = "../redis/scripts/differential/program.rs"]
#[allow(dead_code, reason = "some of it is for the scripts alone")]
mod program;
#[path = "../redis/scripts/differential/reference.rs"]
#[allow(dead_code, reason = "some of it is for the scripts alone")]
mod reference;

use std::time::Duration;

use latchwork::backend::{Backend as _, LockName, Message, Mode, NextWaiter, QueuePosition, ReleaseOutcome};
use latchwork::local::{Local, LocalTransport, OtherKind, ThreadRuntime};
use latchwork::subscription::Subscription;
use latchwork::{Holder, LeaseId, LockKind};
use latchwork_conformance::commands::{Commands as _, keys};

use self::program::{Asks, Call, Id};
use self::reference::{READERS_TURN, Reference, Step, Time, kind_of, nanos, same};
use crate::polled::ready;

fn id(client: u32, number: u64) -> LeaseId {
    format!("{client:08x}-0795-4907-87fd-6c719a6b4586:{number}").parse().unwrap()
}

fn millis(time: u64) -> Duration {
    Duration::from_millis(time)
}

struct Both {
    clock: ThreadRuntime,
    local: Local,
    name: LockName,
    reference: Reference,
    listening: Vec<(u8, [Subscription<LocalTransport>; 2])>,
    _hears: [Subscription<LocalTransport>; 2],
}

impl Both {
    fn new(kind: LockKind) -> Self {
        let (clock, name) = (ThreadRuntime::paused(), LockName::new("prices").unwrap());
        let local = Local::with_runtime(clock.clone());
        let hears = [Mode::Plain, Mode::Read]
            .map(|mode| local.registry().subscribe(&local.channels(mode, &name, "").own));
        let reference = Reference::new(kind, nanos(millis(1_700_000_000_000)), false);
        Self { clock, local, name, reference, listening: Vec::new(), _hears: hears }
    }

    fn play(&mut self, calls: &[Call]) -> Result<(), String> {
        for (at, call) in calls.iter().enumerate() {
            let call = self.reference.resolved(*call);
            let done = self.call(call).and_then(|()| self.compare());
            done.map_err(|difference| format!("after call {at}, {call:?}: {difference}"))?;
        }
        Ok(())
    }

    fn pass_until(&mut self, then: Time) {
        self.clock.advance(Duration::from_nanos((then - self.reference.now).unsigned_abs()));
        self.reference.now = then;
    }

    /// Returns the numbers of `Unlock` and `ReadUnlock` messages so far.
    fn said(&self) -> (u64, u64) {
        let stats = self.local.registry().stats();
        (stats.unlock_messages, stats.read_unlock_messages)
    }

    /// Runs one command on the reference, after ending expired leases of a read-write lock.
    fn step<T>(&mut self, mode: Mode, step: impl FnOnce(&mut Step<'_>) -> T) -> (T, Option<Message>) {
        let is_queued = kind_of(mode) == LockKind::ReadWrite;
        let (answer, news) = self.reference.news(mode, |all| {
            let is_it = is_queued && all.name.kind == LockKind::ReadWrite;
            if is_it {
                settle(all);
            }
            let was_written = is_it && all.name.lease.is_some();
            let answer = step(all);
            if was_written && all.name.lease.is_none() && all.news.message == Some(Message::ReadUnlock) {
                // Starts a turn even without a waiting reader, if the writer's owner reads on.
                all.name.let_in = Some(all.now);
            }
            answer
        });
        (answer, news.message)
    }

    fn call(&mut self, call: Call) -> Result<(), String> {
        let (local, name) = (self.local.clone(), self.name.clone());
        let before = self.said();
        let found = |error: OtherKind| error.found();
        // A free name that is used as another kind makes the store in memory forget the first kind's waiters
        // and the readers' token.
        let Reference { name: expected, now, kind, .. } = &self.reference;
        let waits = [&expected.fair, &expected.writers, &expected.waiting_readers]
            .into_iter()
            .any(|line| line.kept(*now).next().is_some());
        let forgets = match call {
            Call::Release(mode, ..) | Call::Force(mode) => kind_of(mode) != *kind,
            Call::Acquire(mode, ..) => kind_of(mode) != *kind && waits,
            _ => false,
        };
        if forgets && expected.held_as(*now).is_none() {
            return Ok(());
        }
        let (mode, message) = match call {
            Call::Acquire(mode, id, asks) => (mode, self.acquire(mode, id, asks, None)?),
            Call::ReadBeside(id, asks) => {
                (Mode::Read, self.acquire(Mode::Read, id, asks, Some(id.writer().lease()))?)
            }
            Call::Release(mode, id, next) => {
                let id = id.lease();
                let next = next.map(|(id, asks)| NextWaiter {
                    position: position(mode, asks.place.unwrap_or((0, 10_000))),
                    id: id.lease(),
                    lease: millis(asks.lease),
                    tokens: asks.tokens,
                });
                let held = self.reference.name.held(self.reference.now).map(|term| term.id.clone());
                let is_held = |of: &LeaseId| *of == id || held.as_ref() == Some(of);
                let next = next.filter(|next| !is_held(&next.id) && !self.is_late(mode, &next.id));
                let (expected, message) = self.step(mode, |step| step.release(mode, &id, next.as_ref()));
                let got = ready(local.release(mode, &name, &id, next.as_ref())).map_err(found);
                let anonymous = |outcome| match outcome {
                    ReleaseOutcome::Released { .. } => ReleaseOutcome::Released { receivers: 0 },
                    outcome => outcome,
                };
                same("release", got.map(anonymous), Ok(expected))?;
                (mode, message)
            }
            Call::Renew(mode, id, lease) => {
                let (id, lease) = (id.lease(), millis(lease));
                let is_it = self.reference.name.kind == kind_of(mode);
                let expected = is_it && self.reference.news(mode, |step| step.renew(mode, &id, lease)).0;
                let got = ready(local.renew(mode, &keys(&name, &[&id]), lease)).map_err(found);
                same("renewal", got, Ok(vec![expected]))?;
                (mode, None)
            }
            Call::Force(mode) => {
                let (expected, message) = self.step(mode, |step| step.force_release(mode));
                same("forced release", ready(local.force_release(mode, &name)).map_err(found), expected)?;
                (mode, message)
            }
            Call::Listen(client, listens) => {
                let of = id(client.into(), 1).client_id().to_string();
                self.listening.retain(|(other, _)| *other != client);
                self.reference.listening.remove(&of);
                if listens {
                    let channels = [Mode::Fair, Mode::Write].map(|mode| local.channels(mode, &name, &of).own);
                    self.listening.push((client, channels.map(|own| local.registry().subscribe(&own))));
                    self.reference.listening.insert(of);
                }
                return Ok(());
            }
            Call::Pass(time) => {
                self.pass_until(self.reference.now + nanos(millis(time)));
                return Ok(());
            }
            Call::Outlast => {
                if let Some(end) = self.reference.short_end() {
                    self.pass_until(end);
                }
                return Ok(());
            }
            Call::Repeat | Call::SetBack(_) => return Ok(()),
        };
        let expected = match message.filter(|_| mode != Mode::Fair) {
            None => (before.0, before.1),
            Some(Message::Unlock) => (before.0 + 1, before.1),
            Some(_) => (before.0, before.1 + 1),
        };
        // The store in memory may also tell readers that did not wait for this writer.
        let is_extra = matches!(call, Call::Release(Mode::Write, ..)) && message.is_none();
        match is_extra && self.said() == (before.0, before.1 + 1) {
            true => Ok(()),
            false => same("messages so far", self.said(), expected),
        }
    }

    /// True if the id's position has expired but may still be stored: a returning id may keep the position.
    fn is_late(&self, mode: Mode, id: &LeaseId) -> bool {
        let Reference { name, now, .. } = &self.reference;
        let line = match mode {
            Mode::Read => &name.waiting_readers,
            Mode::Write => &name.writers,
            _ => &name.fair,
        };
        line.kept(Time::MIN).any(|place| place.id == *id && place.until <= *now)
    }

    fn acquire(
        &mut self,
        mode: Mode,
        id: Id,
        asks: Asks,
        under: Option<LeaseId>,
    ) -> Result<Option<Message>, String> {
        let Reference { name, now, .. } = &self.reference;
        // Readers without a reported wait arrive now; readers let in by a turn have waited since before.
        let place = asks.place.or((mode == Mode::Read).then_some((0, 0)));
        let since = *now - nanos(millis(place.map_or(0, |(waited, _)| waited)));
        let is_invited = mode == Mode::Read && name.to_come.kept(*now).any(|place| place.id == id.lease());
        let is_unsure = is_invited && name.let_in.is_some_and(|at| at < since);
        if is_unsure || self.is_late(mode, &id.lease()) {
            return Ok(None);
        }
        let place = place.map(|place| position(mode, place));
        let request = self.local.request(&id.lease(), millis(asks.lease)).position(place);
        let request = request.tokens(asks.tokens).under(under);
        let (expected, message) = self.step(mode, |step| step.acquire(mode, &request));
        let got = ready(self.local.acquire(mode, &self.name, &request));
        same("answer", got.map_err(|error| error.found()), expected)?;
        Ok(message)
    }

    fn compare(&self) -> Result<(), String> {
        let Reference { name, now, .. } = &self.reference;
        for mode in [Mode::Plain, Mode::Fair, Mode::Write, Mode::Read] {
            // Asked as an exclusive lock, the store reports a read-write holder as another kind.
            if name.kind == LockKind::ReadWrite && kind_of(mode) != name.kind {
                continue;
            }
            let all = |held: Vec<Holder>| held.into_iter().map(|it| (it.id, it.left)).collect::<Vec<_>>();
            let got = ready(self.local.holders(mode, &self.name)).map_err(|error| error.found());
            same(&format!("{mode} holders"), got.map(all), name.holders(mode, *now).map(all))?;
        }
        Ok(())
    }
}

/// Ends expired leases and turns. Unlike in the scripts, an expired writer's lease starts a readers' turn.
fn settle(step: &mut Step<'_>) {
    let (now, name) = (step.now, &mut *step.name);
    if name.let_in.is_some_and(|at| at + READERS_TURN <= now) {
        name.to_come.clear();
    }
    name.readers.retain(|reader| now < reader.until);
    if name.lease.take_if(|writer| writer.until <= now).is_some() {
        let waiting = std::mem::take(&mut name.waiting_readers);
        if waiting.kept(now).next().is_some() {
            name.to_come = waiting;
        } else if name.readers.is_empty() {
            return;
        }
        (name.let_in, step.news.message) = (Some(now), Some(Message::ReadUnlock));
    }
}

/// Returns a position that for readers outlasts their turn.
fn position(mode: Mode, (waited, kept): (u64, u64)) -> QueuePosition {
    let kept = if mode == Mode::Read { 600_000 } else { kept };
    QueuePosition { waited: millis(waited), kept: millis(kept) }
}

fn check(kind: LockKind, programs: u32, modes: &'static [Mode]) {
    program::check(programs, modes, |_, calls| Both::new(kind).play(calls));
}

#[test]
fn fair_locks_do_what_the_reference_does() {
    check(LockKind::Fair, 500, &[Mode::Fair]);
}

#[test]
fn read_write_locks_do_what_the_reference_does() {
    check(LockKind::ReadWrite, 1500, &[Mode::Write, Mode::Read]);
}

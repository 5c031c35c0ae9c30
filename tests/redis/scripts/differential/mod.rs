//! Random programs, run against the scripts on a real server and against the reference, the simulation's
//! state machine of a store. After each call the test compares the answer, the holders, the waiters and the
//! messages. The server's clock moves only by the program's steps. A difference is shrunk, and printed as a
//! list of calls.
//!
//! Tested by hand instead: locks of other clients, evicted keys, leases without an end, crowds larger than a
//! batch, locks left to strangers, ends exact to the millisecond, the removal time of expired entries, and
//! refusals.

mod program;
mod reference;

use std::sync::LazyLock;
use std::time::{Duration, Instant};

use futures_util::future::{join, join_all};
use latchwork::backend::{AcquireOutcome, Backend as _, Failure, Mode, NextWaiter, Permits, ReleaseOutcome};
use latchwork::redis::{Error, Redis};
use latchwork::{LeaseId, LockKind};
use latchwork_conformance::commands::{Commands as _, keys};
use latchwork_testkit::{RedisServer, ServerClock};

use self::program::{Asks, CAPACITY, Call, Id};
use self::reference::{BLUR, Line, Place, READERS_TURN, ROUNDS, Reference, Time, kind_of, left, nanos, same};
use super::stage::{Stage, id};

const BEGINNING: Duration = Duration::from_secs(1_700_000_000);
/// Longer than all leases and positions.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

/// Returns the queue and its positions in order; the waiting readers and the readers whose turn it is, each
/// with a time; the life of the lock, and its fields. Then publishes a fence.
const LOOK: &str = "
local queue, readers, turn, positions, lock = unpack(KEYS)
local function timed(key)
    local all = redis.call('zrange', key, 0, -1, 'withscores')
    for at = 2, #all, 2 do
        all[at] = string.format('%.0f', all[at])
    end
    return all
end
redis.call('publish', ARGV[1], 'over')
local queued, kept = timed(queue), {}
for at = 1, #queued, 2 do
    kept[#kept + 1] = redis.call('hget', positions, queued[at]) or 'none'
end
if redis.call('hlen', positions) ~= #kept then
    kept[1] = 'one of more'
end
local page = redis.pcall('hkeys', lock)
page[#page + 1] = tostring(redis.call('pttl', lock))
return { queued, timed(readers), timed(turn), kept, page }
";

/// An id and its times.
type At<const N: usize> = (LeaseId, [Time; N]);

/// The unexpired waiters on the server.
struct Waiting {
    /// Start of the wait, and end of the position.
    queue: Vec<At<2>>,
    /// End of each position.
    readers: Vec<At<1>>,
    /// Time of the readers' last turn, and the readers still to come, expired ones included.
    turn: Option<(Time, Vec<At<1>>)>,
    /// All ids, fields and members, expired ones included.
    names: Vec<String>,
    lasts: i64,
}

struct Both<'a> {
    stage: Stage,
    clock: &'a ServerClock,
    reference: Reference,
    /// True if the server had expired positions at the last look.
    keeps_dead: bool,
    /// All ids in the queue at the last look, expired ones included.
    queued: Vec<String>,
    /// Time of the readers' last turn. If all leave, the lock may last as long as the turn.
    let_in: Option<Time>,
    passed: Option<(Mode, Id, (Id, Asks))>,
}

fn millis(time: u64) -> Duration {
    Duration::from_millis(time)
}

fn by_id<T>(mut places: Vec<(LeaseId, T)>) -> Vec<(LeaseId, T)> {
    places.sort_by_key(|(id, _)| id.to_string());
    places
}

/// Checks for the same ids in the same order, at nearly the same times.
fn same_times<const N: usize>(what: &str, got: Vec<At<N>>, expected: Vec<At<N>>) -> Result<(), String> {
    let is_near = |(got, expected): (&Time, &Time)| got.abs_diff(*expected) <= ROUNDS.as_nanos() as u64;
    let are_near =
        |(got, expected): (&At<N>, &At<N>)| got.0 == expected.0 && got.1.iter().zip(&expected.1).all(is_near);
    match got.len() == expected.len() && got.iter().zip(&expected).all(are_near) {
        true => Ok(()),
        false => same(what, got, expected),
    }
}

impl Both<'_> {
    async fn play(&mut self, calls: &[Call]) -> Result<(), String> {
        let kind = self.reference.kind;
        let modes: &[Mode] = match kind {
            LockKind::ReadWrite => &[Mode::Write, Mode::Read],
            LockKind::Plain => &[Mode::Plain],
            LockKind::Semaphore => &[Mode::Permits],
            _ => &[Mode::Fair],
        };
        let all = modes.iter().flat_map(|mode| Id::all(*mode).map(|id| Call::Release(*mode, id, None)));
        let mut is_busy = false;
        for (at, call) in calls.iter().copied().chain(all).enumerate() {
            self.pass(1).await;
            let call = match (call, self.passed) {
                (Call::Repeat, Some((mode, id, next))) => Call::Release(mode, id, Some(next)),
                (call, _) => self.reference.resolved(call),
            };
            let leaves = self.leaves(&call);
            let began = Instant::now();
            let done = self.call(call).await;
            let took = nanos(began.elapsed());
            // In a slow call waiters may swap places, and a repeated command has another answer: a busy
            // machine.
            is_busy |= took >= nanos(BLUR) || self.stage.redis.reconnects() > 0;
            let done = match done {
                Ok(()) if at < calls.len() => self.compare(&call, leaves, took).await,
                done => done,
            };
            match done {
                Err(_) if is_busy => return Ok(()),
                done => done.map_err(|difference| format!("after call {at}, {call:?}: {difference}"))?,
            }
        }
        self.clock.stop_at((BEGINNING + FOR_EVER).as_micros() as u64);
        same("left for ever", self.stage.keys().await, Vec::new())
    }

    async fn pass(&mut self, time: u64) {
        self.reference.pass_until(self.reference.now + nanos(millis(time)));
        self.set_clock();
    }

    fn set_clock(&self) {
        self.clock.stop_at(self.reference.now.unsigned_abs() / 1000);
    }

    /// For a writer leaving the queue, with readers possibly behind it: true if its position lasts, and true
    /// if no live listener stands before it. Readers hear of each such writer, even if they have to wait on;
    /// the server may have forgotten an expired position.
    fn leaves(&self, call: &Call) -> Option<(bool, bool)> {
        let Call::Release(Mode::Write, id, _) = call else {
            return None;
        };
        let (id, Reference { name, now, listening, .. }) = (id.lease(), &self.reference);
        name.waiting_readers.kept(*now).next()?;
        let all = || name.writers.kept(Time::MIN);
        let place = all().find(|place| place.id == id)?;
        let told = |it: &Place| it.id != id && *now < it.until && listening.contains(&*it.id.client_id());
        Some((*now < place.until, all().find(|it| told(it)).is_none_or(|it| place.since < it.since)))
    }

    async fn call(&mut self, call: Call) -> Result<(), String> {
        match call {
            Call::Acquire(mode, id, asks) => self.acquire(mode, id, asks, None).await,
            Call::ReadBeside(id, asks) => self.acquire(Mode::Read, id, asks, Some(id.writer().lease())).await,
            Call::Release(mode, id, next) => self.release(mode, id, next).await,
            Call::Repeat => Ok(()),
            Call::Outlast => {
                if let Some(end) = self.reference.short_end() {
                    self.reference.pass_until(end + nanos(millis(5)));
                    self.set_clock();
                }
                Ok(())
            }
            Call::Renew(mode, id, lease) => {
                // No number is of a lock and of permits.
                if (mode == Mode::Permits) != (self.reference.name.kind == LockKind::Semaphore) {
                    return Ok(());
                }
                let (id, lease) = (id.lease(), millis(lease));
                let expected = self.reference.step(mode, |step| step.renew(mode, &id, lease));
                let Stage { redis, name, .. } = &self.stage;
                let got = redis.renew(mode, &keys(name, &[&id]), lease).await;
                same("renewal", got.map_err(|error| error.to_string())?, vec![expected])
            }
            Call::Force(mode) => self.force(mode).await,
            Call::Listen(client, listens) => {
                let id = id(client.into(), 1);
                match listens {
                    true => self.reference.listening.insert(id.client_id()),
                    false => self.reference.listening.remove(&id.client_id()),
                };
                match listens {
                    true => self.stage.listen(&id).await,
                    false => self.stage.listen_no_more(&id).await,
                }
                Ok(())
            }
            Call::Pass(time) => {
                self.pass(time).await;
                Ok(())
            }
            Call::SetBack(time) => {
                // An expired entry still on the server might become valid again.
                let Reference { name, now, .. } = &mut self.reference;
                if !self.keeps_dead
                    && name.fair.kept(Time::MIN).all(|place| *now < place.until)
                    && !matches!(name.kind, LockKind::ReadWrite | LockKind::Semaphore)
                {
                    name.lease.take_if(|term| term.until <= *now);
                    let then = *now - nanos(millis(time));
                    self.reference.pass_until(then);
                    self.set_clock();
                }
                Ok(())
            }
        }
    }

    /// True if the name may be closed to other kinds for longer than any id holds the lock.
    async fn is_kept_from(&self, mode: Mode) -> bool {
        let Reference { name, kind, now, .. } = &self.reference;
        let is_other = match kind {
            LockKind::ReadWrite => matches!(mode, Mode::Plain | Mode::Fair),
            LockKind::Semaphore => mode != Mode::Permits,
            _ => false,
        };
        is_other
            && name.held_until(*now).is_none()
            && self.stage.redis.holders(Mode::Fair, &self.stage.name).await.is_ok_and(|held| !held.is_empty())
    }

    async fn acquire(
        &mut self,
        mode: Mode,
        id: Id,
        asks: Asks,
        under: Option<LeaseId>,
    ) -> Result<(), String> {
        if self.is_kept_from(mode).await {
            return Ok(());
        }
        let permits = Permits { count: id.permits(), capacity: CAPACITY };
        let id = id.lease();
        let position = asks.place.map(|place| self.reference.position(&id, place));
        let Stage { redis, name, .. } = &self.stage;
        let request =
            redis.request(&id, millis(asks.lease)).position(position).tokens(asks.tokens).under(under);
        let request = request.yields(asks.yields).permits((mode == Mode::Permits).then_some(permits));
        let expected = self.reference.step(mode, |step| step.acquire(mode, &request));
        match (redis.acquire(mode, name, &request).await, expected) {
            (
                Ok(AcquireOutcome::Acquired { last_token }),
                Ok(AcquireOutcome::Acquired { last_token: expected }),
            ) => self.reference.token(mode, asks.tokens, last_token, expected),
            (Ok(AcquireOutcome::Held { left: got }), Ok(AcquireOutcome::Held { left: expected })) => {
                // "At the latest": a script may look at a single lease, or at the readers' turn only.
                let rounds = self.reference.rounds();
                let is_near = |left: Duration, expected| left.abs_diff(expected) <= rounds;
                let Reference { name, now, .. } = &self.reference;
                let leases = name.lease.iter().chain(&name.readers).map(|term| term.until);
                let turns = [self.let_in, name.let_in].into_iter().flatten().map(|at| at + READERS_TURN);
                let mut ends = leases.chain(turns);
                // The client adds the real time of the call to a waiter's.
                let is_again = mode == Mode::Plain && position.is_some() && got.abs_diff(expected) < BLUR;
                // The first end that the server knows may be of a lease given back since.
                let is_early = mode == Mode::Permits && got <= expected;
                match is_early
                    || is_near(got, expected)
                    || is_again
                    || ends.any(|end| is_near(got, left(end, *now)))
                {
                    true => Ok(()),
                    false => same("left", got, expected),
                }
            }
            (got, expected) => same("answer", other_kind(redis, got)?, expected),
        }
    }

    async fn release(&mut self, mode: Mode, id: Id, next: Option<(Id, Asks)>) -> Result<(), String> {
        self.passed = next.map(|next| (mode, id, next)).or(self.passed);
        let id = id.lease();
        let next = next.map(|(id, asks)| NextWaiter {
            position: self.reference.position(&id.lease(), asks.place.unwrap_or((0, 10_000))),
            id: id.lease(),
            lease: millis(asks.lease),
            tokens: asks.tokens,
        });
        let next = next.filter(|next| next.id != id);
        let Reference { name, now, kind, .. } = &self.reference;
        let holder = name.held(*now).filter(|_| name.kind == *kind).map(|term| term.id.clone());
        if let Some(next) = next.as_ref().filter(|next| holder.as_ref() == Some(&next.id)) {
            return self.repeat(mode, &id, next).await;
        }
        let queued = next.as_ref().is_some_and(|next| self.queued.contains(&next.id.to_string()));
        let expected = self.reference.step(mode, |step| step.release(mode, &id, next.as_ref()));
        let Stage { redis, name, .. } = &self.stage;
        let got = redis.release(mode, name, &id, next.as_ref()).await.map_err(|error| error.to_string())?;
        match (got, expected) {
            (
                ReleaseOutcome::GrantedToNext { last_token: got },
                ReleaseOutcome::GrantedToNext { last_token: expected },
            ) => self.reference.token(mode, next.map_or(0, |next| next.tokens), got, expected),
            (ReleaseOutcome::Released { .. }, ReleaseOutcome::Released { .. }) => Ok(()),
            // The release already ran.
            (ReleaseOutcome::Released { .. }, ReleaseOutcome::NotHeld) if queued => Ok(()),
            (got, expected) => same("release", got, expected),
        }
    }

    /// A release whose next waiter already holds the lock: the first sending ran.
    async fn repeat(&mut self, mode: Mode, id: &LeaseId, next: &NextWaiter) -> Result<(), String> {
        let expected = self.reference.step(mode, |step| {
            let line = if mode == Mode::Fair { &mut step.name.fair } else { &mut step.name.writers };
            line.remove(id);
            step.renew(mode, &next.id, next.lease);
            if next.tokens > 0 {
                step.name.shared_token = None;
            }
            step.reserve(next.tokens)
        });
        let Stage { redis, name, .. } = &self.stage;
        match redis.release(mode, name, id, Some(next)).await.map_err(|error| error.to_string())? {
            ReleaseOutcome::GrantedToNext { last_token } => {
                self.reference.token(mode, next.tokens, last_token, expected)
            }
            other => Err(format!("release that ran before: {other:?}")),
        }
    }

    async fn force(&mut self, mode: Mode) -> Result<(), String> {
        let Reference { name, now, .. } = &self.reference;
        // The rest of a turn differs.
        let is_turn = !name.readers.is_empty() && name.turn_until(*now).is_some();
        if is_turn || self.is_kept_from(mode).await {
            return Ok(());
        }
        let expected = self.reference.step(mode, |step| step.force_release(mode));
        let Stage { redis, name, .. } = &self.stage;
        same("forced release", other_kind(redis, redis.force_release(mode, name).await)?, expected)
    }

    async fn look(&mut self) -> Result<(Vec<String>, Waiting), String> {
        let Stage { name, mode, raw, .. } = &mut self.stage;
        let key = |what: &str| format!("{name}:latchwork:{{{name}}}:{}_{what}", Stage::prefix(*mode));
        let mut look = redis::cmd("EVAL");
        let keys = ["queue", "readers", "turn", "positions"].map(key);
        look.arg(LOOK).arg(5).arg(&keys).arg(name.as_str()).arg(format!("fence:{name}"));
        let [queue, readers, turn, until, mut fields]: [Vec<String>; 5] =
            look.query_async(raw).await.unwrap();
        let micros = |text: &str| text[..text.len().min(16)].parse::<Time>();
        let until: Vec<Time> = match until.iter().map(|text| micros(text)).collect() {
            Ok(until) => until,
            Err(_) => return Err(format!("positions {until:?} of the queue {queue:?}")),
        };
        let micros = |text: &str| micros(text).unwrap();
        let now = self.reference.now / 1000;
        let ids = |all: &[String]| -> Vec<At<1>> {
            let all = all.chunks(2).filter(|it| it[0] != "phase");
            all.map(|it| (it[0].parse().unwrap(), [micros(&it[1]) * 1000])).collect()
        };
        self.keeps_dead = until.iter().any(|until| *until <= now);
        let began = turn.chunks(2).find(|it| it[0] == "phase").map(|it| micros(&it[1]) * 1000);
        let lasts = fields.pop().map_or(0, |left| left.parse().unwrap());
        let members = readers.iter().chain(&turn).step_by(2);
        self.queued = queue.iter().step_by(2).cloned().collect();
        let names = members.chain(&self.queued).chain(&fields).cloned().collect();
        let turn = began.map(|began| (began, ids(&turn)));
        let queue = queue.chunks(2).zip(until).filter(|(_, until)| now < *until);
        let queue = queue
            .map(|(it, until)| (it[0].parse().unwrap(), [micros(&it[1]) * 1000, until * 1000]))
            .collect();
        let mut readers = ids(&readers);
        readers.retain(|(_, [until])| now * 1000 < *until);
        let waiting = Waiting { queue, readers, turn, names, lasts };
        Ok((self.stage.heard_before_fence().await, waiting))
    }

    /// `took`: the real time of the call, in ns; the client adds its part to a waiter's waiting time.
    async fn compare(&mut self, call: &Call, leaves: Option<(bool, bool)>, took: Time) -> Result<(), String> {
        let modes: &[Mode] = match self.reference.kind {
            // All others round a semaphore's end up.
            LockKind::Semaphore => &[Mode::Permits],
            _ => &[Mode::Fair, Mode::Write, Mode::Read],
        };
        let (redis, of) = (self.stage.redis.clone(), self.stage.name.clone());
        let held = join_all(modes.iter().map(|mode| redis.holders(*mode, &of)));
        let (held, looked) = join(held, self.look()).await;
        let (heard, waiting) = looked?;
        let rounds = self.reference.rounds();
        let is_near = |left: Duration, expected| left.abs_diff(expected) <= rounds;
        let Reference { name, now, kind, published, .. } = &mut self.reference;
        let published = std::mem::take(published);
        let may = leaves.is_some_and(|(_, first)| first) && published.is_empty() && heard == ["1"]
            || leaves.is_some_and(|(lasts, _)| !lasts) && published == ["1"] && heard.is_empty();
        // A reader that removes the last of the dead may free the lock, and publishes a message.
        let frees = matches!(call, Call::Release(Mode::Read, ..)) && name.held_as(*now).is_none();
        let says_free = published.is_empty() && matches!(&heard[..], [said] if said == "0" || said == "1");
        if !(may || frees && says_free) {
            same("messages", heard, published)?;
        }
        // A leaving id leaves nothing behind, and the lock outlasts its remaining holders.
        if let Call::Release(mode, id, _) = call
            && kind_of(*mode) == *kind
            && name.held_as(*now).is_none_or(|held| held == *kind)
        {
            let id = id.lease().to_string();
            same("left of it", waiting.names.iter().find(|it| **it == id), None)?;
        }
        let lasts = nanos(millis(waiting.lasts.max(0).unsigned_abs()));
        if let Some(until) = name.held_until(*now).filter(|until| *now + lasts + nanos(ROUNDS) < *until) {
            return Err(format!("the lock lasts {lasts} ns, and a lease {} ns", until - *now));
        }
        for (mode, held) in modes.iter().copied().zip(held) {
            if mode == Mode::Fair && *kind == LockKind::ReadWrite && name.kind == *kind {
                // See `is_kept_from`.
                continue;
            }
            let all = |held: Vec<latchwork::Holder>| {
                let mut all: Vec<_> = held
                    .into_iter()
                    .map(|it| ((it.id.map(|id| id.to_string()), it.permits), it.left))
                    .collect();
                all.sort();
                all
            };
            let (got, expected) = (other_kind(&redis, held)?.map(all), name.holders(mode, *now).map(all));
            let are_near = match (&got, &expected) {
                (Ok(got), Ok(expected)) if got.len() == expected.len() => got
                    .iter()
                    .zip(expected)
                    .all(|(got, expected)| got.0 == expected.0 && is_near(got.1, expected.1)),
                _ => got == expected,
            };
            if !are_near {
                same(&format!("{mode} holders"), got, expected)?;
            }
        }
        if *kind == LockKind::Plain {
            let called: Vec<String> = name.plain.kept(*now).map(|place| place.id.to_string()).collect();
            return same("clients that wait", self.stage.called().await, called);
        }
        let line = match kind {
            LockKind::ReadWrite => &mut name.writers,
            LockKind::Semaphore => &mut name.permits,
            _ => &mut name.fair,
        };
        for (id, [since, _]) in &waiting.queue {
            let place = line.kept(*now).find(|place| place.id == *id).cloned();
            if let Some(place) = place
                && (place.since - took..place.since).contains(since)
            {
                line.put(Place { since: *since, ..place }, *now, true);
            }
        }
        let places = line.kept(*now).map(|place| (place.id.clone(), [place.since, place.until]));
        same_times("queue", waiting.queue, places.collect())?;
        // The server gradually forgets expired readers.
        let is_over = |place: &&Place| place.until <= *now && !waiting.names.contains(&place.id.to_string());
        let over: Vec<_> = name.waiting_readers.kept(Time::MIN).filter(is_over).cloned().collect();
        over.iter().for_each(|place| drop(name.waiting_readers.remove(&place.id)));
        let places = name.waiting_readers.kept(*now).map(|place| (place.id.clone(), [place.until]));
        same_times("readers that wait", by_id(waiting.readers), by_id(places.collect()))?;
        self.let_in = name.let_in.or(self.let_in);
        let (at, invited) = waiting.turn.unzip();
        let invited = invited.unwrap_or_default();
        if name.turn_until(*now).is_some() {
            same("turn", at, name.let_in)?;
            let invited = invited.into_iter().filter(|(_, [until])| *now < *until).collect();
            let expected = name.to_come.kept(*now).map(|place| (place.id.clone(), [place.until]));
            return same_times("readers whose turn it is", by_id(invited), by_id(expected.collect()));
        }
        // The server may forget an ended turn at any time.
        (name.let_in, name.to_come) = (at, Line::default());
        for (id, [until]) in invited {
            name.to_come.put(Place::until(&id, until, *now), *now, true);
        }
        Ok(())
    }
}

/// Returns the kind of the lock found instead.
fn other_kind<T>(redis: &Redis, got: Result<T, Error>) -> Result<Result<T, LockKind>, String> {
    got.map_or_else(
        |error| match redis.failure(&error) {
            Failure::OtherKind(kind) => Ok(Err(kind)),
            _ => Err(error.to_string()),
        },
        |got| Ok(Ok(got)),
    )
}

fn check(kind: LockKind, programs: u32, modes: &'static [Mode]) {
    static SERVERS: LazyLock<[(RedisServer, ServerClock); 4]> =
        LazyLock::new(|| std::array::from_fn(|_| ServerClock::start_server()));
    let (server, clock) = &SERVERS[kind as usize];
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    program::check(programs, modes, |number, calls| {
        runtime.block_on(async {
            clock.stop_at(BEGINNING.as_micros() as u64);
            let queued = match kind {
                LockKind::ReadWrite => Mode::Write,
                LockKind::Plain => Mode::Plain,
                LockKind::Semaphore => Mode::Permits,
                _ => Mode::Fair,
            };
            let stage = Stage::on(server, &format!("{kind:?}:{number}"), queued).await;
            let reference = Reference::new(kind, nanos(BEGINNING), true);
            let mut both = Both {
                stage,
                clock,
                reference,
                keeps_dead: false,
                queued: Vec::new(),
                let_in: None,
                passed: None,
            };
            both.play(calls).await
        })
    });
}

#[test]
fn scripts_of_plain_locks_do_what_the_reference_does() {
    check(LockKind::Plain, 20, &[Mode::Plain]);
}

#[test]
fn scripts_of_fair_locks_do_what_the_reference_does() {
    check(LockKind::Fair, 40, &[Mode::Fair]);
}

#[test]
fn scripts_of_read_write_locks_do_what_the_reference_does() {
    check(LockKind::ReadWrite, 70, &[Mode::Write, Mode::Read]);
}

#[test]
fn scripts_of_semaphores_do_what_the_reference_does() {
    check(LockKind::Semaphore, 40, &[Mode::Permits]);
}

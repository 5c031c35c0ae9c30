//! [`Store`]: the locks of this process, behind one mutex.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::backend::{AcquireOutcome, AcquireRequest, LeaseKey, LockName, Mode};
use crate::lock::{Holder, LeaseId, LockKind};
use crate::lock_entry::Moment;

use super::turns::{Leases, News, Tokens, Turns};

/// State of each name. An ended lease counts as none, even if its entry is still in the map.
#[derive(Debug, Default)]
pub(super) struct Store {
    /// Each name carries its hash, and each step needs one look-up.
    by_name: HashTable<State>,
    /// Clears dead names from the map. A name locked again before a sweep reuses its entry.
    sweep: Sweep,
    tokens: Tokens,
}

#[derive(Debug)]
struct State {
    name: LockName,
    kind: LockKind,
    until: Moment,
    /// Holder of a plain lock; `None` after its release.
    plain: Option<LeaseId>,
    /// Leases of a lock with a queue. Boxed, as most names have none.
    queued: Option<Box<Leases>>,
}

impl State {
    fn is_alive(&self, now: Moment) -> bool {
        (self.plain.is_some() || self.kind != LockKind::Plain) && now < self.until
    }

    fn left(&self, now: Moment) -> Duration {
        self.until.saturating_duration_since(now)
    }

    /// Returns the lock with a queue of this kind, which a free name becomes.
    fn queued(&mut self, kind: LockKind, now: Moment) -> Result<&mut Leases, OtherKind> {
        if self.kind != kind {
            if self.is_alive(now) {
                return Err(OtherKind::new(self.kind));
            }
            (self.plain, self.kind) = (None, kind);
            // Reset: another kind of lock may have reserved a greater token since.
            self.queued.as_deref_mut().map(std::mem::take);
        }
        Ok(self.queued.get_or_insert_default())
    }
}

fn state<'a>(by_name: &'a mut HashTable<State>, name: &LockName, now: Moment) -> &'a mut State {
    let is_it = |state: &State| state.name == *name;
    match by_name.entry(name.hash_value(), is_it, |state| state.name.hash_value()) {
        Entry::Occupied(state) => state.into_mut(),
        Entry::Vacant(place) => {
            let kind = LockKind::Plain;
            let state = State { name: name.clone(), kind, until: now, plain: None, queued: None };
            place.insert(state).into_mut()
        }
    }
}

impl Store {
    pub(super) fn names(&self) -> usize {
        self.by_name.len()
    }

    fn find(&mut self, name: &LockName) -> Option<&mut State> {
        self.by_name.find_mut(name.hash_value(), |state| state.name == *name)
    }

    fn alive(&mut self, name: &LockName, now: Moment) -> Option<&mut State> {
        self.find(name).filter(|state| state.is_alive(now))
    }

    fn sweep(&mut self, now: Moment) {
        if self.sweep.is_due(self.by_name.len()) {
            self.clear(now);
        }
    }

    #[cold]
    fn clear(&mut self, now: Moment) {
        // An awaited lock's entry has its queue and the readers' turn.
        let is_awaited = |state: &State| state.queued.as_ref().is_some_and(|lock| lock.is_awaited(now));
        self.by_name.retain(|state| state.is_alive(now) || is_awaited(state));
        let room = self.sweep.swept(self.by_name.len());
        self.by_name.shrink_to(room, |state| state.name.hash_value());
    }

    #[inline]
    pub(super) fn acquire(
        &mut self,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, OtherKind> {
        let AcquireRequest { id, lease, tokens, sent: now, .. } = request;
        let (now, until) = (*now, *now + *lease);
        match self.find(name) {
            None => {
                self.sweep(now);
                let state = state(&mut self.by_name, name, now);
                (state.plain, state.until, state.kind) = (Some(id.clone()), until, LockKind::Plain);
            }
            Some(state) => {
                let (was_alive, is_same) = (state.is_alive(now), state.plain.as_ref() == Some(id));
                if was_alive && !is_same {
                    return match state.kind {
                        LockKind::Plain => Ok(AcquireOutcome::Held { left: state.left(now) }),
                        kind => Err(OtherKind::new(kind)),
                    };
                }
                let was_dead = state.plain.is_none();
                (state.plain, state.kind) = (Some(id.clone()), LockKind::Plain);
                // A live lease never becomes shorter.
                state.until = if was_alive { state.until.max(until) } else { until };
                if was_dead {
                    self.sweep.revives();
                }
            }
        }
        Ok(AcquireOutcome::Acquired { last_token: self.tokens.reserve(*tokens) })
    }

    /// Ends the lease of `id`, even an expired one: no other id has replaced it. May sweep.
    #[inline]
    pub(super) fn release(&mut self, name: &LockName, id: &LeaseId, now: impl FnOnce() -> Moment) -> bool {
        let is_its = |state: &&mut State| state.plain.as_ref() == Some(id);
        let state = self.find(name).filter(is_its);
        let released = state.and_then(|state| state.plain.take()).is_some();
        if released && self.sweep.adds_dead(self.by_name.len()) {
            self.clear(now());
        }
        released
    }

    pub(super) fn force_release(&mut self, name: &LockName, now: Moment) -> Result<bool, OtherKind> {
        match self.alive(name, now) {
            Some(state) if state.kind != LockKind::Plain => Err(OtherKind::new(state.kind)),
            Some(state) => Ok(state.plain.take().is_some()),
            None => Ok(false),
        }
    }

    /// Runs a step. Returns its outcome and its news. `told`: true if an id's client can be told of a grant.
    pub(super) fn step<T>(
        &mut self,
        kind: LockKind,
        name: &LockName,
        now: Moment,
        told: &dyn Fn(&LeaseId) -> bool,
        step: impl FnOnce(&mut Turns<'_>) -> T,
    ) -> Result<(T, News), OtherKind> {
        self.sweep(now);
        let Self { by_name, sweep, tokens } = self;
        let state = state(by_name, name, now);
        let is_new = state.queued.is_none();
        let lock = state.queued(kind, now)?;
        if !is_new && lock.until().is_none() {
            sweep.revives();
        }
        let mut turns = Turns { now, lock, tokens, told, news: News::default() };
        turns.settle();
        let outcome = step(&mut turns);
        let (news, until) = (turns.news, turns.lock.until());
        state.until = until.unwrap_or(now);
        if until.is_none() && sweep.adds_dead(by_name.len()) {
            self.clear(now);
        }
        Ok((outcome, news))
    }

    /// Renews each lease: true if the lease has its lock. A longer lease frees nothing, so no waiter is told.
    pub(super) fn renew(
        &mut self,
        mode: Mode,
        leases: &[LeaseKey],
        lease: Duration,
        now: Moment,
    ) -> Vec<bool> {
        let until = now + lease;
        let renewed = leases.iter().map(|LeaseKey { name, id }| {
            let Some(state) = self.alive(name, now).filter(|state| state.kind == kind(mode)) else {
                return false;
            };
            let Some(queued) = state.queued.as_deref_mut().filter(|_| mode != Mode::Plain) else {
                let is_it = state.plain.as_ref() == Some(id);
                state.until = if is_it { state.until.max(until) } else { state.until };
                return is_it;
            };
            let renewed = queued.renew(mode, id, until, now);
            state.until = queued.until().unwrap_or(now);
            renewed
        });
        renewed.collect()
    }

    pub(super) fn holders(
        &mut self,
        mode: Mode,
        name: &LockName,
        now: Moment,
    ) -> Result<Vec<Holder>, OtherKind> {
        let Some(state) = self.alive(name, now) else { return Ok(Vec::new()) };
        let queued = state.queued.as_deref().filter(|_| state.kind != LockKind::Plain);
        let holders = match (queued, mode) {
            (None, Mode::Plain | Mode::Fair) => Vec::new(),
            (Some(queued), Mode::Plain | Mode::Fair) => queued.holders(mode, now),
            (Some(queued), Mode::Write | Mode::Read) if state.kind == LockKind::ReadWrite => {
                return Ok(queued.holders(mode, now));
            }
            (Some(queued), Mode::Permits) if state.kind == LockKind::Semaphore => {
                return Ok(queued.holders(mode, now).into_iter().map(|it| it.mode(mode)).collect());
            }
            (_, Mode::Write | Mode::Read | Mode::Permits) => return Err(OtherKind::new(state.kind)),
        };
        // From here on the name is held, perhaps as another kind.
        let as_mode = match state.kind {
            LockKind::Plain => Some(Mode::Plain),
            LockKind::Fair => Some(Mode::Fair),
            LockKind::ReadWrite if holders.is_empty() => Some(Mode::Read),
            LockKind::ReadWrite => Some(Mode::Write),
            LockKind::Semaphore => Some(Mode::Permits),
            LockKind::Unknown => None,
        };
        let held = || vec![Holder::new(state.plain.clone(), state.left(now))];
        let holders = if holders.is_empty() { held() } else { holders };
        Ok(holders.into_iter().map(|holder| holder.mode(as_mode)).collect())
    }
}

/// The name is held as another kind of lock; nothing changed. Give each kind of lock its own names.
///
/// # Examples
///
/// ```
/// # fn block_on<F: Future>(f: F) -> F::Output { tokio::runtime::Runtime::new().unwrap().block_on(f) }
/// # block_on(async {
/// use std::time::{Duration, Instant};
/// use latchwork::backend::{AcquireRequest, Backend, LockName, Mode};
/// use latchwork::{LeaseId, LockKind, local::Local};
/// # let id: LeaseId = "8743c9c0-0795-4907-87fd-6c719a6b4586:1".parse()?;
/// # let (name, lease, now) = (LockName::new("orders:42")?, Duration::from_secs(30), Instant::now().into());
/// let (local, request) = (Local::new(), AcquireRequest::new(id, lease, now));
/// local.acquire(Mode::Plain, &name, &request).await?;
/// let error = local.acquire(Mode::Fair, &name, &request).await.unwrap_err();
/// assert_eq!(error.found(), LockKind::Plain);
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherKind(LockKind);

impl OtherKind {
    fn new(found: LockKind) -> Self {
        Self(found)
    }

    /// Returns the kind of lock that holds the name.
    pub fn found(&self) -> LockKind {
        self.0
    }
}

impl fmt::Display for OtherKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name is held as a {}", self.0)
    }
}

impl Error for OtherKind {}

pub(super) fn kind(mode: Mode) -> LockKind {
    match mode {
        Mode::Plain => LockKind::Plain,
        Mode::Fair => LockKind::Fair,
        Mode::Write | Mode::Read => LockKind::ReadWrite,
        Mode::Permits => LockKind::Semaphore,
    }
}

/// Decides when to sweep a map of dead entries: once its size has doubled, so insertions pay for sweeps.
#[derive(Debug, Default)]
struct Sweep {
    /// Size at which a sweep is due; at first 0, as an empty map is swept for free.
    at: usize,
    /// Estimated count of dead entries: a name that changes its kind, or is freed by force, may be missed.
    dead: usize,
}

const FIRST: usize = 64;

impl Sweep {
    /// True if a map of `entries` must be cleared before an insertion.
    fn is_due(&self, entries: usize) -> bool {
        entries >= self.at
    }

    /// Counts a dead entry. True if a sweep is due now: of many `entries`, more than half are dead.
    fn adds_dead(&mut self, entries: usize) -> bool {
        self.dead += 1;
        entries > FIRST && self.dead > entries / 2
    }

    fn revives(&mut self) {
        self.dead = self.dead.saturating_sub(1);
    }

    /// Records a sweep. Returns the size at which the next is due, which bounds the room needed until then.
    fn swept(&mut self, left: usize) -> usize {
        self.dead = 0;
        self.at = FIRST.max(left * 2);
        self.at
    }
}

#[cfg(test)]
mod tests {
    use crate::backend::{QueuePosition, ReleaseOutcome};
    use crate::local::{Local, ThreadRuntime};

    use super::*;

    const LEASE: Duration = Duration::from_secs(30);
    const SHORT: Duration = Duration::from_millis(1);

    /// Count of names up to which the store does not sweep.
    const FEW: usize = 64;

    struct Stage {
        clock: ThreadRuntime,
        local: Local,
        mode: Mode,
        id: LeaseId,
    }

    impl Stage {
        fn in_each_mode() -> impl Iterator<Item = Self> {
            [Mode::Plain, Mode::Fair, Mode::Write, Mode::Read].into_iter().map(|mode| {
                let clock = ThreadRuntime::paused();
                let local = Local::with_runtime(clock.clone());
                Self { clock, local, mode, id: "8743c9c0-0795-4907-87fd-6c719a6b4586:1".parse().unwrap() }
            })
        }

        fn name(number: usize) -> LockName {
            LockName::new(&format!("name:{number}")).unwrap()
        }

        fn acquire(&self, number: usize, lease: Duration) {
            let request = AcquireRequest::new(self.id.clone(), lease, self.local.now());
            let outcome = self.local.acquire_now(self.mode, &Self::name(number), &request);
            assert_eq!(outcome, Ok(AcquireOutcome::Acquired { last_token: 0 }), "{}", self.mode);
        }

        fn release(&self, number: usize) {
            let outcome = self.local.release_now(self.mode, &Self::name(number), &self.id, None);
            assert_eq!(outcome, ReleaseOutcome::Released { receivers: 0 }, "{}", self.mode);
        }

        fn names(&self) -> usize {
            self.local.store.lock().names()
        }

        fn room(&self) -> usize {
            self.local.store.lock().by_name.capacity()
        }
    }

    #[test]
    fn names_whose_leases_are_over_do_not_stay() {
        for stage in Stage::in_each_mode() {
            for number in 0..1000 {
                stage.acquire(number, SHORT);
                stage.clock.advance(SHORT);
                assert!(stage.names() <= FEW, "{}: {} names", stage.mode, stage.names());
            }
        }
    }

    #[test]
    fn name_stays_for_as_long_as_a_waiter_has_a_position() {
        let holds = [Mode::Fair, Mode::Write, Mode::Write];
        for (mode, waits) in holds.into_iter().zip([Mode::Fair, Mode::Write, Mode::Read]) {
            let stage = Stage::in_each_mode().find(|stage| stage.mode == mode).unwrap();
            let other: LeaseId = "7743c9c0-0795-4907-87fd-6c719a6b4586:1".parse().unwrap();
            for number in 0..1000 {
                stage.acquire(number, SHORT);
                let kept = if number == 0 { LEASE } else { 2 * SHORT };
                let position = QueuePosition { waited: Duration::ZERO, kept };
                let request = AcquireRequest::new(other.clone(), LEASE, stage.local.now()).position(position);
                let outcome = stage.local.acquire_now(waits, &Stage::name(number), &request);
                assert_eq!(outcome, Ok(AcquireOutcome::Held { left: SHORT }), "{waits}");
                stage.clock.advance(2 * SHORT);
                assert!(stage.names() <= FEW, "{waits}: {} names", stage.names());
            }
            assert!(
                stage.local.store.lock().find(&Stage::name(0)).is_some(),
                "{waits}: expected the held name in the store"
            );
        }
    }

    /// Other names may be locked anew, again by their holder, or again after their leases ended.
    #[test]
    fn released_names_do_not_stay_whatever_other_names_do() {
        const NAMES: usize = 3000;
        const HELD: usize = 2 * NAMES;
        const OVER: usize = HELD + 1;
        for stage in Stage::in_each_mode() {
            (0..NAMES).for_each(|number| stage.acquire(number, LEASE));
            stage.acquire(HELD, LEASE);
            let (mut held, before) = (NAMES, stage.room());
            for (at, number) in (0..NAMES).enumerate() {
                stage.release(number);
                held -= 1;
                stage.acquire(HELD, LEASE);
                stage.acquire(OVER, Duration::ZERO);
                if at % 3 == 0 {
                    stage.acquire(NAMES + at, LEASE);
                    held += 1;
                }
                let names = stage.names();
                assert!(
                    names <= FEW + 2 * held + 4,
                    "{}: expected few names beside the held ones, and found {names}, {held} of them held",
                    stage.mode
                );
            }
            (0..NAMES).step_by(3).for_each(|at| stage.release(NAMES + at));
            assert!(stage.names() <= FEW, "{}: {} names", stage.mode, stage.names());
            assert!(
                stage.room() < before / 10,
                "{}: expected room below a tenth of {before}, and found {}",
                stage.mode,
                stage.room()
            );
        }
    }

    /// Otherwise the cost of a release would grow with the number of other locks held.
    #[test]
    fn short_lived_lock_beside_held_ones_visits_no_other_lock() {
        const HELD: usize = 1000;
        const UNUSED: usize = HELD + 1;
        for stage in Stage::in_each_mode() {
            for act in
                [Stage::acquire as fn(&Stage, usize, Duration), |stage, number, _| stage.release(number)]
            {
                (0..2 * HELD).for_each(|number| act(&stage, number, LEASE));
            }
            (0..HELD).for_each(|number| stage.acquire(number, LEASE));
            stage.acquire(UNUSED, LEASE);
            stage.release(UNUSED);
            let names = stage.names();
            let other: LeaseId = "7743c9c0-0795-4907-87fd-6c719a6b4586:1".parse().unwrap();
            for _ in 0..HELD {
                stage.acquire(HELD, LEASE);
                assert_eq!(
                    stage.local.release_now(stage.mode, &Stage::name(HELD), &other, None),
                    ReleaseOutcome::NotHeld
                );
                stage.release(HELD);
            }
            assert_eq!(stage.names(), names + 1, "{}: expected no sweep of the names", stage.mode);
        }
    }

    #[test]
    fn names_by_the_thousand_are_swept_a_few_times() {
        const UNUSED: usize = 3000;
        for stage in Stage::in_each_mode() {
            let mut sweeps = 0;
            for number in 0..UNUSED {
                let is_there = stage.names() > number;
                if !is_there {
                    sweeps += 1;
                    stage.acquire(UNUSED, Duration::ZERO);
                }
                stage.acquire(number, LEASE);
            }
            assert!(sweeps < 20, "{}: {sweeps} sweeps", stage.mode);
        }
    }

    /// Otherwise each release would free memory that the next acquisition allocates.
    #[test]
    fn few_names_stay_to_be_locked_again() {
        for stage in Stage::in_each_mode() {
            for names in [1, FEW - 1] {
                for number in (0..names).chain(0..names) {
                    stage.acquire(number, LEASE);
                    stage.release(number);
                }
                assert_eq!(stage.names(), names, "{}", stage.mode);
            }
        }
    }
}

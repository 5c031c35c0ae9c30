//! Rules of read-write locks in memory not covered by the random programs (`differential`).

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use latchwork::LeaseId;
use latchwork::backend::{AcquireOutcome, Backend as _, LockName, Mode, QueuePosition, ReleaseOutcome};
use latchwork::local::{Local, LocalTransport, ThreadRuntime};
use latchwork::subscription::Subscription;

use latchwork_conformance::commands::{Commands as _, did_read, is_acquired, keys, left, token};

use crate::polled::ready;

const LEASE: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(100);
const TURN: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_millis(1);
const WAITS: Option<QueuePosition> =
    Some(QueuePosition { waited: Duration::ZERO, kept: Duration::from_secs(20) });

struct Stage {
    runtime: ThreadRuntime,
    local: Local,
    name: LockName,
}

/// A client with a subscription, able to hear of a grant.
struct One {
    id: LeaseId,
    _listens: Subscription<LocalTransport>,
}

impl Stage {
    fn new() -> Self {
        let runtime = ThreadRuntime::paused();
        let (local, name) = (Local::with_runtime(runtime.clone()), LockName::new("prices").unwrap());
        Self { runtime, local, name }
    }

    fn one(&self) -> One {
        static NEXT: AtomicU64 = AtomicU64::new(10);
        // Ordering: Relaxed, only uniqueness matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let id: LeaseId = format!("8743c9c0-0795-4907-87fd-6c719a6b45{number:02}:1").parse().unwrap();
        let channel = self.local.channels(Mode::Write, &self.name, &id.client_id()).own;
        One { id, _listens: self.local.registry().subscribe(&channel) }
    }

    /// Acquires the lock, or returns the time until the next question.
    fn acquire(&self, mode: Mode, one: &One, lease: Duration) -> Result<(), Duration> {
        let request = self.local.request(&one.id, lease).position(WAITS);
        left(ready(self.local.acquire(mode, &self.name, &request)).unwrap()).map_or(Ok(()), Err)
    }

    fn write(&self, one: &One, lease: Duration) -> Result<(), Duration> {
        self.acquire(Mode::Write, one, lease)
    }

    fn read(&self, one: &One, lease: Duration) -> Result<(), Duration> {
        self.acquire(Mode::Read, one, lease)
    }

    fn release_write(&self, one: &One) -> ReleaseOutcome {
        ready(self.local.release(Mode::Write, &self.name, &one.id, None)).unwrap()
    }

    fn release_read(&self, one: &One) -> bool {
        did_read(ready(self.local.release(Mode::Read, &self.name, &one.id, None)).unwrap())
    }
}

#[test]
fn turn_is_kept_for_as_long_as_writers_wait() {
    let stage = Stage::new();
    let [writer, next, reader] = [(); 3].map(|()| stage.one());
    stage.write(&writer, LEASE).unwrap();
    assert_eq!(stage.write(&next, LEASE), Err(LEASE));
    stage.runtime.advance(MOMENT);
    assert!(stage.read(&reader, LEASE).is_err());
    stage.release_write(&writer);
    stage.runtime.advance(TURN);
    for number in 0..1000 {
        let name = LockName::new(&format!("name:{number}")).unwrap();
        ready(stage.local.acquire(Mode::Plain, &name, &stage.local.request(&reader.id, SHORT))).unwrap();
        stage.runtime.advance(SHORT / 100);
    }
    // By its reported wait the reader arrived when readers were let in, after the writer.
    let position = QueuePosition { waited: TURN + SHORT * 10, ..WAITS.unwrap() };
    let request = stage.local.request(&reader.id, LEASE).position(position);
    let reads = ready(stage.local.acquire(Mode::Read, &stage.name, &request)).unwrap();
    assert_eq!(reads, AcquireOutcome::Acquired { last_token: 0 });
}

/// The released leases have expired, and the name is held as another kind.
#[test]
fn release_that_comes_late_frees_no_lock_of_another_kind() {
    let stage = Stage::new();
    let [plain, reader, writer] = [(); 3].map(|()| stage.one());
    let acquire = || {
        let request = stage.local.request(&plain.id, SHORT);
        assert!(is_acquired(ready(stage.local.acquire(Mode::Plain, &stage.name, &request)).unwrap()));
    };
    acquire();
    stage.runtime.advance(SHORT);
    stage.read(&reader, SHORT).unwrap();
    assert!(stage.write(&writer, LEASE).is_err());
    let leases = keys(&stage.name, &[&plain.id]);
    assert_eq!(ready(stage.local.renew(Mode::Plain, &leases, LEASE)), Ok(vec![false]));
    assert_eq!(
        ready(stage.local.release(Mode::Plain, &stage.name, &plain.id, None)),
        Ok(ReleaseOutcome::NotHeld)
    );
    stage.runtime.advance(SHORT);
    acquire();
    assert_eq!(stage.release_write(&writer), ReleaseOutcome::NotHeld);
    assert!(!stage.release_read(&reader));
    assert!(ready(stage.local.holder(Mode::Plain, &stage.name)).unwrap().is_some());
    stage.runtime.advance(SHORT);
    stage.read(&reader, SHORT).unwrap();
}

/// The waiter missed its grant, and the name has become another kind of lock.
#[test]
fn fair_waiter_that_leaves_a_name_of_another_kind_is_not_queued() {
    let stage = Stage::new();
    let [fair, gone, writer, next] = [(); 4].map(|()| stage.one());
    stage.acquire(Mode::Fair, &fair, SHORT).unwrap();
    assert!(stage.acquire(Mode::Fair, &gone, LEASE).is_err());
    stage.runtime.advance(SHORT);
    stage.write(&writer, LEASE).unwrap();
    let left = ready(stage.local.release(Mode::Fair, &stage.name, &gone.id, None)).unwrap();
    assert_eq!(left, ReleaseOutcome::NotHeld);
    stage.release_write(&writer);
    // Another waiter of the same client listens.
    let channel = stage.local.channels(Mode::Fair, &stage.name, &gone.id.client_id()).own;
    let _listens = stage.local.registry().subscribe(&channel);
    stage.acquire(Mode::Fair, &next, LEASE).unwrap();
}

#[test]
fn fair_lock_is_kept_for_no_readers() {
    let stage = Stage::new();
    let [writer, reader, fair, next] = [(); 4].map(|()| stage.one());
    stage.write(&writer, SHORT).unwrap();
    assert_eq!(stage.read(&reader, LEASE), Err(SHORT));
    stage.runtime.advance(SHORT);
    stage.acquire(Mode::Fair, &fair, LEASE).unwrap();
    ready(stage.local.release(Mode::Fair, &stage.name, &fair.id, None)).unwrap();
    stage.acquire(Mode::Fair, &next, LEASE).unwrap();
}

/// Readers share a token; holders of another kind in between get greater tokens.
#[test]
fn tokens_rise_although_the_name_was_another_kind_of_lock() {
    let stage = Stage::new();
    let one = stage.one();
    let mut last = 0;
    for mode in [Mode::Read, Mode::Plain, Mode::Read, Mode::Fair, Mode::Read, Mode::Write, Mode::Read] {
        let request = stage.local.request(&one.id, LEASE).tokens(1);
        let next = token(ready(stage.local.acquire(mode, &stage.name, &request)).unwrap());
        assert!(next > last, "{next} after {last}, {mode}");
        last = next;
        ready(stage.local.release(mode, &stage.name, &one.id, None)).unwrap();
    }
}

/// Precise to a moment, with the name still held by another lease.
#[test]
fn lease_that_is_over_beside_another_is_not_renewed() {
    let stage = Stage::new();
    let [writer, reader, other] = [(); 3].map(|()| stage.one());
    let renew =
        |mode, one: &One| ready(stage.local.renew(mode, &keys(&stage.name, &[&one.id]), LEASE)).unwrap();
    stage.write(&writer, SHORT).unwrap();
    let under = stage.local.request(&reader.id, LEASE).under(writer.id.clone());
    assert!(is_acquired(ready(stage.local.acquire(Mode::Read, &stage.name, &under)).unwrap()));
    stage.runtime.advance(SHORT - MOMENT);
    assert_eq!(renew(Mode::Write, &writer), [true]);
    stage.runtime.advance(LEASE - SHORT);
    assert_eq!(renew(Mode::Read, &reader), [true]);
    stage.runtime.advance(SHORT);
    assert_eq!(renew(Mode::Write, &writer), [false]);
    stage.read(&other, SHORT).unwrap();
    stage.runtime.advance(SHORT);
    assert_eq!((renew(Mode::Read, &other), renew(Mode::Read, &reader)), (vec![false], vec![true]));
}

//! Allocations of locks in memory. One test to a process, as the allocator counts all threads.

mod heap;
mod polled;

use std::future::pending;
use std::hint::black_box;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use heap::{allocations, in_use};
use latchwork::backend::{AcquireOutcome, AcquireRequest, Backend as _, QueuePosition};
use latchwork::local::{Local, OtherKind, ThreadRuntime};
use latchwork::lock::{LockName, Mode};
use latchwork::{LeaseId, Lock, LockClient, LockOptions};

use latchwork_conformance::commands::{Commands as _, RELEASED};
use latchwork_conformance::{Intercept, Interceptor};

use crate::polled::{poll, ready};

fn main() {
    future_of_an_acquisition_is_small();
    command_has_room_for_its_future_once();
    uncontended_pair_allocates_nothing();
    dropped_guard_allocates_nothing();
    hand_off_allocates_nothing();
    reentry_allocates_nothing();
    unused_names_keep_nothing();
    names_that_were_held_at_once_keep_nothing();
    read_write_pairs_allocate_nothing();
    unused_read_write_names_keep_nothing();
}

fn orders(client: &LockClient) -> Lock {
    client.get_lock("orders").unwrap()
}

/// A crowd of waiting tasks keeps a future each.
fn future_of_an_acquisition_is_small() {
    let lock = orders(&LockClient::local());
    let sizes = [size_of_val(&lock.lock()), size_of_val(&lock.try_lock())];
    assert!(sizes.iter().all(|size| *size <= 256), "expected 256 bytes at most, and found {sizes:?}");
}

/// A store whose futures are as large as those of a network client.
struct Large;

impl Large {
    const SIZE: usize = 4096;
}

impl Interceptor<Local> for Large {
    type Error = OtherKind;

    fn error(&self, error: OtherKind) -> OtherKind {
        error
    }

    async fn acquire(
        &self,
        _: &Local,
        _: Mode,
        _: &LockName,
        _: &AcquireRequest,
    ) -> Result<AcquireOutcome, OtherKind> {
        let kept = black_box([0_u8; Self::SIZE]);
        pending::<()>().await;
        unreachable!("{kept:?}")
    }
}

/// Each command writes all of its box: over Redis, three times the future cost half a pair's CPU time.
fn command_has_room_for_its_future_once() {
    let lock = orders(&LockClient::new(Intercept::new(Local::new(), Large)));
    let mut waits = pin!(lock.lock());
    let before = in_use();
    assert!(poll(waits.as_mut()).is_pending());
    let used = in_use() - before;
    assert!((Large::SIZE..2 * Large::SIZE).contains(&(used as usize)), "{used} bytes");
}

fn uncontended_pair_allocates_nothing() {
    let lock = orders(&LockClient::local());
    let pair = || ready(ready(lock.lock()).unwrap().unlock()).unwrap();
    pair();
    assert_allocates_nothing(pair);
}

fn dropped_guard_allocates_nothing() {
    let lock = orders(&LockClient::local());
    let pair = || drop(ready(lock.lock()).unwrap());
    pair();
    assert_allocates_nothing(pair);
}

/// One quiet round suffices: the watchdog's thread allocates in some rounds, an allocating `act` in all.
fn assert_allocates_nothing(act: impl Fn()) {
    let is_quiet = |_| {
        let before = allocations();
        (0..100).for_each(|_| act());
        allocations() == before
    };
    assert!((0..100).any(is_quiet));
}

fn hand_off_allocates_nothing() {
    let options = LockOptions::default().tenure(Duration::from_secs(3600));
    let lock = orders(&LockClient::with_options(Local::new(), &options).unwrap());
    let hand_off = || {
        let guard = ready(lock.lock()).unwrap();
        let mut waits = pin!(lock.lock());
        assert!(poll(waits.as_mut()).is_pending());
        ready(guard.unlock()).unwrap();
        let Poll::Ready(guard) = poll(waits) else { panic!("the lock was handed off") };
        ready(guard.unwrap().unlock()).unwrap();
    };
    hand_off();
    assert_eq!(lock.stats().hand_offs, 1);
    assert_allocates_nothing(hand_off);
}

fn reentry_allocates_nothing() {
    let client = LockClient::local();
    let lock = orders(&client).owned_by(&client.owner());
    let outer = ready(lock.lock()).unwrap();
    assert_allocates_nothing(|| ready(ready(lock.lock()).unwrap().unlock()).unwrap());
    ready(outer.unlock()).unwrap();
}

fn unused_names_keep_nothing() {
    const NAMES: usize = 10_000;
    let client = LockClient::local();
    let round = || {
        for number in 0..NAMES {
            let lock = client.get_lock(&format!("name:{number}")).unwrap();
            ready(ready(lock.lock()).unwrap().unlock()).unwrap();
        }
    };
    round();
    let before = in_use();
    // Enough names to detect a byte for every tenth name, despite the watchdog's thread.
    (0..10).for_each(|_| round());
    assert!(in_use() - before < 8192, "expected fewer than 8192 bytes kept, and found {}", in_use() - before);
}

fn names_that_were_held_at_once_keep_nothing() {
    const NAMES: usize = 20_000;
    let client = LockClient::local();
    for fair in [false, true] {
        let before = in_use();
        let take = |number: usize| {
            let name = format!("name:{number}");
            let lock = if fair { client.get_fair_lock(&name) } else { client.get_lock(&name) }.unwrap();
            ready(lock.lock()).unwrap()
        };
        let guards: Vec<_> = (0..NAMES).map(take).collect();
        assert!(in_use() - before > 2_000_000, "expected memory in use for the held names");
        drop(guards);
        let kept = in_use() - before;
        assert!(kept < 64 * 1024, "expected fewer than 64 KiB kept (fair: {fair}), and found {kept}");
    }
}

const ID: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:1";
const LEASE: Duration = Duration::from_secs(30);

fn read_write_pairs_allocate_nothing() {
    let (local, id, name) = (Local::new(), ID.parse::<LeaseId>().unwrap(), LockName::new("orders").unwrap());
    let pairs = || {
        for mode in [Mode::Read, Mode::Write] {
            ready(local.acquire(mode, &name, &local.request(&id, LEASE).tokens(1))).unwrap();
            assert_eq!(ready(local.release(mode, &name, &id, None)).unwrap(), RELEASED);
        }
    };
    pairs();
    assert_allocates_nothing(pairs);
}

fn unused_read_write_names_keep_nothing() {
    const NAMES: usize = 10_000;
    let runtime = ThreadRuntime::paused();
    let local = Local::with_runtime(runtime.clone());
    let [id, waits] = [ID, "7743c9c0-0795-4907-87fd-6c719a6b4586:1"].map(|id| id.parse::<LeaseId>().unwrap());
    let position = QueuePosition { waited: Duration::ZERO, kept: LEASE };
    let acquire = |mode, name: &LockName, id| {
        ready(local.acquire(mode, name, &local.request(id, LEASE).position(position))).unwrap()
    };
    let round = || {
        for number in 0..NAMES {
            let name = LockName::new(&format!("name:{number}")).unwrap();
            match number % 3 {
                0 => {
                    acquire(Mode::Read, &name, &id);
                    assert_eq!(ready(local.release(Mode::Read, &name, &id, None)).unwrap(), RELEASED);
                }
                1 => {
                    acquire(Mode::Write, &name, &id);
                    acquire(Mode::Read, &name, &waits);
                }
                _ => {
                    acquire(Mode::Read, &name, &id);
                    acquire(Mode::Write, &name, &waits);
                }
            }
            runtime.advance(LEASE / 50);
        }
    };
    let before = in_use();
    round();
    let kept = in_use() - before;
    // The allowance covers 50 held names, and as many left for the next sweep.
    assert!(kept < 256 * 1024, "expected fewer than 256 KiB kept, and found {kept}");
}

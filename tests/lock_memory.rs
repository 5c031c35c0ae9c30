//! What a lock in memory allocates, by an allocator that counts. One test to a process: the count is for all threads.

mod heap;

use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use heap::{allocations, in_use};
use latchwork::local::Local;
use latchwork::{Lock, LockClient, LockOptions};

fn ready<F: Future>(future: F) -> F::Output {
    match poll(pin!(future)) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

fn poll<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn main() {
    uncontended_pair_allocates_nothing();
    dropped_guard_allocates_nothing();
    hand_off_allocates_nothing();
    reentry_allocates_nothing();
    names_that_nobody_uses_keep_nothing();
}

fn orders(client: &LockClient<Local>) -> Lock<Local> {
    client.get_lock("orders").unwrap()
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

/// The keeper's thread starts, and looks, when it likes, and is counted as well: so one round of a hundred without is enough. What allocates
/// at all does so in each.
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
        let Poll::Ready(guard) = poll(waits) else { panic!("it was handed off") };
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

fn names_that_nobody_uses_keep_nothing() {
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
    round();
    assert!(in_use() - before < 4096, "{} bytes are kept", in_use() - before);
}

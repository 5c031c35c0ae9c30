//! The published loop, as directly as Rust can express it: the origin of latchwork's semaphore.
//!
//! A counter, a queue, and Redisson's `tryRun` between them with its lost wake-up repaired. Every acquire
//! joins the queue, even beside a free permit. Orderings are AcqRel throughout, close to Java's.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicIsize, AtomicU8};
use std::task::{Context, Poll, Waker};

use crossbeam_queue::SegQueue;

use super::{Peer, Queueing};

const WAITING: u8 = 0;
const GRANTED: u8 = 1;
const CANCELLED: u8 = 2;

#[derive(Debug)]
struct Waiter {
    state: AtomicU8,
    waker: Waker,
}

impl Waiter {
    fn settle(&self, state: u8) -> bool {
        self.state.compare_exchange(WAITING, state, AcqRel, Acquire).is_ok()
    }
}

/// The semaphore.
#[derive(Debug)]
pub struct Seed {
    counter: AtomicIsize,
    queue: SegQueue<Arc<Waiter>>,
}

impl Seed {
    fn release(&self) {
        self.counter.fetch_add(1, AcqRel);
        self.try_run();
    }

    fn try_run(&self) {
        loop {
            if self.counter.fetch_sub(1, AcqRel) > 0 {
                while let Some(waiter) = self.queue.pop() {
                    if waiter.settle(GRANTED) {
                        waiter.waker.wake_by_ref();
                        return;
                    }
                }
                self.counter.fetch_add(1, AcqRel);
                // The repair: a waiter may have joined while the permit was out of the counter.
                if self.queue.is_empty() {
                    return;
                }
            } else if self.counter.fetch_add(1, AcqRel) < 0 {
                return;
            }
        }
    }
}

/// The future of [`Seed`]'s acquire.
#[derive(Debug)]
pub struct SeedAcquire<'a> {
    seed: &'a Seed,
    waiter: Option<Arc<Waiter>>,
}

impl<'a> Future for SeedAcquire<'a> {
    type Output = SeedPermit<'a>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<SeedPermit<'a>> {
        let seed = self.seed;
        let waiter = self.waiter.get_or_insert_with(|| {
            let state = AtomicU8::new(WAITING);
            let waiter = Arc::new(Waiter { state, waker: context.waker().clone() });
            seed.queue.push(Arc::clone(&waiter));
            seed.try_run();
            waiter
        });
        if waiter.state.load(Acquire) == GRANTED {
            self.waiter = None;
            return Poll::Ready(SeedPermit(seed));
        }
        assert!(waiter.waker.will_wake(context.waker()), "no benchmark polls with another waker");
        Poll::Pending
    }
}

impl Drop for SeedAcquire<'_> {
    fn drop(&mut self) {
        if let Some(waiter) = &self.waiter
            && !waiter.settle(CANCELLED)
        {
            self.seed.release();
        }
    }
}

/// A permit of [`Seed`], released on drop.
#[derive(Debug)]
pub struct SeedPermit<'a>(&'a Seed);

impl Drop for SeedPermit<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

impl Peer for Seed {
    const NAME: &'static str = "seed";
    type Permit<'a> = SeedPermit<'a>;
    type Acquired<'a> = SeedPermit<'a>;

    fn new(permits: usize) -> Self {
        Self { counter: AtomicIsize::new(permits as isize), queue: SegQueue::new() }
    }

    fn available(&self) -> usize {
        self.counter.load(Acquire).max(0) as usize
    }

    #[inline]
    fn try_acquire(&self) -> Option<SeedPermit<'_>> {
        let take = |free| (free > 0).then(|| free - 1);
        self.counter.fetch_update(AcqRel, Relaxed, take).ok().map(|_| SeedPermit(self))
    }

    #[inline]
    fn acquire(&self) -> impl Future<Output = SeedPermit<'_>> + Send {
        SeedAcquire { seed: self, waiter: None }
    }

    #[inline]
    fn permit(acquired: Self::Acquired<'_>) -> Self::Permit<'_> {
        acquired
    }
}

impl Queueing for Seed {
    /// One by one: the published loop knows no other way.
    fn add(&self, n: usize) {
        for _ in 0..n {
            self.release();
        }
    }
}

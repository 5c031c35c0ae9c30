//! A queue of constant length: its operations at any length.

use std::hint::black_box;
use std::pin::pin;
use std::time::{Duration, Instant};

use crate::line::Line;
use crate::peers::{Peer, Queueing, poll_pending, poll_ready};
use crate::wakers::Counting;

/// A holder, and a queue of waiters behind it whose length is constant.
pub struct Queue<'a, P: Peer, F, M> {
    acquire: M,
    waker: &'a Counting,
    /// `None` only while the permit changes hands.
    held: Option<P::Permit<'a>>,
    /// A ring: the waiters, and a spare place.
    line: Line<F>,
    places: usize,
    spare: usize,
    /// Waiters that were cancelled since the queue last moved on by its full length.
    dead: usize,
}

impl<'a, P: Queueing, F: Future<Output = P::Acquired<'a>>, M: Fn() -> F> Queue<'a, P, F, M> {
    /// A queue of `depth` waiters. Panics if a peer has no permit for its holder.
    pub fn new(semaphore: &'a P, acquire: M, waker: &'a Counting, depth: usize) -> Self {
        let places = depth + 1;
        let mut line = Line::new(places);
        let held = Some(semaphore.try_acquire().expect("a permit is free"));
        for place in 0..depth {
            poll_pending::<P>(line.put(place, acquire()), &mut waker.context());
        }
        Self { acquire, waker, held, line, places, spare: depth, dead: 0 }
    }

    /// A waiter joins at the end; the permit goes from its holder to the head of the queue.
    pub fn hand_over(&mut self, rounds: u64) -> Duration {
        let mut context = self.waker.context();
        let start = Instant::now();
        for _ in 0..rounds {
            poll_pending::<P>(self.line.put(self.spare, black_box(&self.acquire)()), &mut context);
            let head = if self.spare + 1 == self.places { 0 } else { self.spare + 1 };
            self.held = None;
            self.held = Some(poll_ready::<P>(self.line.at(head), &mut context));
            self.line.clear(head);
            self.spare = head;
        }
        start.elapsed()
    }

    /// A waiter joins at the end, and is dropped.
    pub fn cancel(&mut self, rounds: u64) -> Duration {
        let most_dead = self.places.max(100_000);
        let mut took = Duration::ZERO;
        let mut left = rounds;
        while left > 0 {
            if self.dead >= most_dead {
                self.bury();
            }
            let now = left.min((most_dead - self.dead) as u64);
            let mut context = self.waker.context();
            let start = Instant::now();
            for _ in 0..now {
                let mut waiter = pin!(black_box(&self.acquire)());
                poll_pending::<P>(waiter.as_mut(), &mut context);
                black_box(&waiter);
            }
            took += start.elapsed();
            left -= now;
            self.dead += now as usize;
        }
        took
    }

    /// Outside the timed span: moves the queue on by its length, past all dead waiters that a peer keeps.
    fn bury(&mut self) {
        self.hand_over(self.places as u64);
        self.dead = 0;
    }

    /// Drops all waiters, and the holder.
    pub fn leave(self) {
        drop(self.line);
        drop(self.held);
    }
}

impl<P: Peer, F, M> std::fmt::Debug for Queue<'_, P, F, M> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("places", &self.places).finish_non_exhaustive()
    }
}

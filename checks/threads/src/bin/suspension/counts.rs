//! Accesses of each operation to shared memory, counted in the real code, and compared with
//! `docs/benchmarks.md`: with many cores an operation costs as much as the cache lines that it takes from
//! others.
//!
//! One thread does all operations, in the same order each time, so the counts are exact; the words of a step
//! do not depend on the thread. Retries of a compare-and-swap under contention are not counted.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::process::exit;
use std::ptr;
use std::task::Poll;

use latchwork::AsyncSemaphore;
use latchwork::suspension::{Access, before_each_access};
use threads::Bell;

/// Repetitions, for occasional work: a sweep is due after two abandoned nodes here, 32 elsewhere.
const ROUNDS: usize = 100;

#[repr(align(64))]
struct Aligned(AsyncSemaphore);

thread_local! {
    static SEEN: RefCell<Vec<Access>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Counts {
    /// Read-modify-writes.
    steps: usize,
    /// Words of the semaphore written by the operation, and their lines.
    words: usize,
    lines: usize,
    /// Words of nodes written by the operation.
    of_nodes: usize,
}

impl Counts {
    fn of(accesses: &[Access], semaphore: &AsyncSemaphore) -> Self {
        let within = ptr::from_ref(semaphore).cast::<u8>();
        let within = within.addr()..within.addr() + size_of::<AsyncSemaphore>();
        let writes = accesses.iter().filter(|access| !["load", "wake"].contains(&access.method));
        let steps = writes.clone().filter(|access| !["store", "with_mut"].contains(&access.method)).count();
        // Only sweepers of other threads read a thread's own record.
        let is_record = |access: &Access| access.place.file().ends_with("epoch.rs");
        let (mut words, mut lines, mut of_nodes) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for access in writes {
            let Some(word) = access.word.map(<*const ()>::addr) else { continue };
            if within.contains(&word) {
                words.insert(word);
                lines.insert(word / 64);
            } else if !is_record(access) {
                of_nodes.insert(word);
            }
        }
        Self { steps, words: words.len(), lines: lines.len(), of_nodes: of_nodes.len() }
    }

    fn numbers(&self) -> [usize; 4] {
        [self.steps, self.words, self.lines, self.of_nodes]
    }
}

fn counted<T>(semaphore: &AsyncSemaphore, all: &mut BTreeSet<Counts>, operation: impl FnOnce() -> T) -> T {
    SEEN.with_borrow_mut(Vec::clear);
    before_each_access(Some(|access| SEEN.with_borrow_mut(|seen| seen.push(*access))));
    let done = operation();
    before_each_access(None);
    all.insert(SEEN.with_borrow(|seen| Counts::of(seen, semaphore)));
    done
}

fn free() -> [BTreeSet<Counts>; 2] {
    let (semaphore, mut counts) = (Aligned(AsyncSemaphore::new(1)), <[BTreeSet<Counts>; 2]>::default());
    let semaphore = &semaphore.0;
    for _ in 0..ROUNDS {
        let permit =
            counted(semaphore, &mut counts[0], || semaphore.try_acquire().expect("the lock is free"));
        counted(semaphore, &mut counts[1], || drop(permit));
    }
    counts
}

fn handed_over() -> [BTreeSet<Counts>; 3] {
    let (semaphore, mut counts) = (Aligned(AsyncSemaphore::new(1)), <[BTreeSet<Counts>; 3]>::default());
    let (semaphore, bell) = (&semaphore.0, Bell::new());
    let mut held = semaphore.try_acquire().expect("the lock is free");
    for _ in 0..ROUNDS {
        let mut waiter = semaphore.acquire();
        assert!(counted(semaphore, &mut counts[0], || bell.poll(&mut waiter)).is_pending());
        counted(semaphore, &mut counts[1], || drop(held));
        let polled = counted(semaphore, &mut counts[2], || bell.poll(&mut waiter));
        let Poll::Ready(granted) = polled else { panic!("the lock was handed off") };
        held = granted.expect("the semaphore is never closed");
    }
    counts
}

/// The counts of `docs/benchmarks.md`, least first: read-modify-writes, words of the semaphore written, lines
/// of those words, words of nodes written.
const EXPECTED: [(&str, &[[usize; 4]]); 5] = [
    ("acquire, a permit is free", &[[1, 1, 1, 0]]),
    ("release, no waiter", &[[1, 1, 1, 0]]),
    ("enqueue; as the first of a queue", &[[1, 1, 1, 1], [2, 3, 1, 0]]),
    ("release that grants; of a queue's first node", &[[2, 3, 1, 3], [3, 3, 1, 2]]),
    ("poll of a grant; with a sweep", &[[0, 1, 1, 1], [9, 8, 2, 2], [9, 8, 2, 3]]),
];

pub(crate) fn main() {
    let mut is_as_expected = true;
    println!("read-modify-writes, words of the semaphore, their lines, words of nodes that it writes");
    for ((operation, expected), counts) in EXPECTED.into_iter().zip(free().into_iter().chain(handed_over())) {
        let counts: Vec<_> = counts.iter().map(Counts::numbers).collect();
        println!("{operation}: {counts:?}");
        if counts != expected {
            println!("    that is not what docs/benchmarks.md says: {expected:?}");
            is_as_expected = false;
        }
    }
    if !is_as_expected {
        exit(1);
    }
}

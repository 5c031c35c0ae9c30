//! Models of the row's memory: segments (of two cells, in a model) are appended, left behind by hints, and taken out of the chain
//! while others read them. A segment that was freed too early shows as a causality violation or a panic inside of loom, and
//! under AddressSanitizer as what it is.
#![cfg(latchwork_loom)]

use std::sync::Arc;

use latchwork::AsyncSemaphore;
use loom_tests::{is_ready, spawn};

/// One preemption less than elsewhere: these models have many more steps, and take a second instead of minutes.
fn model(body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.map(|bound| bound.saturating_sub(1));
    builder.check(body);
}

/// Two waiters fill a segment, are served and leave; a third goes to the next one; and a releaser walks over both meanwhile.
#[test]
fn segment_retired_vs_reader() {
    model(|| {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let (mut first, mut second) = (semaphore.acquire(), semaphore.acquire());
        assert!(!is_ready(&mut first) && !is_ready(&mut second));
        semaphore.add_permits(2);
        let mut third = semaphore.acquire();
        assert!(!is_ready(&mut third));
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(1));
        // Each permit is given back as soon as it is seen, and the segment is through with the second.
        assert!(is_ready(&mut first));
        assert!(is_ready(&mut second));
        releaser.join().unwrap();
        assert!(is_ready(&mut third));
        drop((first, second, third));
        assert_eq!(semaphore.available_permits(), 3);
    });
}

/// The waiters of a segment in the middle give up, and the segment is taken out, while another waiter is appended.
#[test]
fn dead_segment_unlinked_vs_enqueue() {
    model(|| {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut patient = semaphore.acquire();
        assert!(!is_ready(&mut patient));
        let mut impatient: Vec<_> = (0..4).map(|_| semaphore.acquire()).collect();
        for waiter in &mut impatient {
            assert!(!is_ready(waiter));
        }
        let newcomer = spawn(&semaphore, |semaphore| {
            let mut newcomer = semaphore.acquire();
            let _ = is_ready(&mut newcomer);
        });
        drop(impatient);
        newcomer.join().unwrap();
        semaphore.add_permits(1);
        assert!(is_ready(&mut patient));
        drop(patient);
        assert_eq!(semaphore.available_permits(), 1);
    });
}

/// The same, while a releaser walks along the row to the waiter behind.
#[test]
fn dead_segment_unlinked_vs_release() {
    model(|| {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut waiters: Vec<_> = (0..5).map(|_| semaphore.acquire()).collect();
        for waiter in &mut waiters {
            assert!(!is_ready(waiter));
        }
        let mut last = waiters.pop().unwrap();
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(1));
        drop(waiters);
        releaser.join().unwrap();
        assert!(is_ready(&mut last), "the permit was left with those who gave up");
        drop(last);
        assert_eq!(semaphore.available_permits(), 1);
    });
}

/// Two threads leave two dead segments behind at once: one sweeps, and the other's segment is not forgotten.
#[test]
fn two_threads_leave_dead_segments() {
    model(|| {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut patient = semaphore.acquire();
        assert!(!is_ready(&mut patient));
        let cancel_two = |semaphore: &AsyncSemaphore| {
            let mut two = [semaphore.acquire(), semaphore.acquire()];
            for waiter in &mut two {
                let _ = is_ready(waiter);
            }
        };
        let other = spawn(&semaphore, move |semaphore| cancel_two(semaphore));
        cancel_two(&semaphore);
        other.join().unwrap();
        semaphore.add_permits(1);
        assert!(is_ready(&mut patient));
        drop(patient);
        assert_eq!(semaphore.available_permits(), 1);
    });
}

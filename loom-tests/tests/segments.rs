//! Models of the row's memory: segments (of two cells, in a model) are appended, left behind by hints, and taken out of the chain
//! while others read them. A segment that was freed too early is met by its dead canary.
#![cfg(latchwork_loom)]

use std::sync::Arc;
use std::task::Poll;

use latchwork::AsyncSemaphore;
use latchwork::fault::Fault;
use loom_tests::{is_ready, model_with_less, must_fail, poll_once, spawn};

/// One preemption less than elsewhere: these models have many more steps, and take seconds instead of minutes.
fn model(body: impl Fn() + Send + Sync + 'static) {
    model_with_less(1, body);
}

/// Two waiters fill a segment, are served and leave; a third goes to the next one; and a releaser walks over both meanwhile.
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
fn dead_segment_unlinked_vs_enqueue() {
    model(|| {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut patient = semaphore.acquire();
        assert!(!is_ready(&mut patient));
        // Two segments in the middle are all theirs: half of the chain, and so reason to sweep.
        let mut impatient: Vec<_> = (0..6).map(|_| semaphore.acquire()).collect();
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
fn two_threads_leave_dead_segments() {
    model(|| {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut patient = semaphore.acquire();
        assert!(!is_ready(&mut patient));
        // Two segments in the middle are all theirs: half of the chain, and so reason to sweep.
        let mut impatient: Vec<_> = (0..6).map(|_| Arc::clone(&semaphore).acquire_owned()).collect();
        for waiter in &mut impatient {
            assert!(!is_ready(waiter));
        }
        // Each thread is the last to leave one of the two.
        let (first, second): (Vec<_>, Vec<_>) = (impatient.drain(..3).collect(), impatient);
        let other = loom::thread::spawn(move || drop(first));
        drop(second);
        other.join().unwrap();
        semaphore.add_permits(1);
        assert!(is_ready(&mut patient));
        drop(patient);
        assert_eq!(semaphore.available_permits(), 1);
    });
}

/// A segment dies under the hint where releasers start, and all around it is swept: it stays until the hint has moved on.
fn hint_keeps_its_segment() {
    // The longest of all.
    model_with_less(2, || {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut line: Vec<_> = (0..7).map(|_| Arc::clone(&semaphore).acquire_owned()).collect();
        for waiter in &mut line {
            assert!(!is_ready(waiter));
        }
        // Three are served, which moves the hint to the second segment; its other waiter, and those of the third, give up.
        semaphore.add_permits(3);
        let mut last = line.pop().unwrap();
        let gives_up = line.split_off(3);
        for mut served in line {
            let Poll::Ready(permit) = poll_once(&mut served) else { panic!("not served") };
            permit.unwrap().forget();
        }
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(1));
        drop(gives_up);
        releaser.join().unwrap();
        semaphore.add_permits(1);
        assert!(is_ready(&mut last));
        drop(last);
        assert_eq!(semaphore.available_permits(), 2);
    });
}

/// One of a segment's two waiters gives up, and the chain is swept: the segment stays for the other.
fn owner_keeps_its_segment() {
    model(|| {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut line: Vec<_> = (0..6).map(|_| Arc::clone(&semaphore).acquire_owned()).collect();
        for waiter in &mut line {
            assert!(!is_ready(waiter));
        }
        drop(line.remove(2));
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(5));
        // The fourth segment makes the chain long enough to be swept.
        let mut newcomer = semaphore.acquire();
        let _ = is_ready(&mut newcomer);
        drop(newcomer);
        releaser.join().unwrap();
        for waiter in &mut line {
            let Poll::Ready(permit) = poll_once(waiter) else { panic!("not served") };
            permit.unwrap().forget();
        }
    });
}

#[test]
fn segment_retired_vs_reader_holds() {
    segment_retired_vs_reader();
}

#[test]
fn dead_segment_unlinked_vs_enqueue_holds() {
    dead_segment_unlinked_vs_enqueue();
}

#[test]
fn dead_segment_unlinked_vs_release_holds() {
    dead_segment_unlinked_vs_release();
}

#[test]
fn two_threads_leave_dead_segments_holds() {
    two_threads_leave_dead_segments();
}

#[test]
fn hint_keeps_its_segment_holds() {
    hint_keeps_its_segment();
}

#[test]
fn owner_keeps_its_segment_holds() {
    owner_keeps_its_segment();
}

#[test]
fn fails_if_freed_under_readers() {
    let test = "fails_if_freed_under_readers";
    must_fail(test, Fault::FreedUnderReaders, "read after it was freed", dead_segment_unlinked_vs_release);
}

#[test]
fn fails_if_swept_under_a_hint() {
    let test = "fails_if_swept_under_a_hint";
    must_fail(test, Fault::SweptUnderHint, "read after it was freed", hint_keeps_its_segment);
}

#[test]
fn fails_if_swept_under_an_owner() {
    let test = "fails_if_swept_under_an_owner";
    must_fail(test, Fault::SweptUnderOwner, "read after it was freed", owner_keeps_its_segment);
}

//! Models of `AsyncSemaphore`, the real code. Each asks one question and ends by counting the permits.
#![cfg(latchwork_loom)]

use std::sync::Arc;
use std::task::Poll;

use latchwork::{AcquireError, AsyncSemaphore, TryAcquireError};
use loom::future::block_on;
use loom::thread;
use loom_tests::poll_once;

fn spawn<T: 'static>(
    semaphore: &Arc<AsyncSemaphore>,
    body: impl FnOnce(&AsyncSemaphore) -> T + 'static,
) -> thread::JoinHandle<T> {
    let semaphore = Arc::clone(semaphore);
    thread::spawn(move || body(&semaphore))
}

/// A holder lets go while a newcomer joins: the newcomer gets the permit, whoever comes first.
#[test]
fn release_vs_acquire() {
    loom::model(|| {
        let semaphore = Arc::new(AsyncSemaphore::new(1));
        let held = semaphore.try_acquire().unwrap();
        let newcomer = spawn(&semaphore, |semaphore| {
            drop(block_on(semaphore.acquire()).unwrap());
        });
        drop(held);
        newcomer.join().unwrap();
        assert_eq!(semaphore.available_permits(), 1);
    });
}

/// The same question, asked without sleeping: once all is quiet, no permit is free while somebody waits.
#[test]
fn no_free_permit_beside_a_waiter() {
    loom::model(|| {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(1));
        let mut waiter = semaphore.acquire();
        let early = poll_once(&mut waiter);
        releaser.join().unwrap();
        match early {
            Poll::Ready(permit) => drop(permit.unwrap()),
            Poll::Pending => {
                assert_eq!(semaphore.available_permits(), 0, "a free permit beside a waiter");
                assert!(poll_once(&mut waiter).is_ready(), "a permit went astray");
            }
        }
        drop(waiter);
        assert_eq!(semaphore.available_permits(), 1);
    });
}

/// Two releases before either waiter has run wake both.
#[test]
fn two_releases_two_waiters() {
    loom::model(|| {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut first = semaphore.acquire();
        let mut second = semaphore.acquire();
        assert!(poll_once(&mut first).is_pending());
        assert!(poll_once(&mut second).is_pending());
        let releasers = [(); 2].map(|()| spawn(&semaphore, |semaphore| semaphore.add_permits(1)));
        for releaser in releasers {
            releaser.join().unwrap();
        }
        let both = (poll_once(&mut first), poll_once(&mut second));
        assert!(matches!(&both, (Poll::Ready(Ok(_)), Poll::Ready(Ok(_)))));
        drop(both);
        assert_eq!(semaphore.available_permits(), 2);
    });
}

/// A waiter is dropped while its permit is on the way: the permit goes to the next in line, once.
#[test]
fn cancel_vs_grant() {
    loom::model(|| {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut first = semaphore.acquire();
        let mut second = semaphore.acquire();
        assert!(poll_once(&mut first).is_pending());
        assert!(poll_once(&mut second).is_pending());
        let releaser = spawn(&semaphore, |semaphore| semaphore.add_permits(1));
        drop(first);
        releaser.join().unwrap();
        assert!(
            poll_once(&mut second).is_ready(),
            "the permit of the cancelled waiter did not reach the next"
        );
        drop(second);
        assert_eq!(semaphore.available_permits(), 1);
    });
}

/// A waiter is polled with another waker while its permit is on the way: one of the two wakers is called, or the poll is
/// ready.
#[test]
fn waker_change_vs_grant() {
    loom::model(|| {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let waiter = spawn(&semaphore, |semaphore| {
            let mut waiter = semaphore.acquire();
            // A waker that leads nowhere: if the wait went by this one alone, `block_on` would deadlock.
            if let Poll::Ready(permit) = poll_once(&mut waiter) {
                return drop(permit);
            }
            drop(block_on(waiter));
        });
        semaphore.add_permits(1);
        waiter.join().unwrap();
        assert_eq!(semaphore.available_permits(), 1);
    });
}

/// The semaphore is closed while a newcomer joins: the newcomer is refused, and does not sleep for ever.
#[test]
fn close_vs_acquire() {
    loom::model(|| {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let newcomer = spawn(&semaphore, |semaphore| block_on(semaphore.acquire()).map(drop));
        semaphore.close();
        let refused: Result<(), AcquireError> = newcomer.join().unwrap();
        assert!(refused.is_err());
        assert_eq!(semaphore.available_permits(), 0);
    });
}

/// Three threads pass one permit around; what each did under it is visible to the next.
#[test]
fn permit_protects_plain_memory() {
    loom::model(|| {
        struct Shared(AsyncSemaphore, loom::cell::UnsafeCell<u32>);
        // SAFETY: the cell is only touched by whoever holds the one permit; that this is enough is what the model checks.
        unsafe impl Sync for Shared {}
        // SAFETY: as above; a number may be sent.
        unsafe impl Send for Shared {}

        let shared = Arc::new(Shared(AsyncSemaphore::new(1), loom::cell::UnsafeCell::new(0)));
        let add = |shared: &Shared| {
            let _permit = block_on(shared.0.acquire()).unwrap();
            // SAFETY: we hold the one permit.
            shared.1.with_mut(|number| unsafe { *number += 1 });
        };
        let other = {
            let shared = Arc::clone(&shared);
            thread::spawn(move || add(&shared))
        };
        add(&shared);
        other.join().unwrap();
        // SAFETY: the other thread has ended.
        assert_eq!(shared.1.with(|number| unsafe { *number }), 2);
        assert_eq!(shared.0.available_permits(), 1);
    });
}

/// A permit that comes back is either taken by a passer-by or reaches the waiter; it is never in both hands, nor in none.
#[test]
fn try_acquire_vs_hand_over() {
    loom::model(|| {
        let semaphore = Arc::new(AsyncSemaphore::new(0));
        let mut waiter = semaphore.acquire();
        assert!(poll_once(&mut waiter).is_pending());
        let passer_by = spawn(&semaphore, |semaphore| match semaphore.try_acquire() {
            Ok(permit) => {
                permit.forget();
                true
            }
            Err(TryAcquireError::NoPermits) => false,
            Err(TryAcquireError::Closed) => unreachable!(),
        });
        semaphore.add_permits(1);
        let taken = passer_by.join().unwrap();
        assert_eq!(poll_once(&mut waiter).is_ready(), !taken);
        drop(waiter);
        assert_eq!(semaphore.available_permits(), usize::from(!taken));
    });
}

//! What the suite for every backend does not ask of the example of a backend of one's own. The suite runs in
//! `examples/own_backend`.

#[path = "../../examples/own_backend/src/file_locks.rs"]
mod file_locks;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use file_locks::FileLocks;
use latchwork::backend::{AcquireOutcome, Backend, LockName, Mode};
use latchwork::{LeaseId, LockClient, LockError};
use latchwork_conformance::commands::Commands as _;

/// What the suite does not ask, since its tasks share a thread: two threads, which may as well be processes,
/// make steps at the same time, the first of which makes the lock's directory. Both go for each lock again
/// and again; one of them gets it each time.
#[tokio::test]
async fn steps_made_at_once_are_atomic() {
    const THREADS: usize = 2;
    const NAMES: usize = 100;
    const ROUNDS: usize = 20;
    let directory = tempfile::tempdir().unwrap();
    let arrived = AtomicUsize::new(0);
    // Not a `Barrier`: a thread that sleeps there comes too late to meet another.
    let meet = || {
        // Ordering: Relaxed, as nothing is read through it.
        let stage = arrived.fetch_add(1, Ordering::Relaxed) / THREADS;
        // Ordering: Relaxed, as above.
        while arrived.load(Ordering::Relaxed) < (stage + 1) * THREADS {
            std::hint::spin_loop();
        }
    };
    let won = AtomicUsize::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (directory, won, meet) = (&directory, &won, &meet);
            scope.spawn(move || {
                let files = FileLocks::new(directory.path());
                let id: LeaseId = format!("8743c9c0-0795-4907-87fd-6c719a6b4586:{thread}").parse().unwrap();
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                for round in 0..NAMES * ROUNDS {
                    let name = LockName::new(&(round / ROUNDS).to_string()).unwrap();
                    meet();
                    // The backend's own step, as what a lock does around it would bring the two out of step.
                    // An error is not a panic, as the other thread would wait for this one; it is seen by the
                    // count.
                    let tried =
                        runtime.block_on(files.acquire(Mode::Plain, &name, &files.request(&id, LEASE)));
                    if matches!(tried, Ok(AcquireOutcome::Acquired { .. })) {
                        // Ordering: Relaxed, read when the threads have ended.
                        won.fetch_add(1, Ordering::Relaxed);
                    }
                    meet();
                    let _ = runtime.block_on(files.release(Mode::Plain, &name, &id, None));
                }
            });
        }
    });
    assert_eq!(won.into_inner(), NAMES * ROUNDS, "each time one has the lock");
}

/// Longer than the test takes.
const LEASE: Duration = Duration::from_secs(60);

/// They keep plain locks alone, and say so when a client asks for others.
#[tokio::test]
async fn other_locks_than_plain_ones_are_unsupported() {
    let directory = tempfile::tempdir().unwrap();
    let client = LockClient::new(FileLocks::new(directory.path()));
    let refused = [
        (Mode::Fair, client.get_fair_lock("orders").unwrap_err()),
        // Both sides or none: the one that is asked for first is named.
        (Mode::Read, client.get_read_write_lock("orders").unwrap_err()),
    ];
    for (mode, error) in refused {
        assert!(matches!(error, LockError::Unsupported { mode: named, .. } if named == mode), "{error:?}");
        assert!(error.is_refused() && !error.is_retryable());
        let said = error.to_string();
        assert!(said.contains("FileLocks keeps no"), "{said}");
        assert!(said.contains(&format!("{mode} locks")), "{said}");
    }
    let named = client.get_fair_lock("").unwrap_err();
    assert!(matches!(named, LockError::Name(_)), "a name is looked at first: {named:?}");
    client.get_lock("orders").unwrap().lock().await.unwrap().unlock().await.unwrap();
}

//! Checks of the example backend beyond the suite for every backend, which runs in `examples/own_backend`.

#[path = "../../examples/own_backend/src/file_locks.rs"]
mod file_locks;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use file_locks::FileLocks;
use latchwork::backend::{AcquireOutcome, Backend, LockName, Mode};
use latchwork::{LeaseId, LockClient, LockError};
use latchwork_conformance::commands::Commands as _;

/// Two threads, standing in for processes, acquire each lock at once and create the directory; one succeeds.
#[tokio::test]
async fn steps_made_at_once_are_atomic() {
    const THREADS: usize = 2;
    const NAMES: usize = 100;
    const ROUNDS: usize = 20;
    let directory = tempfile::tempdir().unwrap();
    let arrived = AtomicUsize::new(0);
    // Not a `Barrier`: a thread that sleeps wakes too late to collide.
    let meet = || {
        // Ordering: Relaxed, as no other data is published.
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
                    // The lock's own work would pull the threads apart. An error must not panic, since the
                    // other thread would wait; the count shows the error.
                    let tried =
                        runtime.block_on(files.acquire(Mode::Plain, &name, &files.request(&id, LEASE)));
                    if matches!(tried, Ok(AcquireOutcome::Acquired { .. })) {
                        // Ordering: Relaxed, read after the threads have ended.
                        won.fetch_add(1, Ordering::Relaxed);
                    }
                    meet();
                    let _ = runtime.block_on(files.release(Mode::Plain, &name, &id, None));
                }
            });
        }
    });
    assert_eq!(won.into_inner(), NAMES * ROUNDS, "expected one winner of each name in each round");
}

/// Longer than the test takes.
const LEASE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn other_locks_than_plain_ones_are_unsupported() {
    let directory = tempfile::tempdir().unwrap();
    let client = LockClient::new(FileLocks::new(directory.path()));
    let refused = [
        (Mode::Fair, client.get_fair_lock("orders").unwrap_err()),
        // Both sides or none: the error names the side requested first.
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
    assert!(matches!(named, LockError::Name(_)), "expected an error of the name first, and got {named:?}");
    client.get_lock("orders").unwrap().lock().await.unwrap().unlock().await.unwrap();
}

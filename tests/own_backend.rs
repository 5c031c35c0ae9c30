//! The example of a backend of one's own, by the suite for every backend: all of it, each client with a backend to itself, as in
//! processes that share nothing but the directory.

mod conformance;
#[path = "../examples/own_backend/file_locks.rs"]
mod file_locks;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use conformance::{Store, conformance};
use file_locks::FileLocks;
use latchwork::{Backend, LockClient, LockOptions};
use tempfile::TempDir;

struct InDirectory {
    directory: TempDir,
    made: Mutex<Vec<FileLocks>>,
}

impl InDirectory {
    fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), made: Mutex::default() }
    }
}

impl Store for InDirectory {
    type Backend = FileLocks;

    async fn client_with(&self, options: &LockOptions) -> LockClient<FileLocks> {
        let backend = FileLocks::new(self.directory.path());
        self.made.lock().unwrap().push(backend.clone());
        LockClient::with_options(backend, options).unwrap()
    }

    /// The files know of nobody; it is those who watch them that have to end.
    async fn subscribers(&self, channel: &str) -> usize {
        let made = self.made.lock().unwrap();
        let watches =
            |files: &&FileLocks| files.registry().transport().watched.lock().unwrap().contains_key(channel);
        made.iter().filter(watches).count()
    }
}

conformance!(InDirectory::new());

/// What the suite does not ask, since its tasks share a thread: two threads, which may as well be processes, make steps at the same
/// time, the first of which makes the lock's directory. Each enters every lock again and again by the same owner, which is counted.
#[tokio::test]
async fn steps_made_at_once_are_atomic() {
    const THREADS: usize = 2;
    const NAMES: usize = 200;
    const HOLDS: usize = 10;
    let store = InDirectory::new();
    let client = store.client().await;
    let owner = client.owner();
    let arrived = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let client = LockClient::new(FileLocks::new(store.directory.path()));
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                for name in 0..NAMES {
                    let lock = client.get_lock(&name.to_string()).unwrap().owned_by(&owner);
                    // Not a `Barrier`: who sleeps there comes too late to meet anybody.
                    // Ordering: Relaxed, as nothing is read through it.
                    arrived.fetch_add(1, Ordering::Relaxed);
                    // Ordering: Relaxed, as above.
                    while arrived.load(Ordering::Relaxed) < (name + 1) * THREADS {
                        thread::yield_now();
                    }
                    for _ in 0..HOLDS {
                        match runtime.block_on(lock.try_lock_for(Duration::ZERO, LEASE)) {
                            Ok(Some(guard)) => guard.forget(),
                            // Not a panic: the other thread would wait for this one. It is not counted, which is seen below.
                            other => eprintln!("refused: {other:?}"),
                        }
                    }
                }
            });
        }
    });
    for name in 0..NAMES {
        let lock = client.get_lock(&name.to_string()).unwrap();
        assert_eq!(lock.hold_count(&owner).await.unwrap(), (THREADS * HOLDS) as u64, "a step was lost");
    }
}

/// Longer than the test takes.
const LEASE: Duration = Duration::from_secs(60);

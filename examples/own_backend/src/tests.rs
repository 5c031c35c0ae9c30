//! The suite for every backend. Each client has a backend of its own, like a process.

use std::sync::Mutex;

use latchwork::backend::Backend;
use latchwork_conformance::{Store, suite};
use tempfile::TempDir;

use crate::file_locks::FileLocks;

suite!(plain: InDirectory { directory: tempfile::tempdir().unwrap(), made: Mutex::default() });

struct InDirectory {
    directory: TempDir,
    made: Mutex<Vec<FileLocks>>,
}

impl Store for InDirectory {
    type Backend = FileLocks;

    async fn connect(&self) -> FileLocks {
        let backend = FileLocks::new(self.directory.path());
        self.made.lock().unwrap().push(backend.clone());
        backend
    }

    /// The files know no subscribers; instead, the watching tasks have to end.
    async fn subscribers(&self, channel: &str) -> usize {
        let made = self.made.lock().unwrap();
        let watches =
            |files: &&FileLocks| files.registry().transport().watched.lock().unwrap().contains_key(channel);
        made.iter().filter(watches).count()
    }
}

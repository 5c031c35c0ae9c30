//! A server's clock that a test can set.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

use crate::StartError;

const SOURCE: &str = include_str!("clock.c");

/// The time of day of a server, which a test can set like the clock of a machine. Linux only; needs the C
/// compiler that also links Rust programs there.
#[derive(Clone, Debug)]
pub struct ServerClock {
    /// Directory of the library that the server is started with, and of the file with the offset, which the
    /// server reads on each look at the time.
    dir: Arc<TempDir>,
}

impl ServerClock {
    /// A correct clock.
    pub(crate) fn build() -> Result<Self, StartError> {
        let dir = tempfile::Builder::new().prefix("latchwork-clock-").tempdir();
        let clock = Self { dir: Arc::new(dir.map_err(StartError::io("make a directory for a clock"))?) };
        clock.write("0").map_err(StartError::io("write a clock's offset"))?;
        let source = clock.path("clock.c");
        fs::write(&source, SOURCE).map_err(StartError::io("write a clock's source"))?;
        let mut offset = OsString::from("-DOFFSET=\"");
        offset.push(clock.path("offset"));
        offset.push("\"");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-O1", "-o"]).args([clock.library(), source]).arg(offset);
        compiler
            .status()
            .and_then(
                |status| if status.success() { Ok(()) } else { Err(io::Error::other(status.to_string())) },
            )
            .map_err(StartError::io("build a clock with `cc`"))?;
        Ok(clock)
    }

    /// Sets the server's time to `seconds` later than this machine's. Panics if the file is not writable.
    #[track_caller]
    pub fn set(&self, seconds: i64) {
        self.write_or_panic(&seconds.to_string());
    }

    /// Stops the server's time at `micros` since the epoch, until the next call. Panics as
    /// [`set`](Self::set).
    #[track_caller]
    pub fn stop_at(&self, micros: u64) {
        self.write_or_panic(&format!("={micros}"));
    }

    /// The library that a server preloads.
    pub(crate) fn library(&self) -> PathBuf {
        self.path("clock.so")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    #[track_caller]
    fn write_or_panic(&self, time: &str) {
        if let Err(error) = self.write(time) {
            panic!("cannot set a server's clock: {error}");
        }
    }

    /// Replaces the file atomically: a server that reads meanwhile finds the old or the new time.
    fn write(&self, time: &str) -> io::Result<()> {
        let new = self.path("new");
        fs::write(&new, time)?;
        fs::rename(new, self.path("offset"))
    }
}

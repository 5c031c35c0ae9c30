//! A clock that can be set.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;

use crate::StartError;

const SOURCE: &str = include_str!("clock.c");

/// A server's time of day, which can be set as that of its machine could be. Linux only; needs the C compiler
/// that also links Rust programs there.
#[derive(Clone, Debug)]
pub struct ServerClock {
    /// With the library that the server is started with, and how far off it is. The server reads that each
    /// time.
    dir: Arc<TempDir>,
}

impl ServerClock {
    /// A clock that is right so far.
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

    /// From now on the server's time is so many seconds later than this machine's, or earlier.
    ///
    /// # Panics
    ///
    /// If the directory for temporary files cannot be written to any more.
    #[track_caller]
    pub fn set(&self, seconds: i64) {
        self.write_or_panic(&seconds.to_string());
    }

    /// From now on the server's time stands still, at so many microseconds since the epoch, until it is set
    /// again.
    ///
    /// # Panics
    ///
    /// If the directory for temporary files cannot be written to any more.
    #[track_caller]
    pub fn stop_at(&self, micros: u64) {
        self.write_or_panic(&format!("={micros}"));
    }

    /// What a server is to load before its own libraries.
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

    /// In one step: a server that reads it meanwhile finds either.
    fn write(&self, time: &str) -> io::Result<()> {
        let new = self.path("new");
        fs::write(&new, time)?;
        fs::rename(new, self.path("offset"))
    }
}

//! A recipe as a process: its output, its end, and signals to it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Far longer than any line takes, including leases that expire.
const SOON: Duration = Duration::from_secs(30);

/// A process, killed on drop if it still runs.
pub(crate) struct Process {
    pub(crate) child: Child,
    lines: Receiver<String>,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Process {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let (told, lines) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        // The thread ends with the process.
        thread::spawn(move || output.lines().map_while(Result::ok).all(|line| told.send(line).is_ok()));
        Process { child, lines }
    }

    /// Waits for a line with this beginning, skipping others; returns the rest of the line.
    pub(crate) fn wait_for(&self, beginning: &str) -> String {
        let end = Instant::now() + SOON;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|error| panic!("no line that begins with {beginning:?}: {error}"));
            if let Some(rest) = line.strip_prefix(beginning) {
                return rest.to_owned();
            }
        }
    }

    /// True if a line with this beginning has come already. Skips all lines before it.
    pub(crate) fn has_said(&self, beginning: &str) -> bool {
        self.lines.try_iter().any(|line| line.starts_with(beginning))
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let end = Instant::now() + 2 * SOON;
        while Instant::now() < end {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            thread::sleep(Duration::from_millis(5));
        }
        panic!("it has not ended");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // The process may have ended already.
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

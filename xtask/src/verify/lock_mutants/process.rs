//! A check in a process of its own, under a time limit.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Passed,
    /// The binary's first failed test. The remaining tests were not awaited.
    Failed(Option<String>),
    TooLate,
}

/// Runs `command` until it has ended, a test has failed, or the time limit is over.
pub(super) fn run(command: &mut Command, limit: Duration) -> Result<Ended> {
    let deadline = Instant::now() + limit;
    let mut child = command
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("cannot run {command:?}"))?;
    let output = BufReader::new(child.stdout.take().context("its output is piped")?);
    let (sender, failures) = channel();
    thread::spawn(move || {
        for line in output.lines().map_while(Result::ok) {
            if let Some(name) = line.strip_prefix("test ").and_then(|line| line.strip_suffix(" ... FAILED")) {
                let _ = sender.send(name.to_owned());
            }
        }
    });
    match failures.recv_timeout(limit) {
        Ok(name) => {
            end(&mut child)?;
            Ok(Ended::Failed(Some(name)))
        }
        Err(RecvTimeoutError::Timeout) => {
            end(&mut child)?;
            Ok(Ended::TooLate)
        }
        // The process has closed its output, and ends soon or hangs.
        Err(RecvTimeoutError::Disconnected) => loop {
            if let Some(status) = child.try_wait()? {
                break Ok(if status.success() { Ended::Passed } else { Ended::Failed(None) });
            } else if Instant::now() > deadline {
                end(&mut child)?;
                break Ok(Ended::TooLate);
            }
            thread::sleep(Duration::from_millis(2));
        },
    }
}

fn end(child: &mut Child) -> Result<()> {
    child.kill()?;
    child.wait()?;
    Ok(())
}

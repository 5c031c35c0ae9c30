//! Canaries: runs that must fail.

use std::time::Instant;

use anyhow::{Error, Result, bail, ensure};
use xshell::Cmd;

/// Number of seeded faults, and of found ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) seeded: usize,
    pub(crate) killed: usize,
}

/// Counts runs that must fail. A run that passes is reported at the end, after the other canaries.
#[derive(Debug, Default)]
pub(crate) struct Canaries {
    tally: Tally,
    survived: Vec<Error>,
}

impl Canaries {
    /// Runs `command` with a fault seeded into the library. The run must fail, and print `expected`.
    pub(crate) fn must_find(&mut self, command: Cmd<'_>, fault: &str, expected: &str) {
        self.must_fail(command.env("LATCHWORK_FAULT", fault), fault, expected);
    }

    /// Runs `command`, in which `fault` is. The run must fail, and print `expected`.
    pub(crate) fn must_fail(&mut self, command: Cmd<'_>, fault: &str, expected: &str) {
        self.tally.seeded += 1;
        match fails(command, fault, expected) {
            Ok(()) => self.tally.killed += 1,
            Err(survived) => {
                eprintln!("{survived:#}");
                self.survived.push(survived);
            }
        }
    }

    pub(crate) fn tally(&self) -> Tally {
        self.tally
    }

    /// Fails if a fault was not found.
    pub(crate) fn result(&self) -> Result<()> {
        let survived: Vec<String> = self.survived.iter().map(|error| format!("{error:#}")).collect();
        ensure!(survived.is_empty(), "{}", survived.join("\n"));
        Ok(())
    }
}

fn fails(command: Cmd<'_>, fault: &str, expected: &str) -> Result<()> {
    let start = Instant::now();
    let output = command.quiet().ignore_status().output()?;
    if output.status.success() {
        bail!("{fault} was not found: this check cannot fail");
    }
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let Some(line) = said.lines().find(|line| line.contains(expected)) else {
        bail!("with {fault} it failed, but not by saying {expected:?}:\n{said}");
    };
    eprintln!("{fault}: found in {:.1} s: {}", start.elapsed().as_secs_f64(), line.trim());
    Ok(())
}

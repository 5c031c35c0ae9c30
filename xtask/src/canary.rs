//! Canaries: runs that must fail.

use std::time::Instant;

use anyhow::{Result, bail};
use xshell::Cmd;

/// Runs `command` with a fault seeded into the library. It must fail, and say `expected`.
pub(crate) fn must_find(command: Cmd<'_>, fault: &str, expected: &str) -> Result<()> {
    must_fail(command.env("LATCHWORK_FAULT", fault), fault, expected)
}

/// Runs `command`, in which `fault` is. It must fail, and say `expected`.
pub(crate) fn must_fail(command: Cmd<'_>, fault: &str, expected: &str) -> Result<()> {
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

//! [`run`]: a command whose output is shown while it runs, and available afterwards.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use xshell::Cmd;

pub(super) struct Said {
    pub(super) lines: Vec<String>,
    succeeded: bool,
    command: String,
}

/// Runs a command to its end, and shows its output as it comes. Fails if the command cannot be run. A failure
/// of the command is reported by [`Said::result`], since its output counts either way.
pub(super) fn run(command: Cmd<'_>) -> Result<Said> {
    let text = command.to_string();
    eprintln!("$ {text}");
    let mut child = Command::from(command)
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run `{text}`"))?;
    let mut lines = Vec::new();
    for line in BufReader::new(child.stdout.take().context("no pipe")?).lines() {
        let line = line?;
        println!("{line}");
        lines.push(line);
    }
    let succeeded = child.wait()?.success();
    Ok(Said { lines, succeeded, command: text })
}

impl Said {
    /// Fails if the command has failed.
    pub(super) fn result(&self) -> Result<()> {
        if !self.succeeded {
            bail!("`{}` has failed", self.command);
        }
        Ok(())
    }

    /// The number before `what` in the first line with such a number.
    pub(super) fn number_before(&self, what: &str) -> Option<usize> {
        let before = |line: &String| {
            let (before, _) = line.split_once(what)?;
            before.trim_end().rsplit(' ').next()?.parse().ok()
        };
        self.lines.iter().find_map(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_stands_before_what_it_counts() {
        let lines = ["NoLook: it does not look", "all 30 mutants are found out"].map(str::to_owned).into();
        let said = Said { lines, succeeded: true, command: String::new() };
        assert_eq!(said.number_before("mutants are found out"), Some(30));
        assert_eq!(said.number_before("survive"), None);
    }
}

//! [`Table`]: a row for each part, however the part ended.

use std::env;
use std::fmt;
use std::fs::OpenOptions;
use std::io::Write;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::canary::Tally;

#[derive(Debug)]
pub(super) struct Row {
    pub(super) check: String,
    pub(super) covers: &'static str,
    pub(super) tally: Tally,
    pub(super) time: Duration,
    pub(super) result: Outcome,
    /// Checks of the part that could not run here, with the reasons.
    pub(super) left_out: Vec<String>,
}

#[derive(Debug)]
pub(super) enum Outcome {
    Held,
    Failed,
    /// The reason.
    Skipped(String),
}

#[derive(Debug, Default)]
pub(super) struct Table(pub(super) Vec<Row>);

impl Table {
    /// Appends the table to the job's summary, if CI provides one.
    pub(super) fn summarise(&self) -> Result<()> {
        let Some(path) = env::var_os("GITHUB_STEP_SUMMARY") else { return Ok(()) };
        let mut file = OpenOptions::new().append(true).create(true).open(&path)?;
        writeln!(file, "{self}").with_context(|| format!("cannot write {}", path.display()))
    }
}

impl Row {
    fn cells(&self) -> [String; 5] {
        let Tally { killed, seeded } = self.tally;
        let is_skipped = matches!(self.result, Outcome::Skipped(_));
        let killed = if seeded == 0 { "–".to_owned() } else { format!("{killed} / {seeded}") };
        let time = if is_skipped { "–".to_owned() } else { format!("{:.0} s", self.time.as_secs_f64()) };
        let result = match &self.result {
            Outcome::Held => "ok".to_owned(),
            Outcome::Failed => "FAILED".to_owned(),
            Outcome::Skipped(why) => format!("skipped: {why}"),
        };
        let result = std::iter::once(result)
            .chain(self.left_out.iter().map(|what| format!("without {what}")))
            .collect::<Vec<_>>()
            .join("; ");
        [self.check.clone(), self.covers.to_owned(), killed, time, result]
    }
}

/// As Markdown, with aligned columns.
impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = ["check", "covers", "mutants killed / seeded", "time", "result"].map(str::to_owned);
        let rows: Vec<[String; 5]> = std::iter::once(head).chain(self.0.iter().map(Row::cells)).collect();
        let widest = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        let widths: Vec<usize> = (0..5).map(|column| widest(column).unwrap_or_default()).collect();
        for (number, row) in rows.iter().enumerate() {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
            writeln!(f, "| {} |", cells.collect::<Vec<_>>().join(" | ").trim_end())?;
            if number == 0 {
                let lines = widths.iter().map(|width| "-".repeat(*width));
                writeln!(f, "| {} |", lines.collect::<Vec<_>>().join(" | "))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_says_what_was_found_and_what_was_left_out() {
        let row = |check: &str, tally, result, left_out: &[&str]| Row {
            check: check.to_owned(),
            covers: "it",
            tally,
            time: Duration::from_secs(3),
            result,
            left_out: left_out.iter().map(|what| (*what).to_owned()).collect(),
        };
        let table = Table(vec![
            row("one", Tally { seeded: 3, killed: 2 }, Outcome::Failed, &[]),
            row("another", Tally::default(), Outcome::Skipped("no tool".to_owned()), &[]),
            row("third", Tally::default(), Outcome::Held, &["advisories"]),
        ]);
        let text = table.to_string();
        let cells: Vec<Vec<&str>> =
            text.lines().map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect();
        assert_eq!(cells[2], ["one", "it", "2 / 3", "3 s", "FAILED"]);
        assert_eq!(cells[3], ["another", "it", "–", "–", "skipped: no tool"]);
        assert_eq!(cells[4], ["third", "it", "–", "3 s", "ok; without advisories"]);
    }
}

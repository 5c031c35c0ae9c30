//! Steps of a task: each with a heading, a name for failures, and its duration.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::canary::{Canaries, Tally};

#[derive(Debug)]
pub(crate) struct Steps {
    began: Instant,
    done: Vec<Step>,
    tally: Tally,
    left_out: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) name: String,
    pub(crate) time: Duration,
    /// Further information, such as the number of passed tests.
    pub(crate) note: String,
}

impl Default for Steps {
    fn default() -> Self {
        Self { began: Instant::now(), done: Vec::new(), tally: Tally::default(), left_out: Vec::new() }
    }
}

impl Steps {
    pub(crate) fn run<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        // On stderr, like the output of cargo and the echoed commands: stdout could be out of order.
        eprintln!("\n==> {name}");
        let start = Instant::now();
        let result = step().with_context(|| format!("the step `{name}` failed"));
        self.add(Step { name: name.to_owned(), time: start.elapsed(), note: String::new() });
        result
    }

    /// Runs a step of canaries. All run, and are counted, even after a survivor.
    pub(crate) fn canaries(
        &mut self,
        name: &str,
        step: impl FnOnce(&mut Canaries) -> Result<()>,
    ) -> Result<()> {
        let mut canaries = Canaries::default();
        let result = self.run(name, || {
            step(&mut canaries)?;
            canaries.result()
        });
        self.count(canaries.tally());
        result
    }

    /// Adds the counts of a step that has counted its own seeded faults.
    pub(crate) fn count(&mut self, tally: Tally) {
        self.tally.seeded += tally.seeded;
        self.tally.killed += tally.killed;
    }

    /// Reports a part of the task that cannot run here, with the reason.
    pub(crate) fn leave_out(&mut self, what_and_why: String) {
        eprintln!("\nleft out: {what_and_why}");
        self.left_out.push(what_and_why);
    }

    /// The counts and the left-out parts since the last call.
    pub(crate) fn take_report(&mut self) -> (Tally, Vec<String>) {
        (std::mem::take(&mut self.tally), std::mem::take(&mut self.left_out))
    }

    pub(crate) fn add(&mut self, step: Step) {
        self.done.push(step);
    }
}

/// Prints the duration of each step, and of the task: steps side by side add up to more.
impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |time: Duration| format!("{:.1} s", time.as_secs_f64());
        let width = self.done.iter().map(|step| step.name.chars().count()).max().unwrap_or_default();
        for Step { name, time, note } in &self.done {
            writeln!(f, "{}", format!("{name:width$}  {:>9}  {note}", seconds(*time)).trim_end())?;
        }
        write!(f, "{:width$}  {:>9}", "from beginning to end", seconds(self.began.elapsed()))
    }
}

//! Steps of a task: each with a heading, a name to fail by, and the time it took.

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
    /// What there is to say of it besides, such as how many tests passed.
    pub(crate) note: String,
}

impl Default for Steps {
    fn default() -> Self {
        Self { began: Instant::now(), done: Vec::new(), tally: Tally::default(), left_out: Vec::new() }
    }
}

impl Steps {
    pub(crate) fn run<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        // To stderr, where cargo and the echoed commands go: on stdout it could appear out of order.
        eprintln!("\n==> {name}");
        let start = Instant::now();
        let result = step().with_context(|| format!("the step `{name}` failed"));
        self.add(Step { name: name.to_owned(), time: start.elapsed(), note: String::new() });
        result
    }

    /// A step of runs that must fail. All are run, and counted, whichever of them do not.
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

    /// Counts seeded faults of which a step has said itself how many it found.
    pub(crate) fn count(&mut self, tally: Tally) {
        self.tally.seeded += tally.seeded;
        self.tally.killed += tally.killed;
    }

    /// Something that belongs to the task and cannot be done here, with the reason.
    pub(crate) fn leave_out(&mut self, what_and_why: String) {
        eprintln!("\nleft out: {what_and_why}");
        self.left_out.push(what_and_why);
    }

    /// What was counted and left out since the last call.
    pub(crate) fn take_report(&mut self) -> (Tally, Vec<String>) {
        (std::mem::take(&mut self.tally), std::mem::take(&mut self.left_out))
    }

    /// A step that ran beside others.
    pub(crate) fn add(&mut self, step: Step) {
        self.done.push(step);
    }
}

/// The time of each step, a line each, and of all: steps that ran side by side add up to more than that.
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

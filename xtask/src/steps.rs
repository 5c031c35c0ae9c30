//! Steps of a task: each with a heading, a name to fail by, and the time it took.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

#[derive(Debug)]
pub(crate) struct Steps {
    began: Instant,
    done: Vec<Step>,
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
        Self { began: Instant::now(), done: Vec::new() }
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

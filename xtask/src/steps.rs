//! Steps of a task: each with a heading, a name to fail by, and the time it took.

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

#[derive(Debug, Default)]
pub(crate) struct Steps(Vec<(String, Duration)>);

impl Steps {
    pub(crate) fn run<T>(&mut self, name: &str, step: impl FnOnce() -> Result<T>) -> Result<T> {
        // To stderr, where cargo and the echoed commands go: on stdout it could appear out of order.
        eprintln!("\n==> {name}");
        let start = Instant::now();
        let result = step().with_context(|| format!("the step `{name}` failed"));
        self.0.push((name.to_owned(), start.elapsed()));
        result
    }
}

/// The time each step took, in one line.
impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, time) in &self.0 {
            write!(f, "{name} {:.1} s, ", time.as_secs_f64())?;
        }
        let total: Duration = self.0.iter().map(|(_, time)| time).sum();
        write!(f, "together {:.1} s", total.as_secs_f64())
    }
}

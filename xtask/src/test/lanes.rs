//! Commands that run side by side, in lanes: one command at a time in each, as they stand in its queue.

use std::collections::VecDeque;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Result, bail};

use crate::steps::{Step, Steps};

/// A command whose output is printed at once when it has ended: of several that run, lines of one would stand
/// between lines of another.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) command: Command,
}

/// What a lane works off. Lanes of one queue share its jobs.
#[derive(Debug)]
pub(crate) struct Queue {
    pub(crate) jobs: Vec<Job>,
    pub(crate) lanes: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) passed: usize,
    pub(crate) failed: usize,
}

impl Totals {
    /// What the harnesses of a run say at their ends, added up.
    fn of(output: &str) -> Totals {
        let mut totals = Totals::default();
        for line in output.lines().filter_map(|line| line.strip_prefix("test result: ")) {
            let number = |what: &str| -> usize {
                let before = line.split(what).next().unwrap_or_default();
                before.trim_end().rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
            };
            totals.passed += number(" passed;");
            totals.failed += number(" failed;");
        }
        totals
    }
}

/// Runs all, whichever fail, and says which. `loud`: prints what those say that succeed, too.
pub(crate) fn run(steps: &mut Steps, queues: Vec<Queue>, loud: bool) -> Result<Totals> {
    let (done, failed) = (Mutex::new((steps, Totals::default())), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for Queue { jobs, lanes } in queues {
            let jobs = Arc::new(Mutex::new(VecDeque::from(jobs)));
            for _ in 0..lanes {
                let (jobs, done, failed) = (Arc::clone(&jobs), &done, &failed);
                scope.spawn(move || {
                    while let Some(job) = next(&jobs) {
                        let name = job.name.clone();
                        let (step, totals, succeeded) = carry_out(job, loud);
                        let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
                        done.0.add(step);
                        done.1.passed += totals.passed;
                        done.1.failed += totals.failed;
                        if !succeeded {
                            failed.lock().unwrap_or_else(PoisonError::into_inner).push(name);
                        }
                    }
                });
            }
        }
    });
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if !failed.is_empty() {
        bail!("failed: {}", failed.join(", "));
    }
    Ok(done.into_inner().unwrap_or_else(PoisonError::into_inner).1)
}

fn next(jobs: &Mutex<VecDeque<Job>>) -> Option<Job> {
    jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

/// The step, what its tests came to, and whether it succeeded.
fn carry_out(job: Job, loud: bool) -> (Step, Totals, bool) {
    let Job { name, mut command } = job;
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).output();
    let time = start.elapsed();
    let (said, succeeded) = match output {
        Ok(output) => {
            let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
            (said.concat(), output.status.success())
        }
        Err(error) => (format!("cannot run {command:?}: {error}\n"), false),
    };
    let totals = Totals::of(&said);
    let count = match totals {
        Totals { passed: 0, failed: 0 } => String::new(),
        Totals { passed, failed: 0 } => format!("{passed} passed"),
        Totals { passed, failed } => format!("{passed} passed, {failed} failed"),
    };
    let result = if succeeded { "ok" } else { "FAILED" };
    // In one go: another lane may print as well.
    let text = if loud || !succeeded { said.as_str() } else { "" };
    eprintln!("{text}==> {name}: {result} after {:.1} s  {count}", time.as_secs_f64());
    let note = if succeeded { count } else { format!("{count} FAILED").trim_start().to_owned() };
    (Step { name, time, note }, totals, succeeded)
}

//! Commands side by side, in lanes: each lane runs one command at a time, in the order of its queue. When a
//! whole queue has ended, one of its lanes helps with the others; no sooner, because the waiting tests would
//! be late beside more computing tests.

use std::collections::VecDeque;
use std::iter::Sum;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use crate::steps::{Step, Steps};

/// A command whose output is printed when it has ended: otherwise the lines of several commands would mix.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) name: String,
    pub(crate) command: Command,
}

/// Jobs, and the number of lanes that begin with them.
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
    /// Adds up the results that the test harnesses print at their ends.
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

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) totals: Totals,
    pub(crate) failed: Vec<String>,
}

impl Sum for Outcome {
    fn sum<I: Iterator<Item = Outcome>>(outcomes: I) -> Outcome {
        outcomes.fold(Outcome::default(), |mut sum, one| {
            sum.totals.passed += one.totals.passed;
            sum.totals.failed += one.totals.failed;
            sum.failed.extend(one.failed);
            sum
        })
    }
}

/// Runs all jobs, even after a failure. `loud`: prints the output of successful jobs, too.
pub(crate) fn run(steps: &mut Steps, queues: Vec<Queue>, loud: bool) -> Outcome {
    let done = Mutex::new((steps, Vec::new()));
    let work_off = |queues: &[Mutex<VecDeque<Job>>]| {
        while let Some(job) = next(queues) {
            let (step, outcome) = carry_out(job, loud);
            let mut done = done.lock().unwrap_or_else(PoisonError::into_inner);
            done.0.add(step);
            done.1.push(outcome);
        }
    };
    let (jobs, lanes): (Vec<_>, Vec<_>) =
        queues.into_iter().map(|queue| (Mutex::new(VecDeque::from(queue.jobs)), queue.lanes)).unzip();
    let at_work: Vec<_> = lanes.iter().map(|lanes| AtomicUsize::new(*lanes)).collect();
    thread::scope(|scope| {
        for (own, (lanes, at_work)) in lanes.iter().zip(&at_work).enumerate() {
            for _ in 0..*lanes {
                let (jobs, work_off) = (&jobs, &work_off);
                scope.spawn(move || {
                    work_off(&jobs[own..=own]);
                    // Ordering: Relaxed, as mutexes protect the jobs.
                    if at_work.fetch_sub(1, Ordering::Relaxed) == 1 {
                        work_off(jobs);
                    }
                });
            }
        }
    });
    let (_, outcomes) = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    outcomes.into_iter().sum()
}

fn next(queues: &[Mutex<VecDeque<Job>>]) -> Option<Job> {
    queues.iter().find_map(|jobs| jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front())
}

/// Runs the job; returns the step, and the job's results.
fn carry_out(job: Job, loud: bool) -> (Step, Outcome) {
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
    let text = match (succeeded, loud) {
        (true, false) => String::new(),
        (false, false) => without_successes(&said),
        (_, true) => said.clone(),
    };
    // In one call: another lane may print as well.
    eprintln!("{text}==> {name}: {result} after {:.1} s  {count}", time.as_secs_f64());
    let note = if succeeded { count } else { format!("{count} FAILED").trim_start().to_owned() };
    let failed = if succeeded { Vec::new() } else { vec![name.clone()] };
    (Step { name, time, note }, Outcome { totals, failed })
}

/// Removes the lines of passed tests: among hundreds, a failure is hard to find.
fn without_successes(said: &str) -> String {
    let is_success = |line: &str| line.starts_with("test ") && line.trim_end().ends_with("... ok");
    said.split_inclusive('\n').filter(|line| !is_success(line)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "running 3 tests\ntest a::b ... ok\ntest c ... FAILED\ntest d ... ok\n\nfailures:\n\n\
                        ---- c stdout ----\nit is wrong\n\ntest result: FAILED. 2 passed; 1 failed; 0 ignored\n";

    #[test]
    fn tests_are_counted() {
        let Totals { passed, failed } = Totals::of(SAID);
        assert_eq!((passed, failed), (2, 1));
    }

    #[test]
    fn report_of_a_failure_omits_the_successes() {
        let text = without_successes(SAID);
        assert!(
            !text.contains("a::b") && text.contains("it is wrong") && text.contains("test c ..."),
            "{text}"
        );
    }
}

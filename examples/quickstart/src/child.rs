//! A child process of the job: reads its assignment from stdin, reports on stdout in lines of JSON.

use std::io::{self, BufRead, Read, Write};
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;

use latchwork::LockClient;
use latchwork::redis::Redis;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

use crate::outcome::LockOutcome;
use crate::plan::Plan;
use crate::redis_numbers::{RedisNumbers, Run};
use crate::{Error, WRONG_COUNT_OR_FAILURE, job, progress, with_causes};

/// The assignment of a child. Not on its command line, which all users can see: the URL may hold a password.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Assignment {
    pub(crate) url: String,
    pub(crate) run: Run,
    pub(crate) plan: Plan,
    pub(crate) tasks: Range<u32>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Report {
    /// Further increments, and the numbers of the locks that this process holds now.
    Progress(u64, Vec<usize>),
    /// All increments are done. One outcome for each lock.
    Done(Vec<LockOutcome>),
    Failed(String),
}

pub(crate) async fn run() -> ExitCode {
    let assignment = match Assignment::read() {
        Ok(assignment) => assignment,
        Err(error) => return give_up(&*error),
    };
    tokio::select! {
        done = work(&assignment) => match done {
            Ok(locks) => {
                tell(&Report::Done(locks));
                ExitCode::SUCCESS
            }
            Err(error) => give_up(&*error),
        },
        () = parent_is_gone() => {
            // No other process is left to clean up.
            let _ = clean_up(assignment).await;
            ExitCode::from(WRONG_COUNT_OR_FAILURE)
        }
    }
}

impl Assignment {
    fn read() -> Result<Self, Error> {
        let mut line = String::new();
        io::stdin().lock().read_line(&mut line)?;
        Ok(serde_json::from_str(&line)?)
    }
}

async fn work(assignment: &Assignment) -> Result<Vec<LockOutcome>, Error> {
    let Assignment { url, run, plan, tasks } = assignment;
    let client = LockClient::new(Redis::connect(url).await?);
    let numbers = RedisNumbers::connect(url, run.clone(), plan.locks).await?;
    let names: Vec<String> = (0..plan.locks).map(|lock| run.lock(lock)).collect();
    let behind = (0..).zip(&names).map(|(lock, name)| Ok((client.get_lock(name)?, numbers.number(lock))));
    let behind = behind.collect::<Result<Vec<_>, Error>>()?;

    let done = Arc::default();
    let job = job::run(plan, tasks.clone(), behind, &done);
    let tell = |more| tell(&Report::Progress(more, progress::held(&client, &names)));
    progress::while_running(job, &done, tell).await
}

async fn clean_up(assignment: Assignment) -> Result<(), Error> {
    let Assignment { url, run, plan, .. } = assignment;
    RedisNumbers::connect(&url, run, plan.locks).await?.delete().await
}

/// Waits until stdin closes. The parent holds the other end and does not write to it again, so stdin closes
/// when the parent ends, however it ends.
async fn parent_is_gone() {
    let (gone, told) = oneshot::channel();
    // A thread of its own, because reading stdin blocks; it ends with the process.
    thread::spawn(move || {
        let _ = io::stdin().lock().read_to_end(&mut Vec::new());
        let _ = gone.send(());
    });
    let _ = told.await;
}

fn give_up(error: &dyn std::error::Error) -> ExitCode {
    tell(&Report::Failed(with_causes(error)));
    ExitCode::from(WRONG_COUNT_OR_FAILURE)
}

fn tell(report: &Report) {
    let line = serde_json::to_string(report).expect("a report has nothing that JSON has not");
    // Fails only when the parent is gone, which `parent_is_gone` notices.
    let _ = writeln!(io::stdout(), "{line}");
}

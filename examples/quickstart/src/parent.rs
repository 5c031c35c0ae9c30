//! The job in several processes over Redis: starts children, gathers reports, and cleans up.

use std::env;
use std::io;
use std::process::{ExitStatus, Stdio};
use std::time::Instant;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};
use tokio::task::JoinSet;

use crate::child::{Assignment, Report};
use crate::outcome::{LockOutcome, Outcome};
use crate::plan::Plan;
use crate::progress::Picture;
use crate::redis_numbers::{RedisNumbers, Run};
use crate::{Error, with_causes};

pub(crate) async fn run(url: &str, plan: &Plan, processes: u32) -> Result<Outcome, Error> {
    let run = Run::unique();
    let numbers = RedisNumbers::connect(url, run.clone(), plan.locks).await?;
    let assignments = (0..processes).map(|process| Assignment {
        url: url.to_owned(),
        run: run.clone(),
        plan: plan.clone(),
        tasks: plan.tasks_of(process, processes),
    });

    let picture = Picture::draw(processes, plan.locks, plan.increments);
    let outcome = count(plan, assignments, &picture, &numbers).await;
    // Delete the keys after a failure, too; but the job's error is the more interesting one.
    let deleted = numbers.delete().await;
    let outcome = outcome?;
    deleted?;
    Ok(outcome)
}

async fn count(
    plan: &Plan,
    assignments: impl Iterator<Item = Assignment>,
    picture: &Picture,
    numbers: &RedisNumbers,
) -> Result<Outcome, Error> {
    let started = Instant::now();
    let mut children = Vec::new();
    let gathered = gather(plan, assignments, picture, &mut children).await;
    let took = started.elapsed();
    // After a failure, other children may still run.
    for child in &mut children {
        end(child).await?;
    }
    let locks = gathered?;
    Ok(Outcome { expected: plan.increments, counted: numbers.counted().await?, took, locks })
}

/// Starts a child for each assignment and adds up their reports. The first failure ends the gathering, and
/// leaves the other children running.
async fn gather(
    plan: &Plan,
    assignments: impl Iterator<Item = Assignment>,
    picture: &Picture,
    children: &mut Vec<Child>,
) -> Result<Vec<LockOutcome>, Error> {
    let mut reports = JoinSet::new();
    for (process, assignment) in assignments.enumerate() {
        children.push(start()?);
        let child = &mut children[process];
        let report = last_report(process, child.stdout.take().expect("stdout is a pipe"), picture.clone());
        reports.spawn(async move { (process, report.await) });
        if let Err(error) = assign(child, &assignment).await {
            return Err(failed(process, children, &format!("it cannot be told what to do: {error}")));
        }
    }

    let mut locks = vec![LockOutcome::default(); plan.locks as usize];
    while let Some(ended) = reports.join_next().await {
        let (process, report) = ended?;
        match report.map_err(|error| failed(process, children, &with_causes(&*error)))? {
            Some(Report::Done(more)) => {
                locks.iter_mut().zip(&more).for_each(|(lock, more)| lock.add(more));
                children[process].wait().await?;
            }
            Some(Report::Failed(why)) => return Err(failed(process, children, &why)),
            Some(Report::Progress(..)) | None => {
                let status = end(&mut children[process]).await?;
                return Err(failed(process, children, &format!("it ended before its tasks did ({status})")));
            }
        }
    }
    picture.finish();
    Ok(locks)
}

fn failed(process: usize, children: &[Child], why: &str) -> Error {
    format!("process {} of {} failed: {why}", process + 1, children.len()).into()
}

fn start() -> io::Result<Child> {
    Command::new(env::current_exe()?)
        .arg("--child")
        // The child ends when this end of the pipe closes: at the latest with this process.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // Ctrl-C goes to a whole process group. In a group of its own, a child outlives us to clean up.
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
}

async fn assign(child: &mut Child, assignment: &Assignment) -> Result<(), Error> {
    let line = serde_json::to_string(assignment)? + "\n";
    // Borrowed, because dropping stdin would close it.
    let stdin = child.stdin.as_mut().expect("stdin is a pipe");
    stdin.write_all(line.as_bytes()).await?;
    Ok(stdin.flush().await?)
}

/// Draws the child's reports; returns the last report, or `None` if the child ends without one.
async fn last_report(process: usize, stdout: ChildStdout, picture: Picture) -> Result<Option<Report>, Error> {
    let mut lines = BufReader::new(stdout).lines();
    while let Some(line) = lines.next_line().await? {
        match serde_json::from_str(&line)? {
            Report::Progress(more, held) => picture.tell(process, more, &held),
            last => return Ok(Some(last)),
        }
    }
    Ok(None)
}

async fn end(child: &mut Child) -> io::Result<ExitStatus> {
    if let Some(status) = child.try_wait()? {
        return Ok(status);
    }
    child.start_kill()?;
    child.wait().await
}

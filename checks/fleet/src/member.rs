//! [`Member`]: a process at the end of two pipes.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use crate::READY;

/// The current program, with other arguments. Panics if the program's path is unknown.
pub fn this_program(args: impl IntoIterator<Item: AsRef<OsStr>>) -> Command {
    let mut command = Command::new(env::current_exe().expect("this is a program"));
    command.args(args);
    command
}

/// A Java program: `class` in the subdirectory `classes` of a directory, with the jars that its file
/// `classpath` lists. Panics if the file cannot be read.
pub fn java(directory: &Path, class: &str) -> Command {
    let file = directory.join("classpath");
    let jars =
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()));
    let mut command = Command::new("java");
    command.args(["-cp", &format!("{}:{}", directory.join("classes").display(), jars.trim()), class]);
    command
}

/// A process. Killed on drop.
#[derive(Debug)]
pub struct Member {
    child: Mutex<Child>,
    stdin: Mutex<ChildStdin>,
    answers: Arc<Answers>,
}

#[derive(Debug, Default)]
struct Answers {
    /// The last answer of each thread, until it is taken; and true if no answer can follow.
    known: Mutex<(HashMap<String, String>, bool)>,
    more: Condvar,
}

/// A thread with an unanswered order.
#[derive(Debug)]
#[must_use]
pub struct Asked<'a> {
    member: &'a Member,
    thread: String,
}

impl Member {
    /// Starts the process, without waiting until it is ready. Panics if the process cannot be started.
    pub fn start(mut command: Command) -> Self {
        let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = spawned.unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let (stdin, stdout) = child.stdin.take().zip(child.stdout.take()).expect("both are pipes");
        let answers = Arc::new(Answers::default());
        thread::spawn({
            let answers = Arc::clone(&answers);
            move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    let (thread, answer) = line.split_once(' ').unwrap_or((&line, ""));
                    let mut known = answers.known.lock().expect("no thread panics under this mutex");
                    known.0.insert(thread.to_owned(), answer.to_owned());
                    answers.more.notify_all();
                }
                answers.known.lock().expect("no thread panics under this mutex").1 = true;
                answers.more.notify_all();
            }
        });
        Self { child: Mutex::new(child), stdin: Mutex::new(stdin), answers }
    }

    /// The words of the process after `ready`. Fails if the process does not become ready.
    pub fn greeting(&self, limit: Duration) -> Result<String, String> {
        self.asked(READY).answer(limit)
    }

    /// Sends an order to a thread.
    pub fn begin(&self, thread: &str, said: &str) -> Asked<'_> {
        let line = format!("{thread} {said}\n");
        // Waiting for the answer finds that a process is dead.
        let _ = self.stdin.lock().expect("no thread panics under this mutex").write_all(line.as_bytes());
        self.asked(thread)
    }

    /// A thread with an earlier order.
    pub fn asked(&self, thread: &str) -> Asked<'_> {
        Asked { member: self, thread: thread.to_owned() }
    }

    /// Calls `does` with the process. Panics if the call fails.
    pub fn with_child<T>(&self, does: impl FnOnce(&mut Child) -> std::io::Result<T>) -> T {
        does(&mut self.child.lock().expect("no thread panics under this mutex")).expect("it is our child")
    }

    /// Stops the process with SIGSTOP.
    pub fn pause(&self) {
        self.with_child(|child| latchwork_testkit::pause(child));
    }

    /// Resumes the process with SIGCONT.
    pub fn resume(&self) {
        self.with_child(|child| latchwork_testkit::resume(child));
    }

    /// Kills the process with SIGKILL, if it has not ended.
    pub fn kill(&self) {
        self.with_child(|child| child.kill().and_then(|()| child.wait()));
    }

    /// The exit status, if the process has ended by itself.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.with_child(Child::try_wait)
    }

    /// The process id, for `/proc`.
    pub fn id(&self) -> u32 {
        self.with_child(|child| Ok(child.id()))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.kill();
    }
}

impl Asked<'_> {
    /// The answer, or `None` at the limit. Fails if the process can no longer answer.
    pub fn within(&self, limit: Duration) -> Result<Option<String>, String> {
        let deadline = Instant::now() + limit;
        let answers = &self.member.answers;
        let mut known = answers.known.lock().expect("no thread panics under this mutex");
        loop {
            if let Some(answer) = known.0.remove(&self.thread) {
                return Ok(Some(answer));
            }
            if known.1 {
                return Err(format!("the process of thread {} is gone", self.thread));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            known = answers.more.wait_timeout(known, left).expect("no thread panics under this mutex").0;
        }
    }

    /// The answer. Fails if the answer does not come within the limit.
    pub fn answer(&self, limit: Duration) -> Result<String, String> {
        self.within(limit)?.ok_or_else(|| format!("thread {} did not answer within {limit:?}", self.thread))
    }
}

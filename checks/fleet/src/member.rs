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

/// This very program, with other arguments.
///
/// # Panics
///
/// If its path is unknown.
pub fn this_program(args: impl IntoIterator<Item: AsRef<OsStr>>) -> Command {
    let mut command = Command::new(env::current_exe().expect("this is a program"));
    command.args(args);
    command
}

/// A program in Java: a class, in a directory with `classes`, and in the file `classpath` its jars.
///
/// # Panics
///
/// If there is no such file.
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
    /// The last answer of each thread, until it is taken; and whether no more will come.
    known: Mutex<(HashMap<String, String>, bool)>,
    more: Condvar,
}

/// A thread that was told something, and has not answered yet.
#[derive(Debug)]
#[must_use]
pub struct Asked<'a> {
    member: &'a Member,
    thread: String,
}

impl Member {
    /// Starts it, and does not wait until it is ready.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
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
                    let mut known = answers.known.lock().expect("no thread panics with it");
                    known.0.insert(thread.to_owned(), answer.to_owned());
                    answers.more.notify_all();
                }
                answers.known.lock().expect("no thread panics with it").1 = true;
                answers.more.notify_all();
            }
        });
        Self { child: Mutex::new(child), stdin: Mutex::new(stdin), answers }
    }

    /// The words of the process about itself, after its word for being ready.
    ///
    /// # Errors
    ///
    /// If the process does not become ready.
    pub fn greeting(&self, limit: Duration) -> Result<String, String> {
        self.asked(READY).answer(limit)
    }

    /// Tells a thread to do something.
    pub fn begin(&self, thread: &str, said: &str) -> Asked<'_> {
        let line = format!("{thread} {said}\n");
        // A process that is dead is found when its answer is waited for.
        let _ = self.stdin.lock().expect("no thread panics with it").write_all(line.as_bytes());
        self.asked(thread)
    }

    /// A thread that was told something before.
    pub fn asked(&self, thread: &str) -> Asked<'_> {
        Asked { member: self, thread: thread.to_owned() }
    }

    /// Does something to the process.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub fn with_child<T>(&self, does: impl FnOnce(&mut Child) -> std::io::Result<T>) -> T {
        does(&mut self.child.lock().expect("no thread panics with it")).expect("it is our child")
    }

    /// Stops it where it stands, with SIGSTOP.
    pub fn pause(&self) {
        self.with_child(|child| latchwork_testkit::pause(child));
    }

    /// Lets it go on, with SIGCONT.
    pub fn resume(&self) {
        self.with_child(|child| latchwork_testkit::resume(child));
    }

    /// Ends it with SIGKILL, if it has not ended.
    pub fn kill(&self) {
        self.with_child(|child| child.kill().and_then(|()| child.wait()));
    }

    /// The exit status, if the process has ended by itself.
    pub fn ended(&self) -> Option<ExitStatus> {
        self.with_child(Child::try_wait)
    }

    /// Its id, for `/proc`.
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
    /// The answer, if it has come within the time.
    ///
    /// # Errors
    ///
    /// If it cannot come any more.
    pub fn within(&self, limit: Duration) -> Result<Option<String>, String> {
        let deadline = Instant::now() + limit;
        let answers = &self.member.answers;
        let mut known = answers.known.lock().expect("no thread panics with it");
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
            known = answers.more.wait_timeout(known, left).expect("no thread panics with it").0;
        }
    }

    /// The answer, which has to come.
    ///
    /// # Errors
    ///
    /// If it does not.
    pub fn answer(&self, limit: Duration) -> Result<String, String> {
        self.within(limit)?.ok_or_else(|| format!("thread {} did not answer within {limit:?}", self.thread))
    }
}

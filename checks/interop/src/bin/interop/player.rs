//! [`Player`]: a process of either side, at the end of a pipe.
//!
//! # What is said
//!
//! A line of words to the player, one line of words back; first the name of the thread that is to do it. A
//! thread does one thing after another, and is one owner.
//!
//! | said | does | answers |
//! |---|---|---|
//! | `lock KIND NAME LEASE` | takes the lock; the lease is in ms, −1: watched | `got`, `got TOKEN` |
//! | `try KIND NAME WAIT LEASE` | the same, waiting for so many ms | the same, `held` |
//! | `unlock KIND NAME` | | `done`, `not-held` |
//! | `force KIND NAME` | frees it, whichever owner has it | `freed`, `free` |
//! | `locked KIND NAME` | | `true`, `false` |
//! | `holds KIND NAME` | how often this thread has it | a number |
//! | `left KIND NAME` | how long its lease lasts | ms, −2: it is free |
//! | `count KIND NAME NUMBER OWN THINK` | takes the lock for a turn, again and again, with up to so many ms in between: adds 1 to both keys, by GET and one command that sets both; kind `read`: adds 1 to OWN, and reads NUMBER twice, up to 10 ms apart | `counted TORN LOST`, after `stop`: in how many turns the NUMBER did not stand still, and after how many the lock was not its own any more |
//! | `pace KIND NAME MS TURN` | takes the lock for up to so many ms, again and again, for MS in all | `waited NSxTIMES …` |
//! | `stop` | ends every `count` of this process | `stopping` |
//!
//! Besides there are `other-kind` and `upgrade`, the typed errors, and `error …`. Kinds: `plain`, `fenced`,
//! `fair`, `read`, `write`; Redisson's `spin`.

use std::collections::HashMap;
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use clap::ValueEnum;

use crate::checks::Checked;
use crate::ours::Twin;

/// Far longer than anything takes that works, and longer than a watched lease, so that it is the check that
/// fails.
pub(crate) const AT_ALL: Duration = Duration::from_secs(60);
/// What a message takes on a busy machine, and far less than a lease.
pub(crate) const SOON: Duration = Duration::from_secs(5);

/// What either side is started with.
#[derive(Clone, Debug)]
pub(crate) struct Sides {
    /// Of the Java side.
    classpath: String,
    /// How ours is broken.
    twin: Option<Twin>,
}

impl Sides {
    pub(crate) fn new(directory: &Path, twin: Option<Twin>) -> Self {
        let file: PathBuf = directory.join("classpath");
        let jars = std::fs::read_to_string(&file)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", file.display()));
        Self { classpath: format!("{}:{}", directory.join("classes").display(), jars.trim()), twin }
    }
}

/// Which side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Ours,
    Redisson,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ours => "ours",
            Self::Redisson => "Redisson's",
        })
    }
}

/// How a player reaches the server.
#[derive(Clone, Debug)]
pub(crate) struct Way {
    pub(crate) locks: String,
    /// For the numbers that are counted.
    pub(crate) data: String,
    pub(crate) watchdog: Duration,
}

#[derive(Debug, Default)]
struct Answers {
    by_thread: Mutex<(HashMap<String, String>, bool)>,
    more: Condvar,
}

#[derive(Debug)]
pub(crate) struct Player {
    pub(crate) side: Side,
    child: Mutex<Child>,
    stdin: Mutex<ChildStdin>,
    answers: Arc<Answers>,
    greeting: String,
}

/// What a thread was told, and has not answered yet.
#[derive(Debug)]
#[must_use]
pub(crate) struct Asked<'a> {
    player: &'a Player,
    thread: String,
    said: String,
}

impl Player {
    pub(crate) fn start(side: Side, sides: &Sides, way: &Way) -> Self {
        let mut command = match side {
            Side::Ours => {
                let mut command = Command::new(std::env::current_exe().expect("we are a program"));
                command.arg("ours");
                if let Some(twin) = sides.twin.as_ref().and_then(ValueEnum::to_possible_value) {
                    command.args(["--twin", twin.get_name()]);
                }
                command
            }
            Side::Redisson => {
                let mut command = Command::new("java");
                command.args(["-cp", &sides.classpath, "Player"]);
                command
            }
        };
        let watchdog = way.watchdog.as_millis().to_string();
        command.args([&way.locks, &way.data, &watchdog]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
        let stdin = child.stdin.take().expect("it is a pipe");
        let mut lines = BufReader::new(child.stdout.take().expect("it is a pipe")).lines();
        let greeting = lines.next().and_then(Result::ok).unwrap_or_default();
        let Some(greeting) = greeting.strip_prefix("ready ").map(str::to_owned) else {
            panic!("a player of {side} side did not start: {greeting:?}")
        };
        let answers = Arc::new(Answers::default());
        std::thread::spawn({
            let answers = Arc::clone(&answers);
            move || {
                for line in lines.map_while(Result::ok) {
                    let (thread, answer) = line.split_once(' ').unwrap_or((&line, ""));
                    let mut known = answers.by_thread.lock().expect("no thread panics with it");
                    known.0.insert(thread.to_owned(), answer.to_owned());
                    answers.more.notify_all();
                }
                answers.by_thread.lock().expect("no thread panics with it").1 = true;
                answers.more.notify_all();
            }
        });
        Self { side, child: Mutex::new(child), stdin: Mutex::new(stdin), answers, greeting }
    }

    /// The version of what it plays.
    pub(crate) fn version(&self) -> &str {
        self.greeting.split(' ').next().unwrap_or_default()
    }

    /// With what the ids of its owners begin.
    pub(crate) fn id(&self) -> &str {
        self.greeting.split(' ').nth(1).unwrap_or_default()
    }

    pub(crate) fn begin(&self, thread: &str, said: &str) -> Asked<'_> {
        let line = format!("{thread} {said}\n");
        // One that is dead is found when its answer is waited for.
        let _ = self.stdin.lock().expect("no thread panics with it").write_all(line.as_bytes());
        self.awaits(thread, said)
    }

    /// What a thread was told before, and has not answered yet.
    pub(crate) fn awaits(&self, thread: &str, said: &str) -> Asked<'_> {
        Asked { player: self, thread: thread.to_owned(), said: said.to_owned() }
    }

    pub(crate) fn kill_9(&self) {
        let mut child = self.child.lock().expect("no thread panics with it");
        let _ = child.kill();
        let _ = child.wait();
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        self.kill_9();
    }
}

impl Asked<'_> {
    /// The answer, if it has come within the time.
    pub(crate) fn within(&self, limit: Duration) -> Checked<Option<String>> {
        let deadline = Instant::now() + limit;
        let mut known = self.player.answers.by_thread.lock().expect("no thread panics with it");
        loop {
            if let Some(answer) = known.0.remove(&self.thread) {
                return Ok(Some(answer));
            }
            if known.1 {
                return Err(format!("the player of {} side is gone, told {:?}", self.player.side, self.said));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            known = self.player.answers.more.wait_timeout(known, left).expect("no thread panics with it").0;
        }
    }

    /// The answer, which has to come.
    pub(crate) fn answer(&self, limit: Duration) -> Checked<String> {
        self.within(limit)?.ok_or_else(|| format!("`{}` was not answered within {limit:?}", self.said))
    }

    /// That the answer is this one.
    pub(crate) fn is(&self, limit: Duration, expected: &str) -> Checked {
        let answer = self.answer(limit)?;
        // A token or not.
        let said = if expected == "got" { answer.split(' ').next().unwrap_or_default() } else { &answer };
        match said == expected {
            true => Ok(()),
            false => {
                Err(format!("`{}` of {} side: {answer}, and not {expected}", self.said, self.player.side))
            }
        }
    }
}

//! Processes of this same program that take turns on one lock.
//!
//! A child is told what to do on its command line, says `ready` when it is connected, begins when it is told
//! to, and then reports in one line of JSON. It keeps its connections until its stdin closes, so that their
//! end is not part of the count.

use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use super::board::{Board, SharedBoard};
use super::clients::{Client, LatchworkRead};
use super::convoy::Convoy;
use super::monitor::{Monitor, Sent};
use super::reading::Reading;
use super::server::Server;
use super::turns::{self, Taken, Turns};
use crate::{each_client, each_client_beside};

/// The option that makes this program a child.
pub const CHILD: &str = "--child";

const READY: &str = "ready";
const GO: &str = "go";

/// What the children do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Part {
    /// Each has one task, and they take turns.
    Turns(Turns),
    /// Each has some tasks, and they all crowd.
    Convoy(Convoy),
    /// Each has some tasks, which read together.
    Reading(Reading),
}

#[derive(Debug, Serialize, Deserialize)]
struct Assignment {
    url: String,
    client: String,
    name: String,
    board: PathBuf,
    process: u64,
    part: Part,
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// What the tasks went through.
    pub taken: Taken,
    /// How often each process got the lock.
    pub by_process: Vec<u64>,
    /// What they left on the board.
    pub board: SharedBoard,
    /// What the server was sent, if it was counted.
    pub sent: Option<Sent>,
}

/// A run of several processes.
#[derive(Debug)]
pub struct Run<'a> {
    /// The client's name.
    pub client: &'a str,
    /// The lock's.
    pub name: &'a str,
    /// How many processes.
    pub processes: u64,
    /// What each of them does.
    pub part: Part,
    /// For how long.
    pub time: Duration,
    /// Whether to count what the server is sent; what it takes is not to be believed then.
    pub counted: bool,
}

impl Run<'_> {
    /// Runs it, and sees that there was one holder at a time, and that nothing is left on the server.
    ///
    /// # Panics
    ///
    /// If it was otherwise, or a process failed.
    pub fn run(&self, server: &mut Server) -> Outcome {
        self.run_beside(server, |_, _| Taken::default())
    }

    /// Runs it beside what `does` is, which says how often it got the lock itself.
    ///
    /// # Panics
    ///
    /// As [`run`](Self::run).
    pub fn run_beside(
        &self,
        server: &mut Server,
        does: impl FnOnce(&mut Server, &Board) -> Taken,
    ) -> Outcome {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("board");
        let board = SharedBoard::open(&path).expect("a file for all");
        let children = (0..self.processes).map(|process| {
            Process::start(&Assignment {
                url: server.url(),
                client: self.client.to_owned(),
                name: self.name.to_owned(),
                board: path.clone(),
                process,
                part: self.part.clone(),
            })
        });
        let mut children: Vec<Process> = children.collect();
        children.iter_mut().for_each(Process::wait_until_ready);

        let monitor = self.counted.then(|| Monitor::begin(server));
        board.begin(self.time);
        children.iter_mut().for_each(Process::go);
        let beside = does(server, &board);
        let reports: Vec<Taken> = children.iter_mut().map(Process::report).collect();
        let by_process = reports.iter().map(|taken| taken.entered).collect();
        let mut taken = beside;
        reports.into_iter().for_each(|child| taken.add(child));
        let sent = monitor.map(|monitor| monitor.end(server));

        children.into_iter().for_each(Process::end);
        board.assert_right(taken.entered);
        server.assert_empty(self.client);
        Outcome { taken, by_process, board, sent }
    }
}

/// A child, as its parent sees it. Killed on drop.
struct Process {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Process {
    fn start(assignment: &Assignment) -> Self {
        let mut child = Command::new(env::current_exe().expect("this program"))
            .arg(CHILD)
            .arg(serde_json::to_string(assignment).expect("nothing that JSON has not"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("one more process");
        let stdout = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        Self { child, stdout }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("stdout can be read");
        line
    }

    fn wait_until_ready(&mut self) {
        assert_eq!(self.line().trim(), READY, "a process failed; see above");
    }

    fn go(&mut self) {
        let stdin = self.child.stdin.as_mut().expect("stdin is a pipe");
        writeln!(stdin, "{GO}").expect("the process runs");
    }

    fn report(&mut self) -> Taken {
        serde_json::from_str(&self.line()).expect("a process failed; see above")
    }

    fn end(mut self) {
        drop(self.child.stdin.take());
        let status = self.child.wait().expect("it is our child");
        assert!(status.success(), "a process failed: {status}");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Does nothing if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What this program does as a child.
///
/// # Panics
///
/// If anything goes wrong; the parent sees that.
pub fn be_child(assignment: &str) {
    let assignment: Assignment = serde_json::from_str(assignment).expect("from our parent");
    let mut entries = Vec::from(each_client!(entry()));
    entries.extend(each_client_beside!(LatchworkFair, entry()));
    entries.extend(each_client_beside!(LatchworkWrite, entry()));
    entries.push(entry::<LatchworkRead>());
    let (_, run) = entries.into_iter().find(|(name, _)| *name == assignment.client).expect("a client's name");
    run(&assignment);
}

type Entry = (&'static str, fn(&Assignment));

fn entry<C: Client>() -> Entry {
    (C::NAME, run::<C>)
}

fn run<C: Client>(assignment: &Assignment) {
    let board = Arc::new(SharedBoard::open(&assignment.board).expect("our parent has made it"));
    let runtime = super::runtime();
    let client = runtime.block_on(async {
        let client = C::connect(&assignment.url, &assignment.name).await;
        // Now the server knows the scripts.
        let guard = client.lock().await;
        client.unlock(guard).await;
        Arc::new(client)
    });
    println!("{READY}");
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line).expect("stdin can be read");
    assert_eq!(line.trim(), GO, "our parent is gone");
    let taken = runtime.block_on(async {
        let mut tasks = JoinSet::new();
        match &assignment.part {
            Part::Turns(turns) => {
                let (turns, process) = (turns.clone(), assignment.process);
                tasks.spawn(async move { turns::take(&*client, &board, process, &turns).await });
            }
            Part::Convoy(convoy) => {
                for _ in 0..convoy.tasks {
                    let (client, board) = (Arc::clone(&client), Arc::clone(&board));
                    let (convoy, process) = (convoy.clone(), assignment.process);
                    tasks.spawn(async move { convoy.walk(&*client, &board, process).await });
                }
            }
            Part::Reading(reading) => {
                for _ in 0..reading.tasks {
                    let (client, board, reading) = (Arc::clone(&client), Arc::clone(&board), reading.clone());
                    tasks.spawn(async move { reading.read(&*client, &board).await });
                }
            }
        }
        let mut taken = Taken::default();
        tasks.join_all().await.into_iter().for_each(|task| taken.add(task));
        taken
    });
    println!("{}", serde_json::to_string(&taken).expect("nothing that JSON has not"));
    let _ = io::stdin().lock().read_to_end(&mut Vec::new());
}

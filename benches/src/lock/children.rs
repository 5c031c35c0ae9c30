//! Processes of this program that take turns on one lock.
//!
//! A child reads its assignment from the command line, says `ready` when it is connected, begins at `go`, and
//! then reports in one line of JSON. The child keeps its connections until it is killed, because closing is
//! not to be counted.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fleet::{Asked, Member, READY, answer, orders, this_program};
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

/// The order to begin, and the thread that reports.
const GO: &str = "go";
const REPORTS: &str = "child";
const PATIENCE: Duration = Duration::from_secs(60);

/// The children's work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Part {
    /// Each child has one task, and they take turns.
    Turns(Turns),
    /// Each child has some tasks, and all of them crowd.
    Convoy(Convoy),
    /// Each child has some tasks, which read together.
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

/// The result of a run.
#[derive(Debug)]
pub struct Outcome {
    /// The tasks' counts and times.
    pub taken: Taken,
    /// Acquisitions of each process.
    pub by_process: Vec<u64>,
    /// The board at the end.
    pub board: SharedBoard,
    /// The commands sent to the server, if they were counted.
    pub sent: Option<Sent>,
}

/// A run of several processes.
#[derive(Debug)]
pub struct Run<'a> {
    /// The client's name.
    pub client: &'a str,
    /// The lock's name.
    pub name: &'a str,
    /// Number of processes.
    pub processes: u64,
    /// The work of each.
    pub part: Part,
    /// Duration.
    pub time: Duration,
    /// True to count the commands, which distorts the times.
    pub counted: bool,
}

impl Run<'_> {
    /// Runs the processes; checks for a single holder at a time, and for leftovers on the server.
    pub fn run(&self, server: &mut Server) -> Outcome {
        self.run_beside(server, |_, _| Taken::default())
    }

    /// Runs the processes beside `does`, which returns its own acquisitions. Panics as [`run`](Self::run).
    pub fn run_beside(
        &self,
        server: &mut Server,
        does: impl FnOnce(&mut Server, &Board) -> Taken,
    ) -> Outcome {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("board");
        let board = SharedBoard::open(&path).expect("a file for all");
        let children = (0..self.processes).map(|process| {
            let assignment = Assignment {
                url: server.url(),
                client: self.client.to_owned(),
                name: self.name.to_owned(),
                board: path.clone(),
                process,
                part: self.part.clone(),
            };
            let assignment = serde_json::to_string(&assignment).expect("nothing that JSON has not");
            Member::start(this_program([CHILD, &assignment]))
        });
        let children: Vec<Member> = children.collect();
        for child in &children {
            child.greeting(PATIENCE).expect("a process failed; see above");
        }

        let monitor = self.counted.then(|| Monitor::begin(server));
        board.begin(self.time);
        let asked: Vec<Asked<'_>> = children.iter().map(|child| child.begin(REPORTS, GO)).collect();
        let beside = does(server, &board);
        let report = |asked: &Asked<'_>| -> Taken {
            let said = asked.answer(self.time + PATIENCE).expect("a process failed; see above");
            serde_json::from_str(&said).expect("from our child")
        };
        let reports: Vec<Taken> = asked.iter().map(report).collect();
        let by_process = reports.iter().map(|taken| taken.entered).collect();
        let mut taken = beside;
        reports.into_iter().for_each(|child| taken.add(child));
        let sent = monitor.map(|monitor| monitor.end(server));

        drop(children);
        board.assert_right(taken.entered);
        server.assert_empty(self.client);
        Outcome { taken, by_process, board, sent }
    }
}

/// Runs this program as a child. Panics on any error, which the parent sees.
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
    let mut told = orders();
    let board = Arc::new(SharedBoard::open(&assignment.board).expect("our parent has made it"));
    let runtime = super::runtime();
    let client = runtime.block_on(async {
        let client = C::connect(&assignment.url, &assignment.name).await;
        // Now the server knows the scripts.
        let guard = client.lock().await;
        client.unlock(guard).await;
        Arc::new(client)
    });
    answer(READY, C::NAME);
    assert_eq!(told.blocking_recv().expect("it lives as long as we do").1, GO);
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
    answer(REPORTS, serde_json::to_string(&taken).expect("nothing that JSON has not"));
    // Keeps the connections open until stdin closes.
    while told.blocking_recv().is_some() {}
}

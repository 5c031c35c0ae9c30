//! [`Stage`]: a server, a bad network before it for each worker, and the workers; and what is done to them.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use defects::twin::Twin;
use latchwork::blocking::LockClient;
use latchwork_testkit::{ChaosProxy, RedisServer, pause, resume};

use crate::clock::now;
use crate::history::{Event, FaultKind, History, Journal, Life, read};
use crate::names::{LONG_LEASE, LockKind, lock_name};
use crate::probe;
use crate::worker::{END, QUIET};

pub(crate) const WORKERS: usize = 4;

/// More than a worker gives its tasks to end.
const TO_END: Duration = Duration::from_secs(50);

pub(crate) struct Stage {
    pub(crate) server: RedisServer,
    pub(crate) proxies: Vec<ChaosProxy>,
    /// Not through any proxy, so that what is forced free is so at once or never.
    forcer: LockClient,
    pub(crate) journal: Arc<Journal>,
    directory: PathBuf,
    twin: Option<Twin>,
    workers: Vec<Worker>,
    /// Of all workers there were.
    lives: Vec<(usize, PathBuf, Option<u64>)>,
    says: Sender<Said>,
    hears: Receiver<Said>,
    faults: u64,
}

/// Whose life's words, and which.
type Said = (usize, String);

struct Worker {
    child: Child,
    life: usize,
}

impl Drop for Worker {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Stage {
    /// Starts everything; `seed` is drawn from for each worker.
    pub(crate) fn set(directory: PathBuf, twin: Option<Twin>, seed: &mut fastrand::Rng) -> Self {
        let server = RedisServer::start();
        let proxies = (0..WORKERS).map(|_| ChaosProxy::start(server.port())).collect();
        let journal = Journal::create(&directory.join("stage.jsonl")).expect("cannot make a journal");
        let journal = Arc::new(journal);
        probe::start(server.port(), Arc::clone(&journal));
        let (says, hears) = mpsc::channel();
        let mut stage = Self {
            forcer: LockClient::connect(&server.url()).expect("the server is up"),
            server,
            proxies,
            journal,
            directory,
            twin,
            workers: Vec::new(),
            lives: Vec::new(),
            says,
            hears,
            faults: 0,
        };
        for worker in 0..WORKERS {
            let new = stage.start(worker, seed.u64(..)).expect("cannot start a worker");
            stage.workers.push(new);
        }
        stage
    }

    fn start(&mut self, worker: usize, seed: u64) -> io::Result<Worker> {
        let life = self.lives.len();
        let journal = self.directory.join(format!("worker-{worker}-life-{life}.jsonl"));
        let mut command = Command::new(env::current_exe()?);
        command.args(["worker", "--worker", &worker.to_string()]);
        command.args(["--url", &self.proxies[worker].url(), "--seed", &seed.to_string()]);
        command.arg("--journal").arg(&journal);
        if let Some(twin) = self.twin {
            command.args(["--twin", twin.to_possible_value().expect("none is skipped").get_name()]);
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let said = BufReader::new(child.stdout.take().expect("stdout is a pipe"));
        let says = self.says.clone();
        thread::spawn(move || {
            for line in said.lines().map_while(Result::ok) {
                if says.send((life, line)).is_err() {
                    return;
                }
            }
        });
        self.lives.push((worker, journal, None));
        Ok(Worker { child, life })
    }

    // === What is told of the faults ===

    /// A fault begins.
    pub(crate) fn begin(&mut self, kind: FaultKind, worker: Option<usize>) -> u64 {
        self.faults += 1;
        let number = self.faults;
        self.journal.tell(Event::Fault { number, kind, worker });
        number
    }

    /// A fault is over.
    pub(crate) fn over(&self, number: u64) {
        self.journal.tell(Event::Over { number });
    }

    // === Faults ===

    pub(crate) fn force(&self, name: u32) {
        self.journal.tell(Event::Forces { name });
        let name_there = lock_name(name);
        let lock = match LockKind::of(name) {
            LockKind::Plain => self.forcer.get_lock(&name_there),
            LockKind::Fair => self.forcer.get_fair_lock(&name_there),
            LockKind::ReadWrite => {
                self.forcer.get_read_write_lock(&name_there).map(|both| both.write().clone())
            }
        };
        let free = lock.expect("it is a name").force_unlock().unwrap_or(false);
        self.journal.tell(Event::Forced { name, free });
    }

    /// Runs a command past the proxies, which fails if the server is not there.
    pub(crate) fn run<T: redis::FromRedisValue>(&self, words: &[&str]) -> redis::RedisResult<T> {
        let client = redis::Client::open(self.server.url())?;
        let mut command = redis::cmd(words[0]);
        words[1..].iter().for_each(|word| _ = command.arg(*word));
        command.query(&mut client.get_connection_with_timeout(Duration::from_secs(5))?)
    }

    pub(crate) fn pause(&self, worker: usize) {
        pause(&self.workers[worker].child).expect("it is our child");
    }

    pub(crate) fn resume(&self, worker: usize) {
        resume(&self.workers[worker].child).expect("it is our child");
    }

    /// Kills a worker, and puts a new one in its place.
    pub(crate) fn replace(&mut self, worker: usize, seed: u64) {
        let life = self.workers[worker].life;
        let killed = now();
        self.workers[worker].child.kill().expect("it is our child");
        self.workers[worker].child.wait().expect("it is our child");
        // What it did between the two is not judged; what it did until then counts.
        self.lives[life].2 = Some(killed);
        self.workers[worker] = self.start(worker, seed).expect("cannot start a worker");
    }

    /// Looks whether all workers live.
    pub(crate) fn look_after_workers(&mut self) -> Result<(), String> {
        for (number, worker) in self.workers.iter_mut().enumerate() {
            if let Some(status) = worker.child.try_wait().expect("it is our child") {
                let what = format!("worker {number} ended by itself ({status})");
                self.journal.tell(Event::Stuck { what: what.clone() });
                return Err(what);
            }
        }
        Ok(())
    }

    // === The end ===

    /// Lets all workers come to an end, and looks at what is left. There are no faults any more.
    pub(crate) fn end(mut self) -> Result<History, String> {
        for worker in &mut self.workers {
            // A process that has ended by itself was noticed.
            let _ = writeln!(worker.child.stdin.as_mut().expect("stdin is a pipe"), "{END}");
        }
        let deadline = Instant::now() + TO_END;
        let mut awaited: Vec<usize> = self.workers.iter().map(|worker| worker.life).collect();
        while !awaited.is_empty() {
            let left = deadline.saturating_duration_since(Instant::now());
            let Ok((life, line)) = self.hears.recv_timeout(left) else { break };
            if line == QUIET {
                awaited.retain(|it| *it != life);
            }
        }
        self.look_at_server();
        drop(std::mem::take(&mut self.workers));
        let mut history = History { stage: read(&self.directory.join("stage.jsonl"))?, workers: Vec::new() };
        for (worker, journal, killed) in &self.lives {
            // One that was killed at once may not have come so far.
            let records = if journal.exists() { read(journal)? } else { Vec::new() };
            let killed = *killed;
            let until = killed.unwrap_or(u64::MAX);
            let records = records.into_iter().filter(|record| record.at <= until).collect();
            history.workers.push(Life { worker: *worker, records, killed });
        }
        Ok(history.since_its_start())
    }

    /// What was forgotten lasts for a lease.
    fn look_at_server(&self) {
        let deadline = Instant::now() + LONG_LEASE + Duration::from_secs(1);
        loop {
            let keys: Vec<String> = self.run(&["KEYS", "*"]).expect("the server is up");
            // But for the counters of tokens, which are to stay.
            let keys: Vec<_> =
                keys.into_iter().filter(|key| !key.starts_with("redisson_lock_token:")).collect();
            let channels: Vec<String> = self.run(&["PUBSUB", "CHANNELS"]).expect("the server is up");
            if (keys.is_empty() && channels.is_empty()) || Instant::now() > deadline {
                self.journal.tell(Event::Remains { keys, channels });
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

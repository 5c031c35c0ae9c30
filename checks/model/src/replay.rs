//! Compares the code with the model: real threads play small programs on the semaphore itself, and must get
//! answers of the model. A change to only one of code and model shows as soon as a thread can observe it.
//!
//! One thread runs at a time. Before each access to shared words, another thread may take over. The frequency
//! is drawn for each run, so that some runs alternate quickly, and others stop a thread once while another
//! does much.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;

use fastrand::Rng;
use latchwork::suspension::{self, Access};
use latchwork::{AsyncSemaphore, SemaphorePermit, TryAcquireError};

use crate::explore::{Answers, Model};
use crate::mutants::Mutants;
use crate::operation::{Answer, Operation};
use crate::parts::Search;
use crate::programs::Program;

/// Programs for which the code must give all answers of the model.
const COMPLETE: &[(&str, i8)] = &[
    ("w1 r | w1 r", 1),
    ("w1 | t1 | a1", 0),
    ("w2 | w1 | a2", 0),
    ("c2 | w1", 1),
    ("c1 | c1 | a1", 0),
    ("w1 | w1 | a2", 0),
    ("c2 t1 | a1 t1", 1),
    ("x | w1 | c1", 0),
    ("x | a1 | w1", 0),
    ("x t1 | w1 r", 1),
    ("l1 v | w1 r | v", 1),
    ("l1 a2 | c1", 0),
    ("l1 x | w1", 0),
    ("t2 r | t1 r | v", 2),
    ("w1 r | v", 1),
    // With a queue in use, permits just added are free until another thread takes them.
    ("c1 a1 t1 | a1 t1", 0),
    ("n | c1 | t1", 0),
    ("n | w1 | n", 0),
];

/// Limits on runs of each such program. Runs end once all answers have occurred, but a wrong answer may be
/// rarer than the right ones.
const RUNS: u64 = 20_000;
const FEWEST_RUNS: u64 = 500;

/// Random programs, and runs of each, whose answers must be among the model's.
const DRAWN: usize = 60;
const RUNS_OF_DRAWN: u64 = 50;

/// Accesses between two switches, on average.
const SWITCHES: [u64; 5] = [2, 4, 8, 16, 64];

/// Limit on the accesses of a thread, which none of these programs reaches.
const MOST: u64 = 100_000;

pub(crate) fn everything(seed: u64) -> Result<(), String> {
    for &(text, permits) in COMPLETE {
        let program = Program::parse(text, permits)?;
        let expected = expected(&program)?;
        let mut seen = BTreeSet::new();
        let mut runs = 0;
        while runs < FEWEST_RUNS || seen.len() < expected.len() && runs < RUNS {
            seen.insert(agreed(&program, &expected, seed.wrapping_add(runs))?);
            runs += 1;
        }
        if let Some(never) = expected.difference(&seen).next() {
            return Err(format!("{program}: in {runs} runs the code has never answered {never:?}"));
        }
        println!("{program}: all {} answers of the model in {runs} runs", expected.len());
    }
    let shapes = [(2, 2), (3, 1)];
    for (threads, operations) in shapes {
        let search =
            Search { alphabet: "w1 w2 c1 c2 t1 t2 r a1 a2 l1 x v", threads, operations, permits: 0..=2 };
        for program in search.sample(DRAWN, seed)? {
            let expected = expected(&program)?;
            for run in 0..RUNS_OF_DRAWN {
                agreed(&program, &expected, seed.wrapping_add(run))?;
            }
        }
        println!("{DRAWN} programs of {threads} × {operations}: each answer is one of the model");
    }
    Ok(())
}

fn expected(program: &Program) -> Result<BTreeSet<Answers>, String> {
    let model = Model { program, mutants: Mutants::default(), invariants: true };
    model.outcomes().map_err(|found| format!("{} in {program}", found.violation))
}

/// Runs the code once. Fails if the model has no such answers.
fn agreed(program: &Program, expected: &BTreeSet<Answers>, seed: u64) -> Result<Answers, String> {
    let answers = Stage::run(program, seed);
    if expected.contains(&answers) {
        return Ok(answers);
    }
    Err(format!("{program}: the code answers {answers:?}, which the model does not (seed {seed})"))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Runs,
    Sleeps,
    Ended,
}

struct State {
    rng: Rng,
    switches: u64,
    turn: Option<usize>,
    threads: Vec<Status>,
    /// Threads woken since they began to poll.
    rung: Vec<bool>,
    /// True once no thread will run again.
    is_over: bool,
}

/// The turns of a run's threads.
struct Stage {
    state: Mutex<State>,
    changed: Condvar,
}

struct Player {
    stage: Arc<Stage>,
    thread: usize,
    until_switch: u64,
    accesses: u64,
}

std::thread_local! {
    static PLAYER: RefCell<Option<Player>> = const { RefCell::new(None) };
}

fn on_access(_: &Access) {
    PLAYER.with_borrow_mut(|player| {
        let Some(player) = player else { return };
        player.accesses += 1;
        assert!(player.accesses < MOST, "expected the thread to finish, and it accesses memory without end");
        player.until_switch -= 1;
        if player.until_switch == 0 {
            player.switch();
        }
    });
}

impl Player {
    fn switch(&mut self) {
        let mut state = self.stage.lock();
        self.until_switch = state.until_switch();
        state.pass_on();
        drop(self.stage.wait_for_turn(state, self.thread));
    }
}

impl State {
    fn until_switch(&mut self) -> u64 {
        self.rng.u64(1..=2 * self.switches)
    }

    fn pass_on(&mut self) {
        let runs: Vec<_> = (0..self.threads.len()).filter(|at| self.threads[*at] == Status::Runs).collect();
        self.turn = self.rng.choice(runs);
        self.is_over = self.turn.is_none();
    }
}

struct Bell {
    stage: Arc<Stage>,
    thread: usize,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        let mut state = self.stage.lock();
        state.rung[self.thread] = true;
        if state.threads[self.thread] == Status::Sleeps {
            state.threads[self.thread] = Status::Runs;
        }
    }
}

impl Stage {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics under this mutex")
    }

    fn wait_for_turn<'a>(&self, state: MutexGuard<'a, State>, thread: usize) -> MutexGuard<'a, State> {
        self.changed.notify_all();
        let others = |state: &mut State| state.turn != Some(thread) && !state.is_over;
        self.changed.wait_while(state, others).expect("no thread panics under this mutex")
    }

    fn run(program: &Program, seed: u64) -> Answers {
        let mut rng = Rng::with_seed(seed);
        let switches = *rng.choice(&SWITCHES).expect("there are some");
        let threads = program.threads.len();
        let (all_run, rung) = (vec![Status::Runs; threads], vec![false; threads]);
        let state = State { rng, switches, turn: None, threads: all_run, rung, is_over: false };
        let stage = Arc::new(Stage { state: Mutex::new(state), changed: Condvar::new() });
        let semaphore = AsyncSemaphore::new(program.permits.unsigned_abs().into());
        thread::scope(|scope| {
            let mut players = Vec::new();
            for (thread, operations) in program.threads.iter().enumerate() {
                let (stage, semaphore) = (Arc::clone(&stage), &semaphore);
                players.push(scope.spawn(move || stage.play(thread, operations, semaphore)));
            }
            stage.lock().pass_on();
            stage.changed.notify_all();
            players.into_iter().map(|player| player.join().expect("it says why")).collect()
        })
    }

    fn play(
        self: &Arc<Self>,
        thread: usize,
        operations: &[Operation],
        semaphore: &AsyncSemaphore,
    ) -> Vec<Answer> {
        let mut state = self.wait_for_turn(self.lock(), thread);
        let until_switch = state.until_switch();
        drop(state);
        PLAYER.set(Some(Player { stage: Arc::clone(self), thread, until_switch, accesses: 0 }));
        suspension::before_each_access(Some(on_access));
        let (mut held, mut answers) = (None, Vec::new());
        for &operation in operations {
            match self.make(thread, operation, semaphore, &mut held) {
                Some(Answer::Pending) => {
                    answers.push(Answer::Pending);
                    break;
                }
                answer => answers.extend(answer),
            }
        }
        suspension::before_each_access(None);
        PLAYER.set(None);
        let mut state = self.lock();
        state.threads[thread] = Status::Ended;
        if !state.is_over {
            state.pass_on();
        }
        self.changed.notify_all();
        // Permits are released only after the end of all answers.
        drop(
            self.changed
                .wait_while(state, |state| !state.is_over)
                .expect("no thread panics under this mutex"),
        );
        answers
    }

    /// Sleeps until woken. False if no thread is left to wake this one.
    fn sleep(&self, thread: usize) -> bool {
        let mut state = self.lock();
        if !state.rung[thread] {
            state.threads[thread] = Status::Sleeps;
            state.pass_on();
            state = self.wait_for_turn(state, thread);
        }
        state.rung[thread] && !state.is_over
    }

    /// Performs an operation. `None` for a release without permits.
    fn make<'s>(
        self: &Arc<Self>,
        thread: usize,
        operation: Operation,
        semaphore: &'s AsyncSemaphore,
        held: &mut Option<SemaphorePermit<'s>>,
    ) -> Option<Answer> {
        let n = usize::from(operation.weight().unsigned_abs());
        let mut hold = |permit: SemaphorePermit<'s>| match held {
            Some(held) => held.merge(permit),
            None => *held = Some(permit),
        };
        let waker = Waker::from(Arc::new(Bell { stage: Arc::clone(self), thread }));
        let mut context = Context::from_waker(&waker);
        Some(match operation {
            Operation::Acquire(_) => {
                let mut acquire = semaphore.acquire_weight(n);
                loop {
                    self.lock().rung[thread] = false;
                    match Pin::new(&mut acquire).poll(&mut context) {
                        Poll::Ready(Ok(permit)) => {
                            hold(permit);
                            break Answer::Ok;
                        }
                        Poll::Ready(Err(_closed)) => break Answer::Closed,
                        Poll::Pending if self.sleep(thread) => {}
                        Poll::Pending => {
                            // Cancelled after the end of all answers.
                            suspension::before_each_access(None);
                            break Answer::Pending;
                        }
                    }
                }
            }
            Operation::AcquireCancel(_) => {
                let mut acquire = semaphore.acquire_weight(n);
                match Pin::new(&mut acquire).poll(&mut context) {
                    Poll::Ready(Ok(permit)) => {
                        hold(permit);
                        Answer::Ok
                    }
                    Poll::Ready(Err(_closed)) => Answer::Closed,
                    Poll::Pending => Answer::Done,
                }
            }
            Operation::Try(_) => match semaphore.try_acquire_weight(n) {
                Ok(permit) => {
                    hold(permit);
                    Answer::Ok
                }
                Err(TryAcquireError::NoPermits) => Answer::NoPermits,
                Err(TryAcquireError::Closed) => Answer::Closed,
            },
            Operation::Release(_) => {
                drop(held.take()?);
                Answer::Done
            }
            Operation::Add(_) => {
                semaphore.add_permits(n);
                Answer::Done
            }
            Operation::Lower(_) => {
                suspension::lower(semaphore, n);
                Answer::Done
            }
            Operation::Close => {
                semaphore.close();
                Answer::Done
            }
            Operation::Available => {
                let available = semaphore.available_permits();
                Answer::Available(available.try_into().expect("programs have few permits"))
            }
            Operation::Notify => {
                suspension::notify(semaphore, 1);
                Answer::Done
            }
        })
    }
}

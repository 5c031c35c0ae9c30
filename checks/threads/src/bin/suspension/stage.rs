//! [`Stage`]: real threads running in turns, some of them stopped for ever before an access.
//!
//! The next thread is drawn from a seed, so a run is repeatable. A thread runs undisturbed until the next
//! switch: a thread that depends on another thread's next step makes more accesses than any call may, and
//! fails the run.

use std::cell::RefCell;
use std::panic::Location;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fastrand::Rng;
use latchwork::suspension::{self, Access};
use threads::{Answer, Call, Event, Hand};

/// Limit of the accesses of a call: the longest call of the programs makes a tenth of them.
const MOST: u64 = 5_000;

/// Time limit of a sleeping thread. In slices, since the whole process may have been stopped in one.
const PATIENCE: (u32, Duration) = (20, Duration::from_secs(1));

static PLAYED: Mutex<String> = Mutex::new(String::new());

pub(crate) fn play(run: String) {
    *PLAYED.lock().unwrap_or_else(PoisonError::into_inner) = run;
}

pub(crate) fn played() -> String {
    PLAYED.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The thread to stop, and the number of its access to stop before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Victim {
    pub(crate) thread: usize,
    pub(crate) access: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Schedule {
    pub(crate) seed: u64,
    /// The average number of accesses between two switches; zero for no switches.
    pub(crate) switches: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Runs,
    Stopped(&'static Location<'static>),
    Ended,
}

#[derive(Debug)]
pub(crate) struct Stage {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    switches: u64,
    turn: Option<usize>,
    threads: Vec<Status>,
    /// The answered calls, and each thread's call in progress.
    events: Vec<Event>,
    calls: Vec<Option<Event>>,
    /// Hands of ended threads.
    hands: Vec<Option<Hand>>,
    clock: u64,
    is_over: bool,
}

struct Player {
    stage: Arc<Stage>,
    thread: usize,
    /// Accesses until the thread is stopped, until the next switch, and since the call began.
    until_stop: u64,
    until_switch: u64,
    of_call: u64,
}

std::thread_local! {
    static PLAYER: RefCell<Option<Player>> = const { RefCell::new(None) };
}

fn on_access(&Access { place, .. }: &Access) {
    PLAYER.with_borrow_mut(|player| {
        let Some(player) = player else { return };
        player.of_call += 1;
        if player.of_call > MOST {
            player
                .stage
                .fail(&format!("thread {} does not finish: {MOST} accesses, at {place}", player.thread));
        }
        player.until_stop -= 1;
        if player.until_stop == 0 {
            player.stop(place);
        }
        player.until_switch -= 1;
        if player.until_switch == 0 {
            player.switch();
        }
    });
}

impl Player {
    fn stop(&mut self, place: &'static Location<'static>) {
        self.until_stop = u64::MAX;
        let mut state = self.stage.lock();
        state.threads[self.thread] = Status::Stopped(place);
        state.pass_on();
        drop(self.stage.wait_for_turn(state, self.thread));
    }

    fn switch(&mut self) {
        let mut state = self.stage.lock();
        self.until_switch = state.until_switch();
        state.pass_on();
        drop(self.stage.wait_for_turn(state, self.thread));
    }
}

impl State {
    fn until_switch(&mut self) -> u64 {
        if self.switches == 0 { u64::MAX } else { self.rng.u64(1..=2 * self.switches) }
    }

    /// Draws the next thread.
    fn pass_on(&mut self) {
        let runs: Vec<_> = (0..self.threads.len()).filter(|at| self.threads[*at] == Status::Runs).collect();
        self.turn = self.rng.choice(runs);
    }

    fn now(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }
}

impl Stage {
    pub(crate) fn new(threads: usize, schedule: Schedule) -> Arc<Self> {
        let state = State {
            rng: Rng::with_seed(schedule.seed),
            switches: schedule.switches,
            turn: None,
            threads: vec![Status::Runs; threads],
            events: Vec::new(),
            calls: vec![None; threads],
            hands: (0..threads).map(|_| None).collect(),
            clock: 0,
            is_over: false,
        };
        Arc::new(Self { state: Mutex::new(state), changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for_turn<'a>(&self, state: MutexGuard<'a, State>, thread: usize) -> MutexGuard<'a, State> {
        self.changed.notify_all();
        self.changed
            .wait_while(state, |state| state.turn != Some(thread))
            .expect("no thread panics under this mutex")
    }

    pub(crate) fn play(self: &Arc<Self>, thread: usize, mut hand: Hand, victims: &[Victim]) {
        let victim = victims.iter().find(|victim| victim.thread == thread);
        let mut state = self.wait_for_turn(self.lock(), thread);
        let until_switch = state.until_switch();
        drop(state);
        let stage = Arc::clone(self);
        let until_stop = victim.map_or(u64::MAX, |victim| victim.access);
        PLAYER.set(Some(Player { stage, thread, until_stop, until_switch, of_call: 0 }));
        for index in 0..hand.script().len() {
            if let Some(call) = hand.plan(hand.script()[index]) {
                self.call(thread, &mut hand, thread, call);
            }
        }
        PLAYER.set(None);
        let mut state = self.lock();
        state.threads[thread] = Status::Ended;
        state.hands[thread] = Some(hand);
        state.pass_on();
        self.changed.notify_all();
        // The end of the thread is not part of the repeatable run.
        drop(self.changed.wait_while(state, |state| !state.is_over).expect("as above"));
    }

    /// Makes a call, on the running thread, or on the observer when no other runs.
    pub(crate) fn call(&self, thread: usize, hand: &mut Hand, of: usize, call: Call) -> Answer {
        let mut state = self.lock();
        let event = Event { thread, hand: of, call, answer: None, from: state.now(), to: u64::MAX };
        if thread < state.calls.len() {
            state.calls[thread] = Some(event);
        }
        drop(state);
        PLAYER.with_borrow_mut(|player| {
            if let Some(player) = player {
                player.of_call = 0;
            }
        });
        suspension::before_each_access(Some(on_access));
        let answer = hand.make(call);
        suspension::before_each_access(None);
        let mut state = self.lock();
        let to = state.now();
        if thread < state.calls.len() {
            state.calls[thread] = None;
        }
        state.events.push(Event { answer: Some(answer), to, ..event });
        answer
    }

    /// For the observer: counts its accesses, too.
    pub(crate) fn look_on(self: &Arc<Self>, thread: usize) {
        let stage = Arc::clone(self);
        let player = Player { stage, thread, until_stop: u64::MAX, until_switch: u64::MAX, of_call: 0 };
        PLAYER.set(Some(player));
    }

    /// Runs the threads until all have ended or were stopped. Returns the hands of the ended threads.
    pub(crate) fn run(&self) -> Vec<(usize, Hand)> {
        let mut state = self.lock();
        state.pass_on();
        self.changed.notify_all();
        let (slices, slice) = PATIENCE;
        let mut left = slices;
        while state.threads.contains(&Status::Runs) {
            let timeout;
            (state, timeout) = self.changed.wait_timeout(state, slice).expect("as above");
            left = if timeout.timed_out() { left - 1 } else { slices };
            if left == 0 {
                drop(state);
                self.fail(&format!("nothing has happened for {slices} times {slice:?}"));
            }
        }
        state.hands.iter_mut().enumerate().filter_map(|(thread, hand)| Some((thread, hand.take()?))).collect()
    }

    pub(crate) fn stopped(&self) -> Vec<(usize, &'static Location<'static>, Option<Event>)> {
        let state = self.lock();
        let stopped = |(thread, status): (usize, &Status)| match status {
            Status::Stopped(place) => Some((thread, *place, state.calls[thread])),
            _ => None,
        };
        state.threads.iter().enumerate().filter_map(stopped).collect()
    }

    pub(crate) fn resume(&self) {
        for status in &mut self.lock().threads {
            if matches!(status, Status::Stopped(_)) {
                *status = Status::Runs;
            }
        }
    }

    pub(crate) fn events(&self) -> Vec<Event> {
        let state = self.lock();
        state.events.iter().chain(state.calls.iter().flatten()).copied().collect()
    }

    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
        PLAYER.set(None);
    }

    /// Reports a failure and the history before it, and ends the process.
    pub(crate) fn fail(&self, wrong: &str) -> ! {
        eprintln!("FOUND: {wrong}");
        for (thread, place, call) in self.stopped() {
            eprintln!("  thread {thread} is stopped before {place}, in {:?}", call.map(|event| event.call));
        }
        let mut events = self.events();
        events.sort_by_key(|event| event.from);
        for Event { thread, hand, call, answer, from, to } in events {
            let of = if hand == thread { String::new() } else { format!(" for {hand}") };
            let to = if answer.is_some() { to.to_string() } else { String::new() };
            eprintln!("  {from}..{to} thread {thread}{of}: {call:?} -> {answer:?}");
        }
        eprintln!("  {}", played());
        std::process::exit(1);
    }
}

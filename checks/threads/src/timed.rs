//! Small rounds with timed calls, whose history must be that of a sequential semaphore.
//!
//! The documented exceptions are not drawn: only one thread changes the capacity while it can fall; and if
//! the semaphore is closed, no call gives more permits than a single waiter needs.

use std::fmt::Write as _;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use fastrand::Rng;
use latchwork::AsyncSemaphore;

use crate::call::Answer;
use crate::hand::Hand;
use crate::history::{Event, History};
use crate::script::StepKind::{
    self, Acquire, AcquireOne, Add, AddOne, Cancel, ChangeWaker, Close, ForgetPermits, Free, Release,
    SetCapacity, TryAcquire, TryOne,
};
use crate::script::{Script, Step};
use crate::start::Start;

/// Threads of a round. A further thread observes, before and after the round.
pub const THREADS: usize = 3;
const STEPS: usize = 3;

/// Steps with their weights, of the first thread and of the others.
type StepKinds = [&'static [(StepKind, u32)]; 2];

const KINDS: [StepKinds; 3] = [
    {
        let all: &[_] = &[
            (Acquire, 4),
            (TryAcquire, 3),
            (ChangeWaker, 1),
            (Cancel, 2),
            (Release, 3),
            (Add, 2),
            (ForgetPermits, 1),
            (Free, 2),
        ];
        [all, all]
    },
    [
        &[(SetCapacity, 3), (Acquire, 1), (Free, 1)],
        &[(Acquire, 3), (TryAcquire, 2), (Cancel, 2), (Release, 3), (Free, 2)],
    ],
    [
        &[(Close, 2), (AddOne, 2), (Free, 1)],
        &[(AcquireOne, 3), (TryOne, 2), (Cancel, 1), (Release, 2), (AddOne, 1), (Free, 1)],
    ],
];

/// One round.
#[derive(Debug)]
pub struct Timed {
    semaphore: Arc<AsyncSemaphore>,
    permits: usize,
    early: Hand,
    events: Vec<Event>,
}

/// A thread's part of a round.
#[derive(Debug)]
pub struct Part {
    thread: usize,
    hand: Hand,
    events: Vec<Event>,
}

impl Part {
    /// Makes all calls, and records their times by the shared `clock`.
    pub fn play(&mut self, clock: &impl Fn() -> u64) {
        for index in 0..self.hand.script().len() {
            if let Some(call) = self.hand.plan(self.hand.script()[index]) {
                let from = clock();
                let answer = self.hand.make(call);
                let to = clock();
                let (thread, hand) = (self.thread, self.thread);
                self.events.push(Event { thread, hand, call, answer: Some(answer), from, to });
            }
        }
    }
}

impl Timed {
    /// A random round, and the threads' parts.
    pub fn new(rng: &mut Rng) -> (Self, Vec<Part>) {
        let permits = rng.usize(..=2);
        let semaphore = Arc::new(AsyncSemaphore::new(permits));
        let kinds = KINDS[rng.usize(..KINDS.len())];
        let part = |thread, script: Script| {
            let events = Vec::with_capacity(script.len());
            Part { thread, hand: Hand::new(&semaphore, script), events }
        };
        let early = (0..rng.usize(..=permits + 1)).map(|_| Step::random(&[(AcquireOne, 1)], rng)).collect();
        let mut early = part(THREADS, early);
        early.play(&|| 0);
        let parts = (0..THREADS).map(|thread| {
            part(thread, (0..STEPS).map(|_| Step::random(kinds[thread.min(1)], rng)).collect())
        });
        let parts = parts.collect();
        (Self { semaphore, permits, early: early.hand, events: early.events }, parts)
    }

    /// Checks the round after all threads have returned: polls the woken futures, and then releases
    /// everything. Fails if no order of the calls explains the answers and the sleeping waiters.
    pub fn judge(self, parts: Vec<Part>) -> Result<(), String> {
        let Self { semaphore, permits, early, mut events } = self;
        let mut hands = vec![(THREADS, early)];
        for part in parts {
            events.extend(part.events);
            hands.push((part.thread, part.hand));
        }
        let mut now = events.iter().map(|event| event.to).max().unwrap_or_default();
        let mut call = |of: usize, hand: &mut Hand, call, events: &mut Vec<Event>| {
            now += 2;
            let answer = hand.make(call);
            let event =
                Event { thread: THREADS, hand: of, call, answer: Some(answer), from: now, to: now + 1 };
            events.push(event);
            answer
        };
        let next_woken = |hands: &[(usize, Hand)]| {
            let woken = |(at, (_, hand)): (usize, &(usize, Hand))| Some((at, hand.woken().next()?));
            hands.iter().enumerate().find_map(woken)
        };
        while let Some((at, poll)) = next_woken(&hands) {
            let (of, hand) = &mut hands[at];
            if call(*of, hand, poll, &mut events) == Answer::Pending {
                return Err(report("woken for nothing", permits, &events));
            }
        }
        let asleep = hands.iter().map(|(_, hand)| hand.waiting()).sum();
        explained(permits, &events, asleep, "with so many asleep")?;
        for (of, hand) in &mut hands {
            for last in hand.last_calls().collect::<Vec<_>>() {
                call(*of, hand, last, &mut events);
            }
        }
        call(THREADS, &mut hands[0].1, crate::call::Call::Free, &mut events);
        explained(permits, &events, 0, "after all have let go")?;
        match semaphore.waiters() {
            0 => Ok(()),
            left => Err(report(&format!("{left} waiters are left"), permits, &events)),
        }
    }
}

fn explained(permits: usize, events: &[Event], asleep: usize, when: &str) -> Result<(), String> {
    let mut history = History::of_permits(permits);
    events.iter().for_each(|event| history.add(*event));
    if history.is_explained(asleep) {
        return Ok(());
    }
    Err(report(
        &format!("no order of the calls explains the answers, {asleep} asleep, {when}"),
        permits,
        events,
    ))
}

fn report(wrong: &str, permits: usize, events: &[Event]) -> String {
    let mut report = format!("{wrong}\nborn with {permits} permits\n");
    let mut events = events.to_vec();
    events.sort_by_key(|event| event.from);
    for Event { thread, hand, call, answer, from, to } in events {
        let _ = writeln!(report, "  {from}..{to} thread {thread} for {hand}: {call:?} -> {answer:?}");
    }
    report
}

/// Plays this number of rounds with real threads. Fails with the violation of a round.
pub fn batch(rounds: usize, rng: &mut Rng) -> Result<u64, String> {
    let mut timed = Vec::with_capacity(rounds);
    let mut parts: Vec<Vec<Part>> = (0..THREADS).map(|_| Vec::with_capacity(rounds)).collect();
    for _ in 0..rounds {
        let (round, of_round) = Timed::new(rng);
        timed.push(round);
        parts.iter_mut().zip(of_round).for_each(|(of_thread, part)| of_thread.push(part));
    }
    let start = Arc::new(Start::new(THREADS));
    let began = Instant::now();
    let players: Vec<_> = parts
        .into_iter()
        .map(|mut parts| {
            let (start, mut rng) = (Arc::clone(&start), rng.fork());
            thread::spawn(move || {
                // Not a shared counter, which would order the accesses under test.
                let clock = || began.elapsed().as_nanos() as u64 + 1;
                for round in 0..=parts.len() {
                    start.line_up(round)?;
                    let Some(part) = parts.get_mut(round) else { break };
                    let scale = rng.u32(..8);
                    for _ in 0..rng.u32(..1 << scale) {
                        std::hint::black_box(());
                    }
                    part.play(&clock);
                }
                Ok::<_, String>(parts)
            })
        })
        .collect();
    let mut played = Vec::with_capacity(THREADS);
    for player in players {
        played.push(player.join().map_err(|_| "a thread has panicked")??.into_iter());
    }
    for round in timed {
        round.judge(played.iter_mut().map(|parts| parts.next().expect("one for each round")).collect())?;
    }
    Ok(rounds as u64)
}

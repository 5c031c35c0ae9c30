//! A run of a program with stopped threads: the others' progress, the memory held back, and the end.

use std::fmt;
use std::sync::Arc;
use std::thread;

use latchwork::{AsyncSemaphore, suspension};
use threads::{Answer, Bell, Call, Event, Hand, History, Step};

use crate::counting;
use crate::programs::Program;
use crate::stage::{self, Schedule, Stage, Victim};

/// Waiters that come and go beside a stopped thread, to measure memory.
const WAITERS: isize = 200;

/// Bytes held back by each waiter: its node, and a place in a list with up to twice the capacity.
const HELD_BACK: isize = 40 + 2 * 8;

/// Bytes held back by each lowering of the capacity beside a waiter: a deficit, and its place.
const HELD_BACK_BY_LOWERING: isize = 64 + 2 * 8;

/// Bytes independent of the number of waiters.
const SLACK: isize = 4096;

#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) program: &'static Program,
    pub(crate) victims: Vec<Victim>,
    pub(crate) schedule: Schedule,
    /// True to measure the memory that a stopped thread holds back.
    pub(crate) weigh: bool,
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Outcome {
    /// Number of victims that reached their access and were stopped.
    pub(crate) stopped: usize,
    /// Bytes held back for each waiter that has left.
    pub(crate) held_back: isize,
    /// Waiters with granted permits that were not woken, because a victim was stopped.
    pub(crate) unwoken: usize,
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Program { name, permits, early, threads } = self.program;
        writeln!(f, "\"{name}\", {permits:?} permits, before the threads {early:?}, and in each:")?;
        for thread in *threads {
            writeln!(f, "    {thread:?}")?;
        }
        let victims: Vec<_> = self.victims.iter().map(|Victim { thread, access }| (thread, access)).collect();
        write!(f, "stopped (thread, access): {victims:?}, {:?}", self.schedule)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sleepers {
    /// Pending futures.
    Pending,
    /// All nodes of the settled queue.
    All,
}

/// The observer: made the early calls, and continues with the futures of threads that have ended.
struct Onlooker {
    stage: Arc<Stage>,
    semaphore: Arc<AsyncSemaphore>,
    start: History,
    /// Hands of ended threads; the last hand is the observer's.
    hands: Vec<(usize, Hand)>,
    number: usize,
    is_latch: bool,
    /// Number of waiters: while all fit into a wake batch, all are granted before any is woken.
    waiters: usize,
}

impl Run {
    pub(crate) fn run(&self) -> Outcome {
        stage::play(self.to_string());
        let Program { permits, early, threads, .. } = *self.program;
        let semaphore = Arc::new(permits.map_or_else(suspension::latch, AsyncSemaphore::new));
        let number = threads.len();
        let stage = Stage::new(number, self.schedule);
        let scripts = threads.iter().chain([&early]).flat_map(|script| *script);
        let mut onlooker = Onlooker {
            stage: Arc::clone(&stage),
            semaphore: Arc::clone(&semaphore),
            start: permits.map_or_else(History::of_latch, History::of_permits),
            hands: vec![(number, Hand::new(&semaphore, early.to_vec()))],
            number,
            is_latch: permits.is_none(),
            waiters: scripts.filter(|step| matches!(step, Step::Acquire(_) | Step::PassBy(_))).count(),
        };
        stage.look_on(number);
        onlooker.play_early();
        let players: Vec<_> = threads
            .iter()
            .enumerate()
            .map(|(thread, script)| {
                let (stage, victims) = (Arc::clone(&stage), self.victims.clone());
                let hand = Hand::new(&semaphore, script.to_vec());
                thread::spawn(move || stage.play(thread, hand, &victims))
            })
            .collect();
        let ended = stage.run();
        onlooker.hands.extend(ended);
        let mut outcome = onlooker.look_at_others();
        if self.schedule.seed % 2 == 1 {
            onlooker.let_go();
            onlooker.judge("after the others have let go of all", Sleepers::All);
        } else {
            onlooker.call(0, Call::Free);
            onlooker.poll_woken();
            onlooker.judge("after another call", Sleepers::All);
        }
        if self.weigh && outcome.stopped > 0 {
            outcome.held_back = onlooker.weigh();
        }
        stage.resume();
        onlooker.hands.extend(stage.run());
        onlooker.look_at_the_end(self.weigh && outcome.stopped > 0);
        stage.end();
        players.into_iter().for_each(|player| player.join().expect("a panic ends the process"));
        outcome
    }
}

impl Onlooker {
    fn call(&mut self, at: usize, call: Call) -> Answer {
        let (of, hand) = &mut self.hands[at];
        self.stage.call(self.number, hand, *of, call)
    }

    fn play_early(&mut self) {
        let script = self.hands[0].1.script().clone();
        for step in script {
            if let Some(call) = self.hands[0].1.plan(step) {
                self.call(0, call);
            }
        }
    }

    /// Polls all woken futures until all have been polled.
    fn poll_woken(&mut self) {
        loop {
            let woken = |(at, (_, hand)): (usize, &(usize, Hand))| Some((at, hand.woken().next()?));
            let Some((at, poll)) = self.hands.iter().enumerate().find_map(woken) else { return };
            if self.call(at, poll) == Answer::Pending {
                self.stage.fail("woken for nothing");
            }
        }
    }

    fn waiting(&self) -> usize {
        self.hands.iter().map(|(_, hand)| hand.waiting()).sum()
    }

    /// Fails unless some order of all calls explains the answers and the number of sleepers.
    fn judge(&self, when: &str, sleepers: Sleepers) {
        let mut sleeping = suspension::sleepers(&self.semaphore);
        if sleepers == Sleepers::Pending {
            // A stopped thread's own request may be in the queue, unsettled.
            let own = |call: &Event| matches!(call.call, Call::Poll { .. } | Call::PassBy(_));
            let stopped = self.stage.stopped().into_iter();
            sleeping = sleeping.saturating_sub(stopped.filter_map(|(.., call)| call).filter(own).count());
        }
        let mut history = self.start.clone();
        let in_a_waker = self.in_a_waker();
        for mut event in self.stage.events() {
            // The call has taken effect by then, though the caller has no answer.
            if event.answer.is_none() && in_a_waker.contains(&event.thread) {
                event.answer = Some(Answer::Done);
            }
            history.add(event);
        }
        if !history.is_explained(0) {
            self.stage.fail(&format!("{when}: no order of the calls explains the answers"));
        }
        if !history.is_explained(sleeping) {
            self.stage.fail(&format!(
                "{when}: {sleeping} sleep; in every order of the calls one of them is served"
            ));
        }
    }

    /// Threads stopped in a waker, in calls that call wakers last; other calls settle before, too.
    fn in_a_waker(&self) -> Vec<usize> {
        let wakes_at_last = |call: Event| match call.call {
            Call::Add(_) | Call::PendingRelease { .. } | Call::Cancel { .. } => !self.is_latch,
            Call::Close => true,
            _ => false,
        };
        let stopped = self.stage.stopped().into_iter();
        let in_a_waker = stopped.filter(|(_, place, call)| {
            place.file().ends_with("bell.rs")
                && self.waiters <= suspension::WAKE_BATCH
                && call.is_some_and(wakes_at_last)
        });
        in_a_waker.map(|(thread, ..)| thread).collect()
    }

    /// Checks the others while victims are stopped: all others have ended, and none sleeps beside permits.
    fn look_at_others(&mut self) -> Outcome {
        let stopped = self.stage.stopped().len();
        self.poll_woken();
        self.judge("while threads are stopped", Sleepers::Pending);
        let unwoken = self.waiting().saturating_sub(suspension::sleepers(&self.semaphore));
        if unwoken > stopped * suspension::WAKE_BATCH {
            self.stage.fail(&format!("{unwoken} waiters were granted their permits, and they are not woken"));
        }
        Outcome { stopped, held_back: 0, unwoken }
    }

    fn let_go(&mut self) {
        for at in 0..self.hands.len() {
            for call in self.hands[at].1.last_calls().collect::<Vec<_>>() {
                self.call(at, call);
            }
        }
        self.call(0, Call::Free);
        self.poll_woken();
    }

    /// Waiters come and go on a fresh thread, which keeps no memory; returns the growth of the heap.
    fn come_and_go(semaphore: &Arc<AsyncSemaphore>) -> isize {
        let before = counting::in_use();
        let semaphore = Arc::clone(semaphore);
        let come_and_go = move || {
            let bell = Bell::new();
            for _ in 0..WAITERS {
                drop(bell.poll(&mut semaphore.acquire()));
            }
        };
        thread::spawn(come_and_go).join().expect("a panic ends the process");
        counting::in_use() - before
    }

    /// The capacity is lowered and raised again beside a waiter, as often; returns the growth of the heap.
    fn lower_and_raise(semaphore: &Arc<AsyncSemaphore>) -> isize {
        let before = counting::in_use();
        let semaphore = Arc::clone(semaphore);
        let lower_and_raise = move || {
            let bell = Bell::new();
            let mut blocked = semaphore.acquire_weight(AsyncSemaphore::MAX_PERMITS);
            let is_blocked = bell.poll(&mut blocked).is_pending();
            let capacity = semaphore.capacity();
            if let (true, Some(less)) = (is_blocked, capacity.checked_sub(1)) {
                for _ in 0..WAITERS {
                    semaphore.set_capacity(less);
                    semaphore.set_capacity(capacity);
                }
            }
        };
        thread::spawn(lower_and_raise).join().expect("a panic ends the process");
        counting::in_use() - before
    }

    /// Bytes held back by the stopped threads, for each leaving waiter.
    fn weigh(&mut self) -> isize {
        let another = Arc::new(AsyncSemaphore::new(0));
        Self::come_and_go(&another);
        let of_another = Self::come_and_go(&another);
        if of_another > SLACK {
            self.stage.fail(&format!("{of_another} bytes of another semaphore are held back"));
        }
        let held_back = Self::come_and_go(&self.semaphore);
        if held_back > WAITERS * HELD_BACK + SLACK {
            self.stage.fail(&format!("{held_back} bytes are held back of {WAITERS} waiters"));
        }
        let by_lowering = Self::lower_and_raise(&self.semaphore);
        if by_lowering > WAITERS * HELD_BACK_BY_LOWERING + SLACK {
            self.stage
                .fail(&format!("{by_lowering} bytes are held back of {WAITERS} changes of the capacity"));
        }
        held_back / WAITERS
    }

    fn look_at_the_end(&mut self, was_weighed: bool) {
        self.poll_woken();
        let (waiting, sleepers) = (self.waiting(), suspension::sleepers(&self.semaphore));
        if waiting != sleepers {
            self.stage.fail(&format!("{waiting} wait, and {sleepers} sleep: a waiter was not woken"));
        }
        self.judge("in the end", Sleepers::All);
        if was_weighed {
            // Held-back memory is freed as other waiters come.
            let held_back = Self::come_and_go(&self.semaphore);
            if held_back > SLACK {
                self.stage.fail(&format!("{held_back} bytes are still held back in the end"));
            }
        }
        self.let_go();
        self.judge("after all have let go", Sleepers::All);
        let copies: usize = self.hands.iter().map(|(_, hand)| hand.copies()).sum();
        let waiters = self.semaphore.waiters();
        if (waiters, copies) != (0, 0) {
            self.stage.fail(&format!("{waiters} waiters and {copies} copies of wakers are left"));
        }
    }
}

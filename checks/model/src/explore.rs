//! The search through all states of a program.

#[cfg(latchwork_suspend)]
use std::collections::BTreeSet;
use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use fastrand::Rng;

use crate::machine::{At, Machine, StepOutcome, ways};
use crate::memory::{Memory, QueueState, State, Words};
use crate::mutants::{Mutant, Mutants};
use crate::operation::{Answer, Operation};
use crate::programs::Program;
use crate::seen::{KeyHasher, Seen, Visit};
use crate::spec::{Configuration, MAX_THREADS, Operations, all_can_wait, on_return};
use crate::violation::Violation;

/// A step: a thread, and one of its ways.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    pub(crate) thread: u8,
    way: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Thread {
    at: At,
    operation: u8,
    held: i8,
    releasing: i8,
}

/// The state of all threads, the memory, and the specification.
#[derive(Clone)]
pub(crate) struct Whole {
    pub(crate) memory: Memory,
    threads: [Thread; MAX_THREADS],
    explained: Rc<Explained>,
}

/// Configurations that explain the threads' answers so far; shared, since most steps do not change them.
struct Explained {
    configurations: Vec<Configuration>,
    key: u64,
}

impl Explained {
    /// `configurations` are sorted, so that equal sets are equal.
    fn new(configurations: Vec<Configuration>) -> Rc<Self> {
        let mut hasher = KeyHasher::default();
        configurations.hash(&mut hasher);
        Rc::new(Explained { configurations, key: hasher.finish() })
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Model<'a> {
    pub(crate) program: &'a Program,
    pub(crate) mutants: Mutants,
    /// If false, [`Memory::check_step`] is off, and only the threads' answers count.
    pub(crate) invariants: bool,
}

#[derive(Default, Clone, Copy, Debug)]
pub(crate) struct Statistics {
    pub(crate) programs: u64,
    pub(crate) states: u64,
    pub(crate) steps: u64,
    pub(crate) ends: u64,
    /// Programs beyond the limit on states.
    pub(crate) cut_short: u64,
    pub(crate) deepest: usize,
}

impl Statistics {
    pub(crate) fn add(&mut self, other: &Statistics) {
        self.programs += other.programs;
        self.states += other.states;
        self.steps += other.steps;
        self.ends += other.ends;
        self.cut_short += other.cut_short;
        self.deepest = self.deepest.max(other.deepest);
    }
}

impl fmt::Display for Statistics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Statistics { programs, states, steps, ends, cut_short, deepest } = self;
        write!(
            f,
            "{programs} programs, {states} states, {steps} steps, {ends} ends, at most {deepest} steps deep"
        )?;
        if *cut_short > 0 { write!(f, ", {cut_short} programs cut short") } else { Ok(()) }
    }
}

/// Probability that a random walk continues with the thread of the last step. Uniform choices hardly ever
/// find a mutant, since one thread has to stop at a certain place while others do much.
const STAYS: f64 = 0.8;

/// Answers of each thread in order; a thread asleep at the end has a final `Pending`.
#[cfg(latchwork_suspend)]
pub(crate) type Answers = Vec<Vec<Answer>>;

#[derive(Clone, Debug)]
pub(crate) struct Counterexample {
    pub(crate) violation: Violation,
    pub(crate) choices: Vec<Choice>,
}

impl<'a> Model<'a> {
    fn words(&self) -> Words {
        let mut words = self.program.words;
        if self.mutants.has(Mutant::ComparedInThreeBits) {
            words.ahead = 3;
        }
        if self.mutants.has(Mutant::ConsumedInThreeBits) {
            words.same = 3;
        }
        words
    }

    pub(crate) fn start(&self) -> Whole {
        let thread = Thread { at: At::Finished, operation: 0, held: 0, releasing: 0 };
        let mut whole = Whole {
            memory: Memory::new(self.program.permits, self.words()),
            threads: [thread; MAX_THREADS],
            explained: Explained::new(vec![Configuration::new(self.program.permits)]),
        };
        for index in 0..self.program.threads.len() {
            whole.threads[index].at = At::Idle;
            self.skip(index, &mut whole.threads[index]);
        }
        whole
    }

    fn skip(&self, index: usize, thread: &mut Thread) {
        let operations = &self.program.threads[index];
        while let Some(Operation::Release(_)) = operations.get(usize::from(thread.operation))
            && thread.held == 0
        {
            thread.operation += 1;
        }
        if usize::from(thread.operation) == operations.len() {
            thread.at = At::Finished;
        }
    }

    fn operation(&self, whole: &Whole, index: usize) -> Option<Operation> {
        let thread = &whole.threads[index];
        match self.program.threads.get(index)?.get(usize::from(thread.operation))? {
            Operation::Release(_) => Some(Operation::Release(thread.releasing)),
            &operation => Some(operation),
        }
    }

    fn operations(&self, whole: &Whole) -> Operations {
        std::array::from_fn(|index| self.operation(whole, index))
    }

    fn can_step(&self, whole: &Whole, index: usize) -> bool {
        match whole.threads[index].at {
            At::Finished => false,
            // Final, or about to be cancelled.
            At::Parked { node } => {
                whole.memory.node(node).state.is_final()
                    || matches!(self.operation(whole, index), Some(Operation::AcquireCancel(_)))
            }
            _ => true,
        }
    }

    fn choices(&self, whole: &Whole) -> impl Iterator<Item = Choice> + use<> {
        let mut choices = [Choice { thread: 0, way: 0 }; 2 * MAX_THREADS];
        let mut count = 0;
        for thread in 0..self.program.threads.len() {
            if self.can_step(whole, thread) {
                for way in 0..ways(&whole.threads[thread].at) {
                    choices[count] = Choice { thread: thread as u8, way };
                    count += 1;
                }
            }
        }
        choices.into_iter().take(count)
    }

    fn step(&self, before: &Whole, choice: Choice) -> Result<Whole, Violation> {
        self.step_to_answer(before, choice).map(|(whole, _)| whole)
    }

    /// Makes a step. Returns the state and the operation's answer, if any.
    fn step_to_answer(&self, before: &Whole, choice: Choice) -> Result<(Whole, Option<Answer>), Violation> {
        let mut whole = before.clone();
        let index = usize::from(choice.thread);
        let at = before.threads[index].at;
        let calls = match at {
            At::Idle => true,
            At::Parked { .. } => {
                matches!(self.operation(&whole, index), Some(Operation::AcquireCancel(_)))
            }
            _ => false,
        };
        if calls {
            whole.threads[index].releasing = whole.threads[index].held;
            let mut configurations = whole.explained.configurations.clone();
            for configuration in &mut configurations {
                configuration.call(index);
            }
            configurations.sort_unstable();
            whole.explained = Explained::new(configurations);
        }
        let operation =
            self.operation(&whole, index).expect("a thread that is not finished has an operation");
        let mut machine =
            Machine { memory: &mut whole.memory, operation, mutants: self.mutants, way: choice.way };
        let next = machine.step(at)?;
        if self.invariants && whole.memory != before.memory {
            whole.memory.check_step(&before.memory)?;
        }
        let answer = match next {
            StepOutcome::At(at) => {
                whole.threads[index].at = at;
                None
            }
            StepOutcome::Park(node) => {
                whole.threads[index].at = At::Parked { node };
                Some(Answer::Pending)
            }
            StepOutcome::Return(answer) => Some(answer),
        };
        if let Some(answer) = answer {
            let operations = self.operations(&whole);
            let explained = on_return(&whole.explained.configurations, index, answer, &operations);
            if explained.is_empty() {
                return Err(Violation::NotLinearizable { thread: index, answer });
            }
            whole.explained = Explained::new(explained);
            if answer != Answer::Pending {
                let thread = &mut whole.threads[index];
                match (answer, operation) {
                    (Answer::Ok, _) => thread.held += operation.weight(),
                    (_, Operation::Release(_)) => thread.held = 0,
                    _ => {}
                }
                thread.releasing = 0;
                thread.operation += 1;
                thread.at = At::Idle;
                self.skip(index, thread);
            }
            // Between two answers, threads only wake or call, so sleepers keep their reason.
            self.check_sleepers(&whole)?;
        }
        Ok((whole, answer))
    }

    /// Checks that sleeping threads have a reason, even if no other thread ever takes a step again.
    fn check_sleepers(&self, whole: &Whole) -> Result<(), Violation> {
        let mut sleepers = 0;
        for (index, thread) in whole.threads.iter().enumerate() {
            if let At::Parked { node } = thread.at
                && !whole.memory.node(node).state.is_final()
            {
                sleepers |= 1 << index;
            }
        }
        if sleepers == 0 || all_can_wait(&whole.explained.configurations, sleepers, &self.operations(whole)) {
            Ok(())
        } else {
            Err(Violation::LostWakeUp { sleepers })
        }
    }

    /// Checks a state without further steps.
    fn check_end(&self, whole: &Whole) -> Result<(), Violation> {
        let memory = &whole.memory;
        let free = memory.s - memory.consumed();
        if !whole.explained.configurations.iter().any(|configuration| configuration.free() == free) {
            return Err(Violation::Conservation);
        }
        let first = (0..).zip(memory.nodes()).find(|(_, node)| !node.state.is_final());
        if let (QueueState::Queued(_), Some((id, node))) = (memory.e.queue, first)
            && let State::Waiting { need, debt } = node.state
            && memory.s - memory.offset(id) >= need + debt
        {
            return Err(Violation::SleepsBesidePermits);
        }
        Ok(())
    }

    /// Searches depth-first through all states, up to `limit`.
    pub(crate) fn explore(&self, limit: u64, statistics: &mut Statistics) -> Result<(), Counterexample> {
        struct Frame<C> {
            whole: Whole,
            key: u64,
            choices: C,
            at_end: bool,
        }
        let mut seen = Seen::default();
        let mut path: Vec<Choice> = Vec::new();
        let start = self.start();
        let frame = |whole: Whole, key| Frame { choices: self.choices(&whole), key, at_end: true, whole };
        let key = start.key();
        seen.enter(key);
        let mut stack = vec![frame(start, key)];
        statistics.programs += 1;
        let mut states = 1;
        while let Some(top) = stack.last_mut() {
            let Some(choice) = top.choices.next() else {
                if top.at_end {
                    statistics.ends += 1;
                    if let Err(violation) = self.check_end(&top.whole) {
                        return Err(Counterexample { violation, choices: path });
                    }
                }
                // Off the path from here on.
                seen.leave(top.key);
                stack.pop();
                path.pop();
                continue;
            };
            top.at_end = false;
            statistics.steps += 1;
            let whole = match self.step(&top.whole, choice) {
                Ok(whole) => whole,
                Err(violation) => {
                    path.push(choice);
                    return Err(Counterexample { violation, choices: path });
                }
            };
            let key = whole.key();
            match seen.enter(key) {
                Visit::OnPath => {
                    path.push(choice);
                    return Err(Counterexample { violation: Violation::Livelock, choices: path });
                }
                Visit::Left => {}
                Visit::New => {
                    states += 1;
                    path.push(choice);
                    stack.push(frame(whole, key));
                    statistics.deepest = statistics.deepest.max(path.len());
                    if states == limit {
                        statistics.cut_short += 1;
                        break;
                    }
                }
            }
        }
        statistics.states += states;
        Ok(())
    }

    /// Returns all combinations of answers, over all interleavings.
    #[cfg(latchwork_suspend)]
    pub(crate) fn outcomes(&self) -> Result<BTreeSet<Answers>, Counterexample> {
        let mut outcomes = BTreeSet::new();
        let mut seen = HashSet::new();
        let mut todo = vec![(self.start(), vec![Vec::new(); self.program.threads.len()])];
        while let Some((whole, answers)) = todo.pop() {
            if !seen.insert((whole.key(), answers.clone())) {
                continue;
            }
            let mut at_end = true;
            for choice in self.choices(&whole) {
                at_end = false;
                let (next, answer) = self
                    .step_to_answer(&whole, choice)
                    .map_err(|violation| Counterexample { violation, choices: vec![choice] })?;
                let mut answers = answers.clone();
                // A waiting operation has no answer until the wait ends.
                let answer = answer.filter(|answer| *answer != Answer::Pending);
                answers[usize::from(choice.thread)].extend(answer);
                todo.push((next, answers));
            }
            if at_end {
                let mut answers = answers;
                for (thread, answers) in whole.threads.iter().zip(&mut answers) {
                    if matches!(thread.at, At::Parked { .. }) {
                        answers.push(Answer::Pending);
                    }
                }
                outcomes.insert(answers);
            }
        }
        Ok(outcomes)
    }

    /// Draws one interleaving, for programs with too many states: a cut-off depth-first search would see only
    /// the ends of one path.
    pub(crate) fn walk(&self, rng: &mut Rng, statistics: &mut Statistics) -> Result<(), Counterexample> {
        let mut whole = self.start();
        let mut path: Vec<Choice> = Vec::new();
        loop {
            let possible: Vec<Choice> = self.choices(&whole).collect();
            let Some(&any) = rng.choice(&possible) else { break };
            let last = path.last().map(|choice| choice.thread);
            let same: Vec<Choice> =
                possible.into_iter().filter(|choice| Some(choice.thread) == last).collect();
            let choice = match rng.choice(&same) {
                Some(&same) if rng.f64() < STAYS => same,
                _ => any,
            };
            path.push(choice);
            statistics.steps += 1;
            whole = match self.step(&whole, choice) {
                Ok(whole) => whole,
                Err(violation) => return Err(Counterexample { violation, choices: path }),
            };
        }
        statistics.ends += 1;
        statistics.deepest = statistics.deepest.max(path.len());
        self.check_end(&whole).map_err(|violation| Counterexample { violation, choices: path })
    }

    /// Searches breadth-first for a shortest way to a violation other than a livelock.
    pub(crate) fn shortest(&self, limit: usize) -> Option<Counterexample> {
        struct Reached {
            whole: Whole,
            from: usize,
            by: Choice,
        }
        let start = self.start();
        let mut seen: HashSet<u64> = HashSet::new();
        seen.insert(start.key());
        let mut reached = vec![Reached { whole: start, from: 0, by: Choice { thread: 0, way: 0 } }];
        let way_to = |reached: &[Reached], mut index: usize, last: Option<Choice>| {
            let mut choices: Vec<Choice> = last.into_iter().collect();
            while index != 0 {
                choices.push(reached[index].by);
                index = reached[index].from;
            }
            choices.reverse();
            choices
        };
        let mut from = 0;
        while from < reached.len() && reached.len() < limit {
            let whole = reached[from].whole.clone();
            let mut at_end = true;
            for by in self.choices(&whole) {
                at_end = false;
                match self.step(&whole, by) {
                    Err(violation) => {
                        return Some(Counterexample { violation, choices: way_to(&reached, from, Some(by)) });
                    }
                    Ok(whole) => {
                        if seen.insert(whole.key()) {
                            reached.push(Reached { whole, from, by });
                        }
                    }
                }
            }
            if at_end && let Err(violation) = self.check_end(&whole) {
                return Some(Counterexample { violation, choices: way_to(&reached, from, None) });
            }
            from += 1;
        }
        None
    }

    /// Prints a counterexample: each step with its place in the machine, and the memory below, if changed.
    pub(crate) fn print(&self, counterexample: &Counterexample) {
        let mut whole = self.start();
        println!("{:>8}{}", "", whole.memory);
        for &choice in &counterexample.choices {
            let index = usize::from(choice.thread);
            let before = whole.threads[index];
            let operation = self.program.threads[index][usize::from(before.operation)];
            print!("T{index} {operation:<4} {:?}", before.at);
            let after = match self.step(&whole, choice) {
                Ok(after) => after,
                Err(_) => {
                    println!();
                    break;
                }
            };
            let now = after.threads[index];
            if now.operation != before.operation {
                print!(", returns");
            } else if matches!(now.at, At::Parked { .. }) {
                print!(", returns Pending");
            }
            println!();
            if after.memory != whole.memory {
                println!("{:>8}{}", "", after.memory);
            }
            whole = after;
        }
        println!("FOUND {}", counterexample.violation);
    }
}

/// Minimises a program with a violation by removing and simplifying operations.
pub(crate) fn minimise(program: &Program, mutants: Mutants, invariants: bool, limit: u64) -> Program {
    let fails = |program: &Program| {
        Model { program, mutants, invariants }.explore(limit, &mut Statistics::default()).is_err()
    };
    let mut program = program.clone();
    while let Some(smaller) = smaller(&program).into_iter().find(|program| fails(program)) {
        program = smaller;
    }
    program
}

fn smaller(program: &Program) -> Vec<Program> {
    let mut smaller = Vec::new();
    for (thread, operations) in program.threads.iter().enumerate() {
        for index in 0..operations.len() {
            let mut without = program.clone();
            without.threads[thread].remove(index);
            without.threads.retain(|thread| !thread.is_empty());
            if !without.threads.is_empty() {
                smaller.push(without);
            }
        }
    }
    for (thread, operations) in program.threads.iter().enumerate() {
        for (index, operation) in operations.iter().enumerate() {
            for simpler in operation.simpler() {
                let mut with = program.clone();
                with.threads[thread][index] = simpler;
                smaller.push(with);
            }
        }
    }
    if program.permits > 0 {
        smaller.push(Program { permits: program.permits - 1, ..program.clone() });
    }
    smaller
}

impl Whole {
    fn key(&self) -> u64 {
        let mut hasher = KeyHasher::default();
        self.memory.hash(&mut hasher);
        self.threads.hash(&mut hasher);
        hasher.write_u64(self.explained.key);
        hasher.finish()
    }
}

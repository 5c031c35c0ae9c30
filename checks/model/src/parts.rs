//! The parts of a run: sets of programs, explored on all cores, and the reports.

use std::ops::RangeInclusive;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use fastrand::Rng;

use crate::explore::{Counterexample, Model, Statistics, minimise};
use crate::memory::Words;
use crate::mutants::{Kill, MUTANTS, Mutants, SPARE};
use crate::operation::{Operation, Permits};
use crate::programs::{Program, alphabet, sequences};

type Result = std::result::Result<(), String>;

/// For semaphores.
const SEMAPHORE: &str = "w1 w2 w3 c1 c2 c3 t1 t2 t3 r a1 a2 l1 l2 x v";
/// For latches, where notifications are valid: acquisitions need one permit, and no operation lowers.
const LATCH: &str = "w1 c1 t1 r a1 x v n";
/// For the quick run, and for samples of larger programs.
const FEW: &str = "w1 w2 c1 c2 t1 r a1 a2 l1 x v";

/// Limit on a program's states: programs beyond the limit are cut short, and counted. No program of a
/// complete set exceeds the limit.
const STATES: u64 = 50_000_000;
/// Limit on the states of a sampled program.
const STATES_OF_SAMPLE: u64 = 200_000;
/// Number of interleavings drawn for a sampled program beyond the limit.
const WALKS: usize = 5_000;
/// Limit on states for counterexamples.
const STATES_OF_SMALL: u64 = 2_000_000;

/// A set of programs: all with this number of threads and of operations per thread.
pub(crate) struct Search<'a> {
    pub(crate) alphabet: &'a str,
    pub(crate) threads: usize,
    pub(crate) operations: usize,
    pub(crate) permits: RangeInclusive<i8>,
}

pub(crate) fn everything(seconds: f64, seed: u64) -> Result {
    mutants()?;
    narrow()?;
    let search = |alphabet, threads, operations, permits| Search { alphabet, threads, operations, permits };
    let complete = [
        ("latch, all 2 × 2", search(LATCH, 2, 2, 0..=2)),
        ("latch, all 3 × 1", search(LATCH, 3, 1, 0..=2)),
        ("semaphore, all 2 × 2", search(SEMAPHORE, 2, 2, 0..=3)),
        ("semaphore, all 3 × 1", search(SEMAPHORE, 3, 1, 0..=3)),
    ];
    for (name, search) in complete {
        explore(name, &search.all()?, STATES, None)?;
    }
    let samples = [
        ("semaphore, some 2 × 3", search(SEMAPHORE, 2, 3, 0..=3)),
        ("semaphore, some 3 × 2", search(FEW, 3, 2, 0..=2)),
        ("semaphore, some 4 × 1", search(FEW, 4, 1, 0..=2)),
        ("latch, some 3 × 2", search(LATCH, 3, 2, 0..=2)),
    ];
    let limit = Duration::from_secs_f64(seconds);
    for (name, search) in samples {
        explore(name, &search.sample(20_000, seed)?, STATES_OF_SAMPLE, Some(limit))?;
    }
    Ok(())
}

/// Programs with words of the fewest bits allowed: half of the range holds all permits that the program
/// moves. With three bits, two of these are the programs of mutants.
const NARROW: &[(&str, Permits, u32)] = &[
    ("t1 | t1 r t1 r t3 r t3", 3, 5),
    ("t1 | t3 r t1 r t3", 3, 4),
    ("w1 | a3 a1 t1", 0, 4),
    ("w1 | t3 r t3 r l3 | v", 3, 5),
    ("c2 | w1 | l3 a3", 3, 5),
    ("w3 r | w3 r | w1 r", 3, 5),
];

/// Words that wrap around compare correctly, unless a step moves half of their range.
fn narrow() -> Result {
    for &(text, permits, bits) in NARROW {
        let program = Program { words: Words::of(bits), ..Program::parse(text, permits)? };
        explore(&program.to_string(), std::slice::from_ref(&program), STATES, None)?;
    }
    Ok(())
}

pub(crate) fn mutants() -> Result {
    for kill in MUTANTS {
        let &Kill { mutant, what, program, permits, expected } = kill;
        let program = Program::parse(program, permits)?;
        let model = |mutants| Model { program: &program, mutants, invariants: false };
        let survives = format!("{mutant:?} ({what}) is not found out by {program}");
        let found = model(Mutants::from_iter([mutant]))
            .explore(STATES, &mut Statistics::default())
            .err()
            .ok_or(survives)?;
        let name = found.violation.name();
        if name != expected {
            return Err(format!("{mutant:?} ({what}) is found out by {program}, but as {name}"));
        }
        println!("{mutant:?}: {what}: {name} in {program}");
    }
    println!("all {} mutants are found out", MUTANTS.len());
    Ok(())
}

pub(crate) fn program(text: &str, permits: i8, mutants: Mutants, invariants: bool) -> Result {
    let program = Program::parse(text, permits)?;
    let mut statistics = Statistics::default();
    let found = Model { program: &program, mutants, invariants }.explore(STATES, &mut statistics);
    println!("{program}: {statistics}");
    found.map_err(|found| shown(&program, mutants, invariants, &found))
}

/// Looks for a program that finds `mutants`.
pub(crate) fn hunt(
    mutants: Mutants,
    search: &Search<'_>,
    sample: Option<usize>,
    seconds: f64,
    seed: u64,
) -> Result {
    for (_, what) in SPARE.iter().filter(|(spare, _)| mutants.has(*spare)) {
        println!("known to survive: {what}");
    }
    let (programs, limit) = match sample {
        Some(count) => (search.sample(count, seed)?, Some(Duration::from_secs_f64(seconds))),
        None => (search.all()?, None),
    };
    // Without mutants, hunt for a fault of the algorithm.
    let invariants = mutants.is_empty();
    let (statistics, found) = run(&programs, mutants, invariants, STATES_OF_SAMPLE, limit);
    println!("{statistics}");
    match found {
        Some((program, found)) => Err(shown(&program, mutants, invariants, &found)),
        None => Ok(()),
    }
}

impl Search<'_> {
    fn sequences(&self) -> std::result::Result<Vec<Vec<Operation>>, String> {
        Ok(sequences(&alphabet(self.alphabet)?, self.operations))
    }

    /// Returns all programs, up to the order of threads, which are alike.
    fn all(&self) -> std::result::Result<Vec<Program>, String> {
        let sequences = self.sequences()?;
        let mut chosen: Vec<Vec<usize>> = vec![Vec::new()];
        for _ in 0..self.threads {
            chosen = chosen
                .iter()
                .flat_map(|chosen| {
                    let least = chosen.last().copied().unwrap_or(0);
                    (least..sequences.len()).map(move |next| [chosen.as_slice(), &[next]].concat())
                })
                .collect();
        }
        Ok(chosen
            .iter()
            .flat_map(|chosen| self.permits.clone().map(move |permits| (chosen, permits)))
            .map(|(chosen, permits)| Program {
                threads: chosen.iter().map(|&index| sequences[index].clone()).collect(),
                permits,
                words: Words::WIDE,
            })
            .collect())
    }

    pub(crate) fn sample(&self, count: usize, seed: u64) -> std::result::Result<Vec<Program>, String> {
        let sequences = self.sequences()?;
        let mut rng = Rng::with_seed(seed);
        let mut draw = || {
            let threads =
                (0..self.threads).map(|_| sequences[rng.usize(..sequences.len())].clone()).collect();
            Program { threads, permits: rng.i8(self.permits.clone()), words: Words::WIDE }
        };
        Ok((0..count).map(|_| draw()).collect())
    }
}

fn explore(name: &str, programs: &[Program], states: u64, limit: Option<Duration>) -> Result {
    let start = Instant::now();
    let (statistics, found) = run(programs, Mutants::default(), true, states, limit);
    println!("{name}: {statistics}, {:.0} s", start.elapsed().as_secs_f64());
    match found {
        Some((program, found)) => Err(shown(&program, Mutants::default(), true, &found)),
        None if limit.is_none() && statistics.cut_short > 0 => {
            Err(format!("{name}: the limit of {states} states is too low for these to be complete"))
        }
        None => Ok(()),
    }
}

/// Explores `programs` on all cores, until one has a violation or the time is over.
fn run(
    programs: &[Program],
    mutants: Mutants,
    invariants: bool,
    states: u64,
    limit: Option<Duration>,
) -> (Statistics, Option<(Program, Counterexample)>) {
    let start = Instant::now();
    let next = AtomicUsize::new(0);
    let total = Mutex::new((Statistics::default(), None));
    let work = || {
        let mut statistics = Statistics::default();
        let mut rng = Rng::with_seed(0);
        while limit.is_none_or(|limit| start.elapsed() < limit) {
            let Some(program) = programs.get(next.fetch_add(1, Ordering::Relaxed)) else { break };
            let model = Model { program, mutants, invariants };
            let before = statistics.cut_short;
            let mut found = model.explore(states, &mut statistics);
            if statistics.cut_short > before {
                found = (0..WALKS).try_for_each(|_| model.walk(&mut rng, &mut statistics));
            }
            if let Err(found) = found {
                next.store(programs.len(), Ordering::Relaxed);
                total.lock().expect("no thread panics under this mutex").1 = Some((program.clone(), found));
            }
        }
        total.lock().expect("no thread panics under this mutex").0.add(&statistics);
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    total.into_inner().expect("no thread panics under this mutex")
}

/// Prints a minimised program and the shortest way to the violation. Returns a summary.
fn shown(program: &Program, mutants: Mutants, invariants: bool, found: &Counterexample) -> String {
    println!("{} in {program}", found.violation.name());
    let program = minimise(program, mutants, invariants, STATES_OF_SMALL);
    let model = Model { program: &program, mutants, invariants };
    println!("minimised to {program}");
    let found = model
        .shortest(STATES_OF_SMALL as usize)
        // Breadth-first search finds no cycles.
        .or_else(|| model.explore(STATES_OF_SMALL, &mut Statistics::default()).err())
        .expect("a minimised program has the violation");
    model.print(&found);
    format!("{} in {program}", found.violation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mutant_is_found_out() {
        mutants().unwrap();
    }

    #[test]
    fn words_that_wrap_around_compare_correctly() {
        narrow().unwrap();
    }

    #[test]
    fn semaphore_is_fifo_in_all_pairs_of_two_operations() {
        let search = Search { alphabet: FEW, threads: 2, operations: 2, permits: 0..=2 };
        explore("semaphore, all 2 × 2 of few operations", &search.all().unwrap(), STATES, None).unwrap();
    }

    #[test]
    fn latch_loses_no_notification_in_all_pairs_of_two_operations() {
        let search = Search { alphabet: LATCH, threads: 2, operations: 2, permits: 0..=1 };
        explore("latch, all 2 × 2", &search.all().unwrap(), STATES, None).unwrap();
    }
}

//! Programs: what the threads do.

use std::fmt;

use crate::memory::{MAX_NODES, Permits, Words};
use crate::spec::MAX_THREADS;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Operation {
    /// Acquires, and waits for as long as it takes.
    Acquire(Permits),
    /// Acquires; if it has to wait, cancels the wait at any time later.
    AcquireCancel(Permits),
    Try(Permits),
    /// All that the thread has acquired and not released.
    Release(Permits),
    Add(Permits),
    Lower(Permits),
    Close,
    Available,
    Notify,
}

impl Operation {
    pub(crate) fn weight(self) -> Permits {
        use Operation::{Acquire, AcquireCancel, Add, Lower, Release, Try};
        match self {
            Acquire(weight) | AcquireCancel(weight) | Try(weight) => weight,
            Release(weight) | Add(weight) | Lower(weight) => weight,
            Operation::Close | Operation::Available | Operation::Notify => 0,
        }
    }

    /// Whether it can publish a node: each publishes one at most.
    fn publishes(self) -> bool {
        use Operation::{Acquire, AcquireCancel, Lower, Try};
        matches!(self, Acquire(_) | AcquireCancel(_) | Try(_) | Lower(_))
    }

    /// The same with less weight, or a simpler one: what a counterexample is minimised by.
    pub(crate) fn simpler(self) -> Vec<Operation> {
        use Operation::{Acquire, AcquireCancel, Add, Lower, Try};
        let mut simpler = Vec::new();
        if let AcquireCancel(n) = self {
            simpler.push(Acquire(n));
        }
        if self.weight() > 1 {
            simpler.extend(match self {
                Acquire(n) => Some(Acquire(n - 1)),
                AcquireCancel(n) => Some(AcquireCancel(n - 1)),
                Try(n) => Some(Try(n - 1)),
                Add(n) => Some(Add(n - 1)),
                Lower(n) => Some(Lower(n - 1)),
                _ => None,
            });
        }
        simpler
    }

    fn parse(word: &str) -> Result<Operation, String> {
        let (letter, weight) = word.split_at(1);
        let weight = match weight {
            "" => Ok(1),
            weight => weight.parse().map_err(|_| format!("{word:?} is no operation")),
        };
        Ok(match letter {
            "w" => Operation::Acquire(weight?),
            "c" => Operation::AcquireCancel(weight?),
            "t" => Operation::Try(weight?),
            "r" => Operation::Release(0),
            "a" => Operation::Add(weight?),
            "l" => Operation::Lower(weight?),
            "x" => Operation::Close,
            "v" => Operation::Available,
            "n" => Operation::Notify,
            _ => return Err(format!("{word:?} is no operation")),
        })
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operation::Acquire(n) => write!(f, "w{n}"),
            Operation::AcquireCancel(n) => write!(f, "c{n}"),
            Operation::Try(n) => write!(f, "t{n}"),
            Operation::Release(_) => f.write_str("r"),
            Operation::Add(n) => write!(f, "a{n}"),
            Operation::Lower(n) => write!(f, "l{n}"),
            Operation::Close => f.write_str("x"),
            Operation::Available => f.write_str("v"),
            Operation::Notify => f.write_str("n"),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Program {
    pub(crate) threads: Vec<Vec<Operation>>,
    /// Free at the beginning.
    pub(crate) permits: Permits,
    /// In which they are counted.
    pub(crate) words: Words,
}

impl Program {
    pub(crate) fn parse(text: &str, permits: Permits) -> Result<Program, String> {
        let thread = |thread: &str| thread.split_whitespace().map(Operation::parse).collect();
        let threads: Vec<Vec<_>> = text.split('|').map(thread).collect::<Result<_, _>>()?;
        let publishing = threads.iter().flatten().filter(|operation| operation.publishes()).count();
        if threads.len() > MAX_THREADS || publishing > MAX_NODES {
            return Err(format!(
                "{text:?} has more than {MAX_THREADS} threads, or more than {MAX_NODES} nodes"
            ));
        }
        Ok(Program { threads, permits, words: Words::WIDE })
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, thread) in self.threads.iter().enumerate() {
            if index > 0 {
                f.write_str(" | ")?;
            }
            let words: Vec<_> = thread.iter().map(Operation::to_string).collect();
            f.write_str(&words.join(" "))?;
        }
        write!(f, ", permits {}", self.permits)?;
        if self.words == Words::WIDE { Ok(()) } else { write!(f, ", words of {} bits", self.words.same) }
    }
}

/// The operations of one thread, so many of `alphabet`, in all ways that make sense: nothing is released that
/// cannot be held.
pub(crate) fn sequences(alphabet: &[Operation], length: usize) -> Vec<Vec<Operation>> {
    let mut sequences = vec![Vec::new()];
    for _ in 0..length {
        sequences = sequences
            .iter()
            .flat_map(|sequence: &Vec<Operation>| {
                alphabet.iter().map(move |&operation| [sequence.as_slice(), &[operation]].concat())
            })
            .collect();
    }
    sequences.retain(|sequence| releases_what_can_be_held(sequence));
    sequences
}

fn releases_what_can_be_held(sequence: &[Operation]) -> bool {
    let mut held = false;
    for operation in sequence {
        match operation {
            Operation::Acquire(_) | Operation::AcquireCancel(_) | Operation::Try(_) => held = true,
            Operation::Release(_) if !held => return false,
            Operation::Release(_) => held = false,
            _ => {}
        }
    }
    true
}

pub(crate) fn alphabet(text: &str) -> Result<Vec<Operation>, String> {
    text.split_whitespace().map(Operation::parse).collect()
}

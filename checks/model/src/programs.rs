//! Programs: the operations of threads.

use std::fmt;

use crate::memory::{MAX_NODES, Words};
use crate::operation::{Operation, Permits};
use crate::spec::MAX_THREADS;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Program {
    pub(crate) threads: Vec<Vec<Operation>>,
    /// Initially free permits.
    pub(crate) permits: Permits,
    /// The width of permit counters.
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

/// Returns all sequences of this length over `alphabet`, without releases before any acquisition.
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

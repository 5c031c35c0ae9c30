//! [`Operation`] of a thread, and its [`Answer`].

use std::fmt;

/// Permits ever credited or consumed. Exact in the memory and in threads' knowledge, so that checks are
/// exact; threads see only words of [`Words`](crate::memory::Words).
pub(crate) type Permits = i8;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Operation {
    /// Acquires, and waits as long as necessary.
    Acquire(Permits),
    /// Acquires; may cancel a wait at any time.
    AcquireCancel(Permits),
    Try(Permits),
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

    /// True if the operation can publish a node, at most one.
    pub(crate) fn publishes(self) -> bool {
        use Operation::{Acquire, AcquireCancel, Lower, Try};
        matches!(self, Acquire(_) | AcquireCancel(_) | Try(_) | Lower(_))
    }

    /// Returns simpler operations, or smaller weights, to minimise a counterexample.
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

    pub(crate) fn parse(word: &str) -> Result<Operation, String> {
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

#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(crate) enum Answer {
    Ok,
    Closed,
    /// `try_acquire` found too few permits, or waiters.
    NoPermits,
    /// `acquire` waits, and will have another answer later.
    Pending,
    /// For operations without a result.
    Done,
    /// For `available_permits`.
    Available(Permits),
}

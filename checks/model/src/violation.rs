//! [`Violation`]: a failed check.

use std::fmt;

use crate::operation::Answer;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// No order of the operations explains this thread's answer.
    NotLinearizable { thread: usize, answer: Answer },
    /// These threads sleep, but each order that explains the answers has granted or closed one of them.
    LostWakeUp { sleepers: u8 },
    /// A thread took permits that were not free.
    OverAdmission,
    /// At an end, the number of permits is wrong.
    Conservation,
    /// At an end, the first waiter sleeps although its need is covered.
    SleepsBesidePermits,
    /// A cycle of steps in which no operation returns.
    Livelock,
    /// An invariant of the algorithm is broken.
    Invariant(&'static str),
}

impl Violation {
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Violation::NotLinearizable { .. } => "not linearizable",
            Violation::LostWakeUp { .. } => "lost wake-up",
            Violation::OverAdmission => "over-admission",
            Violation::Conservation => "conservation",
            Violation::SleepsBesidePermits => "sleeps beside permits",
            Violation::Livelock => "livelock",
            Violation::Invariant(_) => "invariant",
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Violation::NotLinearizable { thread, answer } => {
                write!(f, ": no order of the operations explains that thread {thread} returns {answer:?}")
            }
            Violation::LostWakeUp { sleepers } => {
                let threads: Vec<_> = (0..8).filter(|thread| sleepers >> thread & 1 == 1).collect();
                write!(
                    f,
                    ": threads {threads:?} sleep; in every order of the operations one of them is granted or closed"
                )
            }
            Violation::OverAdmission => f.write_str(": permits were taken that were not there"),
            Violation::Conservation => {
                f.write_str(": in the end there are more or fewer permits than there should be")
            }
            Violation::SleepsBesidePermits => {
                f.write_str(": in the end the first waiter's need is covered, and it sleeps")
            }
            Violation::Livelock => f.write_str(": a cycle of steps in which no operation returns"),
            Violation::Invariant(what) => write!(f, ": {what}"),
        }
    }
}

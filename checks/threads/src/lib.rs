//! What loom cannot reach: more threads, more steps, the compiled code, real time. See the README beside this
//! package for the table of parts and how to run them.
//!
//! One kind of round serves real threads and both sanitizers: a random [`Script`] of steps for each
//! thread, and a count of everything when all is quiet.

mod bell;
mod call;
mod hand;
mod history;
mod mix;
mod patience;
mod round;
mod script;
mod start;
pub mod timed;

pub use crate::bell::Bell;
pub use crate::call::{Answer, Call};
pub use crate::hand::Hand;
pub use crate::history::{Event, History};
pub use crate::mix::{MIXES, Mix, StepKind};
pub use crate::patience::spin_until;
pub use crate::round::Round;
pub use crate::script::{Script, Step};
pub use crate::start::Start;

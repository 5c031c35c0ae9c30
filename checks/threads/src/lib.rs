//! Real threads over the semaphore: a [`Script`] of steps for each, played by a [`Hand`], and a [`History`]
//! of the calls, which a sequential semaphore must explain.

mod bell;
mod call;
mod hand;
mod history;
mod patience;
mod script;
mod start;
pub mod timed;

pub use crate::bell::Bell;
pub use crate::call::{Answer, Call};
pub use crate::hand::Hand;
pub use crate::history::{Event, History};
pub use crate::patience::spin_until;
pub use crate::script::{Script, Step};
pub use crate::start::Start;

//! The scripts on a real server, by themselves: what they do to the keys, which clients they tell, and what a
//! server may refuse them.

mod bounds;
mod differential;
mod endless;
mod fair;
mod plain;
mod queue;
mod read_write;
mod refusals;
pub(crate) mod stage;

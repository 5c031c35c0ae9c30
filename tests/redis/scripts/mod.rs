//! The scripts alone, on a real server: their effects on keys and messages, and the server's refusals.

mod bounds;
mod differential;
mod endless;
mod fair;
mod plain;
mod queue;
mod read_write;
mod refusals;
pub(crate) mod stage;

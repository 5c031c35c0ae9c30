//! What the models of loom and of shuttle have in common: stand-ins for the crates under the real thing.

pub(crate) mod epoch;
mod event;

pub(crate) use self::event::Event;

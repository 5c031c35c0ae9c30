//! Processes of one fleet: starting, ordering about, stopping and killing them, and their journals.
//!
//! # The protocol
//!
//! A line of words to a process, `THREAD WORDS …`; a line of words back, `THREAD ANSWER …`. A thread does one
//! thing after another. A process says `ready …` when it listens, ends when its stdin is closed, and dies
//! with its parent. [`Member`] is one end of the pipes, [`orders`] and [`answer`] are the other;
//! `Player.java` of `checks/interop` and a script of `benches` speak the same protocol.

pub mod clock;
pub mod journal;
mod member;
mod orders;

pub use self::member::{Asked, Member, java, this_program};
pub use self::orders::{READY, answer, orders};

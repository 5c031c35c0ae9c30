//! The lock over a real Redis under fault injection: with the network's faults between (see
//! `latchwork_testkit::ChaosProxy`), with connections killed, with a server that refuses, and in a process
//! that is stopped.
//!
//! Each test has a server of its own, and ends by looking at it: no key, no subscription, no interest is
//! left. What a server that is killed or does not answer comes to is in `server.rs`, too.

mod flushed;
mod handed_off;
mod killed;
mod lost_replies;
mod paused;
mod refused;
mod silence;
mod slow;

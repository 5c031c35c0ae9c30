//! The lock over a real Redis under fault injection: network faults (see `latchwork_testkit::ChaosProxy`),
//! killed connections, refusals, and a stopped process.
//!
//! Each test has a server of its own, and ends with a check for remaining keys, subscriptions and interest.

mod flushed;
mod handed_off;
mod killed;
mod paused;
mod refused;
mod silence;
mod slow;

//! The lock over a real Redis under fault injection: network faults (see `latchwork_testkit::ChaosProxy`),
//! killed connections, and refusals.
//!
//! Each test has a server of its own, and ends with a check for remaining keys, subscriptions and interest.

mod handed_off;
mod killed;
mod refused;
mod silence;
mod slow;

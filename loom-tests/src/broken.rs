//! The broken twins: loops that were published, or that a small change would make of ours, and that must
//! fail.

pub mod try_run;

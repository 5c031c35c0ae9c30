//! The broken twins: published loops, or small changes of ours. Their models must fail.

pub mod try_run;

//! Fair locks over a real Redis, on bad days.

mod kind;
#[path = "../queued/mod.rs"]
mod queued;

//! Fair locks over a real Redis under fault injection.

mod kind;
#[path = "../queued/mod.rs"]
mod queued;

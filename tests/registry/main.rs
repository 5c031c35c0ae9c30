//! `Registry` and its entries over a scripted transport, and `LockEntry` driven by events.

mod api;
mod cancel;
mod defects;
mod lock_entry;
#[path = "../script/mod.rs"]
mod script;

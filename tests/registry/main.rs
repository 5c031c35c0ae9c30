//! `Registry` and its entries, over a transport that the tests play, and `LockEntry` by its events.

mod api;
mod cancel;
mod defects;
mod lock_entry;
#[path = "../script/mod.rs"]
mod script;

//! What the scripts of read-write locks do to the keys, and whom they tell.

#[path = "../by_hand/mod.rs"]
mod by_hand;
#[path = "../commands/mod.rs"]
mod commands;
mod leases;
mod random;
mod stage;
mod strangers;
mod turns;

//! What the scripts of fair locks do to the keys, and whom they tell.

#[path = "../by_hand/mod.rs"]
mod by_hand;
#[path = "../commands/mod.rs"]
mod commands;
mod kinds;
mod queue;
mod random;
mod releases;
mod rights;
mod stage;

//! What the scripts of fair locks do to the keys, and which clients they tell.

mod kinds;
mod queue;

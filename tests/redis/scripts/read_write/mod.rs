//! What the scripts of read-write locks do to the keys, and which clients they tell.

mod found;
mod leases;
mod random;
mod strangers;
mod turns;

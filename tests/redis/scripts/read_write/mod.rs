//! What the scripts of read-write locks do to the keys, and which clients they tell.

mod crowds;
mod found;
mod leases;
mod readers;
mod strangers;
mod turns;

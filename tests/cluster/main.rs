//! The Redis backend over several servers: Clusters, Sentinels, and replicas that confirm acquisitions.

#[path = "../by_hand/mod.rs"]
mod by_hand;
#[path = "../errors/mod.rs"]
mod errors;
mod failover;
#[path = "../kinds/mod.rs"]
mod kinds;
mod migration;
mod nodes;
#[allow(unused, reason = "some of it is for the other suites alone")]
#[path = "../permits/mod.rs"]
mod permits;
mod redisson;
mod renewals;
mod replicas;
mod sentinel;
mod suite;
mod urls;
#[path = "../waiting/mod.rs"]
mod waiting;

//! The Redis backend over several servers: Clusters, Sentinels, and replicas that confirm acquisitions.

mod all_or_nothing;
#[path = "../by_hand/mod.rs"]
mod by_hand;
mod failover;
mod fair;
mod migration;
mod nodes;
mod proxied;
mod redisson;
mod renewals;
mod replicas;
mod sentinel;
mod suite;
mod urls;
#[path = "../waiting/mod.rs"]
mod waiting;
mod wakes;

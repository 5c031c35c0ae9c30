//! The Redis backend on Clusters of real servers.

mod all_or_nothing;
mod both_kinds;
#[path = "../commands/mod.rs"]
mod commands;
#[path = "../conformance/mod.rs"]
mod conformance;
mod failover;
mod fair;
mod migration;
mod nodes;
mod proxied;
mod redisson;
mod renewals;
mod suite;
mod urls;
#[path = "../waiting/mod.rs"]
mod waiting;
mod wakes;

use nodes::SOON;

//! The Redis backend on one healthy server. Faults are in `redis_faults`, several servers in `cluster`.

mod acl;
#[path = "../by_hand/mod.rs"]
mod by_hand;
mod calls;
#[path = "../clashing/mod.rs"]
mod clashing;
mod commands;
mod configuration;
mod endless;
#[path = "../errors/mod.rs"]
mod errors;
mod executors;
#[path = "../kinds/mod.rs"]
mod kinds;
mod multi;
mod names;
mod on_permits;
mod other_kinds;
#[path = "../permits/mod.rs"]
mod permits;
mod redisson;
mod scripts;
mod suite;
mod urls;
#[path = "../waiting/mod.rs"]
mod waiting;
mod wakers;

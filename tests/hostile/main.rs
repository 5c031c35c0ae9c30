//! Texts that no client of this crate writes: as names of locks, and as ids of leases in the store. (Replies,
//! messages and URLs are attacked beside what reads them, in `src/redis`.) `cargo xtask verify fuzz` does so
//! for longer.

mod driver;
mod ids;
mod names;
mod twins;

//! Texts not written by this crate, as lock names and as lease ids in the store. (Replies, messages and URLs
//! are attacked beside their parsers in `src/redis`.) `cargo xtask verify fuzz` runs longer.

mod driver;
mod ids;
mod names;
mod twins;

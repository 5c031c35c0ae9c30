//! The whole lock in virtual time: programs that are drawn, over stores that do what a store may do.

mod store;
mod world;

fn main() {}

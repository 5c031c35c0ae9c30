//! The whole lock in virtual time: programs that are drawn, over stores that do what a store may do.

mod care;
mod excuses;
mod judge;
mod leases;
mod program;
mod run;
mod stage;
mod store;
mod task;
mod world;

fn main() {
    let report = run::run::<store::local::LocalStore>(&program::Program::default(), true);
    println!("{report:?}");
}

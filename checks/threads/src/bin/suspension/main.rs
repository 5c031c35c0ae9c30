//! Stops any thread for ever, before any access to shared memory: all others complete their calls, no waiter
//! sleeps beside permits that cover its need, and the memory held back is bounded. Then the thread goes on,
//! and all must be well.
//!
//! Each program of `programs` runs under each schedule with each of its threads stopped before its first
//! access, its second one, and so on, until the thread ends earlier. An order of the calls must explain the
//! answers and the sleeping threads; the call of a stopped thread may have taken effect or not.

#[cfg(latchwork_suspend)]
#[allow(dead_code, reason = "what the memory tests count, too: how often something was allocated")]
#[path = "../../../../../tests/heap/mod.rs"]
mod counting;
#[cfg(latchwork_suspend)]
mod counts;
#[cfg(latchwork_suspend)]
mod programs;
#[cfg(latchwork_suspend)]
mod run;
#[cfg(latchwork_suspend)]
mod stage;
#[cfg(latchwork_suspend)]
mod tour;

#[cfg(latchwork_suspend)]
fn main() {
    tour::main();
}

#[cfg(not(latchwork_suspend))]
fn main() {
    eprintln!(
        "in this build no thread can be stopped; `cargo xtask verify suspension` makes one where it can"
    );
    std::process::exit(2);
}

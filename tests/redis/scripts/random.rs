//! Random sequences of commands.

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};

use proptest::prelude::*;

pub(crate) const CLIENTS: u32 = 3;

/// A client, and a number of it.
pub(crate) type Party = (u32, u64);

/// Plays random sequences of what `command` draws, each at a lock of its own, whose name begins with `kind`.
pub(crate) fn play<C: Debug>(kind: &str, command: impl Strategy<Value = C>, play: impl AsyncFn(&str, &[C])) {
    let runs = AtomicUsize::new(0);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let config = ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() };
    let commands = proptest::collection::vec(command, 1..40);
    proptest!(config, |(commands in commands)| {
        // Ordering: Relaxed, only numbers that differ.
        let name = format!("{kind}:random:{}", runs.fetch_add(1, Ordering::Relaxed));
        runtime.block_on(play(&name, &commands));
    });
}

/// All of the clients, each with so many numbers.
pub(crate) fn parties(ids: u64) -> impl Iterator<Item = Party> {
    (1..=CLIENTS).flat_map(move |client| (1..=ids).map(move |number| (client, number)))
}

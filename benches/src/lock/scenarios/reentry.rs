//! An owner acquires and releases its own lock again. The peers cannot.

use std::time::Instant;

use latchwork::LockClient;
use latchwork::redis::Redis;

use super::super::clients::{Client, Latchwork};
use super::super::figure::{Figure, Goal, Measurement};
use super::super::monitor::Monitor;
use super::super::runtime;
use super::super::server::Server;

pub(super) const NAME: &str = "reentry";

const PAIRS: u32 = 10_000;

pub(super) fn measure(server: &mut Server, rounds: usize) -> Measurement {
    let runtime = runtime();
    let lock = runtime.block_on(async {
        let client = LockClient::new(Redis::connect(&server.url()).await.expect("a server"));
        client.get_lock(NAME).expect("a name").owned_by(&client.owner())
    });
    let outer = runtime.block_on(lock.lock()).expect("the lock");
    let pairs = || {
        runtime.block_on(async {
            let begun = Instant::now();
            for _ in 0..PAIRS {
                let inner = lock.lock().await.expect("it is ours");
                inner.unlock().await.expect("it was held");
            }
            begun.elapsed().as_nanos() as f64 / 1e3 / f64::from(PAIRS)
        })
    };
    let monitor = Monitor::begin(server);
    pairs();
    let sent = monitor.end(server).total() as f64 / f64::from(PAIRS);
    let best = (0..rounds).map(|_| pairs()).fold(f64::MAX, f64::min);
    runtime.block_on(outer.unlock()).expect("it was held");
    server.assert_empty(NAME);
    let figure = |what, digits, goal, value| {
        let values = vec![(Latchwork::NAME, value)];
        Figure { scenario: NAME, what, digits, goal: Some(goal), values }
    };
    let figures = vec![
        // A renewal may come in between.
        figure("commands of lock + unlock", 2, Goal::AtMost(0.0), sent),
        figure("lock + unlock, us", 2, Goal::AtMost(1.0), best),
    ];
    Measurement { figures, notes: Vec::new() }
}

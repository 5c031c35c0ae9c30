//! The commands that acquire and release a free lock.

use super::super::clients::{Client, Raw};
use super::super::figure::{Figure, Goal, Measurement};
use super::super::monitor::Monitor;
use super::super::runtime;
use super::super::server::Server;
use crate::each_client;

pub(super) const NAME: &str = "commands";

const PAIRS: u64 = 100;

pub(super) fn measure(server: &mut Server, _rounds: usize) -> Measurement {
    let mut rows = Vec::from(each_client!(row(server)));
    rows.push(row::<Raw>(server));
    let mut measurement = Measurement::default();
    let mut values = Vec::new();
    for (client, commands, sent) in rows {
        measurement.notes.push(format!("{NAME}: {client} sends {sent}"));
        values.push((client, commands));
    }
    let what = "commands of lock + unlock";
    measurement.figures.push(Figure {
        scenario: NAME,
        what,
        digits: 2,
        goal: Some(Goal::AtMost(2.0)),
        values,
    });
    measurement
}

pub(super) fn row<C: Client>(server: &mut Server) -> (&'static str, f64, String) {
    let runtime = runtime();
    let name = format!("{NAME}:{}", C::NAME);
    let client = runtime.block_on(C::connect(&server.url(), &name));
    let pair = async || {
        let guard = client.lock().await;
        client.unlock(guard).await;
    };
    // Now the server knows the scripts.
    runtime.block_on(pair());
    let monitor = Monitor::begin(server);
    for _ in 0..PAIRS {
        runtime.block_on(pair());
    }
    let sent = monitor.end(server);
    server.assert_empty(C::NAME);
    (C::NAME, sent.total() as f64 / PAIRS as f64, sent.per(PAIRS))
}

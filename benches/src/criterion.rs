//! Criterion, with the same settings for every scenario.

use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput};

use crate::event::Event;

/// A criterion with the options of the command line: no plots, a few seconds per row.
pub fn criterion() -> Criterion {
    Criterion::default()
        .without_plots()
        .sample_size(50)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args()
}

/// Measures one scenario: a group for each event, a row for each peer.
pub fn measure(events: Vec<Event>) {
    let mut criterion = criterion();
    for mut event in events {
        let mut group = criterion.benchmark_group(event.name);
        if event.per_round > 1 {
            group.throughput(Throughput::Elements(event.per_round.into()));
        }
        for row in &mut event.rows {
            group.bench_function(BenchmarkId::from_parameter(row.peer), |bencher| {
                bencher.iter_custom(|rounds| {
                    let tries = std::iter::repeat_with(|| row.run(rounds)).take(20);
                    tries.flatten().next().expect("the machine has two cores, and is not swamped")
                });
            });
        }
        group.finish();
    }
    criterion.final_summary();
}

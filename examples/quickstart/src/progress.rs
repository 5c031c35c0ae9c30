//! The progress bar, and its updates.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::interval;

const TICK: Duration = Duration::from_millis(50);

/// Drawn on stderr, and only on a terminal.
pub(crate) fn bar(increments: u64) -> ProgressBar {
    let style = ProgressStyle::with_template("{bar:40} {human_pos} of {human_len} increments, {elapsed}");
    ProgressBar::new(increments).with_style(style.expect("the template is well-formed"))
}

/// Awaits `job`; meanwhile, and once more at its end, reports the growth of `done`.
pub(crate) async fn while_running<T>(
    job: impl Future<Output = T>,
    done: &AtomicU64,
    mut tell: impl FnMut(u64),
) -> T {
    let mut job = pin!(job);
    let mut ticks = interval(TICK);
    loop {
        let ended = tokio::select! {
            output = &mut job => Some(output),
            _ = ticks.tick() => None,
        };
        tell(done.swap(0, Ordering::Relaxed));
        if let Some(output) = ended {
            return output;
        }
    }
}

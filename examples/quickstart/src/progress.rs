//! The live picture, and its updates.

use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use latchwork::LockClient;
use tokio::time::interval;

const TICK: Duration = Duration::from_millis(50);
/// Most locks that fit into a row.
const SHOWN: usize = 40;

/// A row for each process, with a mark for each lock that the process holds now, above a bar of increments.
/// On stderr, and only on a terminal.
#[derive(Clone)]
pub(crate) struct Picture {
    rows: Vec<ProgressBar>,
    bar: ProgressBar,
    locks: usize,
}

impl Picture {
    pub(crate) fn draw(processes: u32, locks: u32, increments: u64) -> Self {
        let picture = MultiProgress::new();
        let row = |number| {
            let style = ProgressStyle::with_template("{prefix} {msg}").expect("the template is well-formed");
            let row = picture.add(ProgressBar::no_length().with_style(style));
            row.with_prefix(format!("process {number:2} holds"))
        };
        let rows = (1..=processes).map(row).collect();
        let style = ProgressStyle::with_template("{bar:40} {human_pos} of {human_len} increments, {elapsed}");
        let bar = ProgressBar::new(increments).with_style(style.expect("the template is well-formed"));
        Self { rows, bar: picture.add(bar), locks: locks as usize }
    }

    /// `more`: further increments of the process. `held`: numbers of the locks that it holds now.
    pub(crate) fn tell(&self, process: usize, more: u64, held: &[usize]) {
        let mark = |lock| if held.contains(&lock) { '■' } else { '·' };
        self.rows[process].set_message((0..self.locks.min(SHOWN)).map(mark).collect::<String>());
        self.bar.inc(more);
    }

    pub(crate) fn finish(&self) {
        self.rows.iter().for_each(ProgressBar::finish_and_clear);
        self.bar.finish();
    }
}

/// Returns the numbers of the locks, by their `names`, that the client holds now.
pub(crate) fn held(client: &LockClient, names: &[String]) -> Vec<usize> {
    let held = client.held();
    let is_held = |lock: &usize| held.iter().any(|held| held.name.as_str() == names[*lock]);
    (0..names.len().min(SHOWN)).filter(is_held).collect()
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

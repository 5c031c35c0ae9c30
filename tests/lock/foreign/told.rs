//! Counts panics that reach the caller or are reported by an event, and counts other events.

use std::cell::Cell;
use std::sync::LazyLock;

use tracing::span::{Attributes, Id, Record};
use tracing::{Dispatch, Event, Level, Metadata, Subscriber};

thread_local! {
    static TOLD: Cell<usize> = const { Cell::new(0) };
}

pub(super) fn caller_is_told() {
    TOLD.set(TOLD.get() + 1);
}

/// Returns the number of panics that reached `act`'s caller or were reported by an event of this thread.
pub(crate) fn told_of(act: impl FnOnce()) -> usize {
    // Only panics are reported as errors.
    events_of(Level::ERROR, "latchwork", act)
}

/// Counts the events of `level` emitted by `act` on this thread in `module` and below.
pub(crate) fn events_of(level: Level, module: &'static str, act: impl FnOnce()) -> usize {
    TOLD.set(0);
    at_events_of(level, module, caller_is_told, act);
    TOLD.get()
}

pub(crate) fn at_events_of(
    level: Level,
    module: &'static str,
    told: impl Fn() + Send + Sync + 'static,
    act: impl FnOnce(),
) {
    // With a single subscriber, `tracing` asks the thread that first reaches an event, and another test's
    // thread has none.
    static OTHER: LazyLock<Dispatch> =
        LazyLock::new(|| Dispatch::new(Hears { level: Level::ERROR, module: "latchwork", told: || {} }));
    LazyLock::force(&OTHER);
    tracing::subscriber::with_default(Hears { level, module, told }, act);
}

struct Hears<F> {
    level: Level,
    module: &'static str,
    told: F,
}

impl<F: Fn() + Send + Sync + 'static> Subscriber for Hears<F> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_in = metadata.module_path().is_some_and(|path| path.starts_with(self.module));
        is_in && metadata.target() == "latchwork" && *metadata.level() == self.level
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {
        (self.told)();
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

//! [`Waiting`]: tells and counts each wait, from its start to its end, whatever the end is.

use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::lock_entry::Moment;

use crate::lock::entry::Entry;

/// The wait of a call. A call is no waiter as long as memory and store may give it the lock at once.
pub(super) struct Waiting<'a> {
    entry: &'a Arc<Entry>,
    /// Start of the call.
    pub(super) begun: Moment,
    is_waiter: bool,
}

impl<'a> Waiting<'a> {
    #[inline]
    pub(super) fn new(entry: &'a Arc<Entry>, begun: Moment) -> Self {
        Self { entry, begun, is_waiter: false }
    }

    /// Makes the call a waiter. `_left`: the time until the lock may be free, if the store has told.
    pub(super) fn begin(&mut self, _left: Option<Duration>) {
        if mem::replace(&mut self.is_waiter, true) {
            return;
        }
        event!(
            DEBUG,
            lock = self.entry.name.as_str(),
            label = self.entry.context.label.as_deref(),
            holder = self.entry.holder_here().map(tracing::field::display),
            left = _left.map(tracing::field::debug),
            "waiting"
        );
        #[cfg(feature = "tracing")]
        self.entry.watch_wait(self.begun);
    }

    /// Counts and tells an acquisition, from the store or, `in_memory`, from a holder of this client.
    #[inline(always)]
    pub(super) fn acquired(&mut self, _owner: u64, _watched: bool, now: Moment, in_memory: bool) {
        let (recorder, micros) = (&self.entry.context.recorder, now.micros_since(self.begun));
        recorder.waits.add(micros);
        if mem::take(&mut self.is_waiter) {
            let waits = if in_memory { &recorder.waits_local } else { &recorder.waits_remote };
            waits.add(micros);
        }
        event!(
            DEBUG, lock = self.entry.name.as_str(), owner = %self.entry.context.owner(_owner),
            watched = _watched, waited = ?Duration::from_micros(micros), "acquired"
        );
    }
}

/// The time is over, the acquisition has failed, or its future is dropped.
impl Drop for Waiting<'_> {
    #[inline]
    fn drop(&mut self) {
        let context = &self.entry.context;
        // In a child the clock's mutex may stay locked.
        if self.is_waiter && context.is_same_process() {
            let micros = context.now().micros_since(self.begun);
            context.recorder.waits_abandoned.add(micros);
            event!(DEBUG, lock = self.entry.name.as_str(), waited = ?Duration::from_micros(micros), "gave up");
        }
    }
}

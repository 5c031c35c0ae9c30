//! [`BackOff`]: how long to wait before the next try.

use std::time::Duration;

/// How long to wait before the next try: doubled each time, from the one to the other.
pub(super) struct BackOff {
    range: (Duration, Duration),
    next: Duration,
}

impl BackOff {
    pub(super) fn new(from: Duration, to: Duration) -> Self {
        Self { range: (from, to), next: from }
    }

    /// For a connection that is made again.
    pub(super) fn to_reconnect() -> Self {
        Self::new(Duration::from_millis(20), Duration::from_secs(1))
    }

    pub(super) fn next(&mut self) -> Duration {
        let next = self.next;
        self.next = (next * 2).min(self.range.1);
        next
    }

    /// It went well.
    pub(super) fn reset(&mut self) {
        self.next = self.range.0;
    }
}

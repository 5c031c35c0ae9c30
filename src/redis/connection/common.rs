//! [`Common`]: the state that all connections of one client share.

use std::sync::Arc;
use std::time::Instant;

use ::redis::RedisError;

use crate::backend::LATEST_RUN;
use crate::support::runtime::Runtime;
use crate::support::sync::Mutex;
use crate::support::sync::atomic::{AtomicU64, Ordering};

use super::timing::Timing;
use crate::support::runtime::TokioRuntime;

pub(crate) struct Common {
    pub(crate) timing: Timing,
    pub(crate) runtime: TokioRuntime,
    reconnects: AtomicU64,
    /// Cloned by each command that waits for room.
    waiting: Arc<()>,
    /// End of the time for late commands over connections that the server refused to close.
    late_until: Mutex<Option<Instant>>,
}

impl Common {
    pub(crate) fn new(timing: Timing, runtime: TokioRuntime) -> Self {
        let (reconnects, late_until) = (AtomicU64::new(0), Mutex::new(None));
        Self { timing, runtime, reconnects, waiting: Arc::default(), late_until }
    }

    /// Counts a command as waiting for room until the returned handle is dropped.
    pub(super) fn waits_in_line(&self) -> Arc<()> {
        Arc::clone(&self.waiting)
    }

    pub(crate) fn commands_waiting(&self) -> u64 {
        Arc::strong_count(&self.waiting) as u64 - 1
    }

    /// Returns the number of connections that replaced an earlier connection.
    pub(crate) fn reconnects(&self) -> u64 {
        // Ordering: Relaxed, a statistic; no other memory is read through the count.
        self.reconnects.load(Ordering::Relaxed)
    }

    pub(super) fn reconnected(&self) {
        // Ordering: Relaxed, as above.
        self.reconnects.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn cannot_end(&self, _refusal: &RedisError) {
        let before = self.late_until.lock().replace(self.runtime.now() + LATEST_RUN);
        // The time stays after its end, so a second refusal is not logged.
        if before.is_none() {
            event!(
                WARN,
                error = _refusal as &dyn std::error::Error,
                "CLIENT KILL is refused, so commands that come late over a lost connection are undone instead"
            );
        }
    }

    /// True while commands may come late over a lost connection.
    pub(crate) fn may_come_late(&self) -> bool {
        self.late_until.lock().is_some_and(|until| until > self.runtime.now())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ::redis::ErrorKind as Kind;

    use super::*;

    #[tokio::test]
    async fn unendable_connection_may_deliver_until_the_latest_run() {
        let runtime = TokioRuntime::current();
        let common = Common::new(Timing::default(), runtime.clone());
        assert!(!common.may_come_late());
        for _ in 0..2 {
            let begun = runtime.now();
            common.cannot_end(&RedisError::from((Kind::Client, "it is refused")));
            let until = common.late_until.lock().expect("it may come");
            assert!(common.may_come_late());
            assert!((begun + LATEST_RUN..=runtime.now() + LATEST_RUN).contains(&until), "{until:?}");
        }
        *common.late_until.lock() = Some(runtime.now() - Duration::from_millis(1));
        assert!(!common.may_come_late());
    }
}

//! Runtimes that differ from [`ThreadRuntime`] in one call.

use std::pin::Pin;
use std::time::{Duration, Instant};

use latchwork::backend::Runtime;
use latchwork::local::{Sleep, ThreadRuntime};

pub(crate) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) trait Differs: Clone + Send + Sync + 'static {
    fn reads_clock(&self) {}

    /// Returns the time at which a timer for `deadline` fires.
    fn fires(&self, deadline: Instant) -> Instant {
        deadline
    }

    fn spawns(&self, task: Task, clock: &ThreadRuntime) {
        clock.spawn(task);
    }

    fn is_asked_for_its_end(&self) {}
}

#[derive(Clone)]
pub(crate) struct Differently<D>(pub(crate) ThreadRuntime, pub(crate) D);

impl<D: Differs> Runtime for Differently<D> {
    type Sleep = Sleep;

    fn now(&self) -> Instant {
        self.1.reads_clock();
        self.0.now()
    }

    fn sleep_until(&self, deadline: Instant) -> Sleep {
        self.0.sleep_until(self.1.fires(deadline))
    }

    fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.1.spawns(Box::pin(task), &self.0);
    }

    fn has_ended(&self) -> bool {
        self.1.is_asked_for_its_end();
        self.0.has_ended()
    }
}

/// Timers fire in a hundred years, as on a busy thread: only calls discover that time has passed.
#[derive(Clone)]
pub(crate) struct Untimed;

impl Differs for Untimed {
    fn fires(&self, deadline: Instant) -> Instant {
        deadline + Duration::from_secs(100 * 365 * 24 * 3600)
    }
}

//! [`Alarm`]: when the keeper has to look, told by whoever makes something due.

use std::sync::OnceLock;
use std::time::Instant;

use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Event, Mutex};

/// The alarm of one client. The keeper is started by the first ring, and ends when nothing is due.
pub(super) struct Alarm {
    base: Instant,
    /// The nanoseconds from `base` to the keeper's next look; [`NEVER`] while none is set.
    next: AtomicU64,
    set: Mutex<Set>,
    rung: Event,
    start: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

#[derive(Default)]
struct Set {
    at: Option<Instant>,
    running: bool,
}

const NEVER: u64 = u64::MAX;

impl Alarm {
    pub(super) fn new(base: Instant) -> Self {
        let (set, start) = (Mutex::default(), OnceLock::new());
        Self { base, next: AtomicU64::new(NEVER), set, rung: Event::new(), start }
    }

    /// What starts the keeper.
    pub(super) fn starts(&self, start: impl Fn() + Send + Sync + 'static) {
        let _ = self.start.set(Box::new(start));
    }

    /// The keeper is to look at `at`, or earlier. Cheap if it does so anyway.
    pub(super) fn ring(&self, at: Instant) {
        let since = at.saturating_duration_since(self.base);
        let nanos = since.as_secs().saturating_mul(1_000_000_000).saturating_add(since.subsec_nanos().into());
        let nanos = nanos.min(NEVER - 1);
        // Ordering: Relaxed. The caller has changed an entry under its mutex before. A keeper that has looked at the entry before that
        // has set this to NEVER before it took that mutex, so it is not missed here.
        if nanos < self.next.load(Ordering::Relaxed) {
            self.set(at, nanos);
        }
    }

    fn set(&self, at: Instant, nanos: u64) {
        let was_running = {
            let mut set = self.set.lock();
            if set.at.is_some_and(|before| before <= at) && set.running {
                return;
            }
            set.at = Some(set.at.map_or(at, |before| before.min(at)));
            // Ordering: Relaxed, see `ring`; written under the mutex only.
            self.next.store(nanos, Ordering::Relaxed);
            std::mem::replace(&mut set.running, true)
        };
        match (was_running, self.start.get()) {
            (true, _) => _ = self.rung.notify(usize::MAX),
            (false, Some(start)) => start(),
            (false, None) => {}
        }
    }

    /// Is ready when the alarm is set to an earlier time. Listens from the call on.
    pub(super) fn rung(&self) -> impl Future<Output = ()> + Send + use<> {
        self.rung.listen()
    }

    /// When the keeper has to look. `None` ends it.
    pub(super) fn next(&self) -> Option<Instant> {
        let mut set = self.set.lock();
        set.running = set.at.is_some();
        set.at
    }

    /// The keeper is about to look: whatever is due from now on rings anew.
    pub(super) fn looking(&self) {
        let mut set = self.set.lock();
        set.at = None;
        // Ordering: Relaxed, see `ring`: the looks come after this, each under its entry's mutex.
        self.next.store(NEVER, Ordering::Relaxed);
    }

    /// The keeper has ended, in whatever way; the next ring starts another one.
    pub(super) fn ended(&self) {
        let mut set = self.set.lock();
        *set = Set::default();
        // Ordering: Relaxed, see `ring`.
        self.next.store(NEVER, Ordering::Relaxed);
    }

    /// The client is gone, and the keeper is to see that.
    pub(super) fn close(&self) {
        self.rung.notify(usize::MAX);
    }
}

//! [`Alarm`]: when the keeper has to look, told by whoever makes something due.

use crate::lock_entry::Moment;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Event, Mutex};
use std::sync::OnceLock;

/// The alarm of one client. The keeper is started by the first ring, and ends when nothing is due.
pub(super) struct Alarm {
    /// The keeper's next look, as a number; that of never while none is set.
    next: AtomicU64,
    set: Mutex<Set>,
    rung: Event,
    start: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

struct Set {
    at: Moment,
    running: bool,
}

impl Set {
    const NONE: Self = Self { at: Moment::NEVER, running: false };
}

impl Alarm {
    pub(super) fn new() -> Self {
        let next = AtomicU64::new(Moment::NEVER.number());
        Self { next, set: Mutex::new(Set::NONE), rung: Event::new(), start: OnceLock::new() }
    }

    /// What starts the keeper.
    pub(super) fn starts(&self, start: impl Fn() + Send + Sync + 'static) {
        let _ = self.start.set(Box::new(start));
    }

    /// The keeper is to look at `at`, or earlier. Cheap if it does so anyway.
    #[inline]
    pub(super) fn ring(&self, at: Moment) {
        // Ordering: Relaxed. The caller has changed an entry under its mutex before. A keeper that has looked at the entry before that
        // has set this to never before it took that mutex, so it is not missed here.
        if at.number() < self.next.load(Ordering::Relaxed) {
            self.set(at);
        }
    }

    fn set(&self, at: Moment) {
        let was_running = {
            let mut set = self.set.lock();
            if set.at <= at && set.running {
                return;
            }
            set.at = set.at.min(at);
            // Ordering: Relaxed, see `ring`; written under the mutex only.
            self.next.store(set.at.number(), Ordering::Relaxed);
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

    /// When the keeper has to look. Never ends it.
    pub(super) fn next(&self) -> Moment {
        let mut set = self.set.lock();
        set.running = set.at != Moment::NEVER;
        set.at
    }

    /// The keeper is about to look: whatever is due from now on rings anew.
    pub(super) fn looking(&self) {
        let mut set = self.set.lock();
        set.at = Moment::NEVER;
        // Ordering: Relaxed, see `ring`: the looks come after this, each under its entry's mutex.
        self.next.store(Moment::NEVER.number(), Ordering::Relaxed);
    }

    /// The keeper has ended, in whatever way; the next ring starts another one.
    pub(super) fn ended(&self) {
        let mut set = self.set.lock();
        *set = Set::NONE;
        // Ordering: Relaxed, see `ring`.
        self.next.store(Moment::NEVER.number(), Ordering::Relaxed);
    }

    /// The client is gone, and the keeper is to see that.
    pub(super) fn close(&self) {
        self.rung.notify(usize::MAX);
    }
}

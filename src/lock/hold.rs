//! One hold, as this process believes in it: until when, and whether it is known to be lost.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::runtime::Runtime;
use crate::sync::{Event, Mutex};

use super::backend::HoldKey;
use super::metrics::Recorder;
use super::tenure::Tenure;
use super::until::until;

/// Why a hold is over although its guard lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lost {
    /// The lease ended.
    Expired,
    /// It was held for as long as [`LockOptions::max_hold`](crate::LockOptions::max_hold) allows.
    HeldTooLong,
    /// The store says that the owner does not hold the lock any more: it was forced free, evicted, or lost in a failover.
    Gone,
    /// A renewal went out, and nothing confirmed it before the lease ended, so it counts as ended: no answer came, or the store
    /// refused.
    Unreachable,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "the lease ended",
            Self::HeldTooLong => "it was held for as long as the client's options allow",
            Self::Gone => "the lock is no longer held by this owner",
            Self::Unreachable => "no renewal was confirmed before the lease ended",
        })
    }
}

pub(super) struct Hold {
    pub(super) key: HoldKey,
    /// The fencing token, if one was asked for.
    pub(super) token: Option<u64>,
    pub(super) tenure: Tenure,
    recorder: Arc<Recorder>,
    state: Mutex<State>,
    /// Tells everyone that `lost` was set.
    told: Event,
}

struct State {
    /// Counted from before the command was sent that set it, so never later than the store's own; `None`: never.
    deadline: Option<Instant>,
    /// A renewal went out, and no answer has come yet.
    unanswered: bool,
    /// Never taken back: who was told acts on it.
    lost: Option<Lost>,
    /// Its guard let go of it, and left it to `Lock::unlock`.
    forgotten: bool,
}

impl Hold {
    pub(super) fn new(
        key: HoldKey,
        token: Option<u64>,
        deadline: Option<Instant>,
        tenure: Tenure,
        recorder: Arc<Recorder>,
    ) -> Self {
        let state = Mutex::new(State { deadline, unanswered: false, lost: None, forgotten: false });
        Self { key, token, tenure, recorder, state, told: Event::new() }
    }

    /// Why it is over at `now`, as far as is known here.
    fn look(&self, state: &mut State, now: Instant) -> Option<Lost> {
        if state.lost.is_none()
            && let Some(deadline) = state.deadline
            && deadline <= now
        {
            state.lost = Some(match state.unanswered {
                _ if self.tenure.limit == Some(deadline) => Lost::HeldTooLong,
                true => Lost::Unreachable,
                false => Lost::Expired,
            });
        }
        state.lost
    }

    /// All changes go through here, so that no loss goes unrecorded.
    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let (outcome, loss) = {
            let mut state = self.state.lock();
            let before = state.lost;
            let outcome = change(&mut state);
            // Who forgot it does not miss it.
            (outcome, state.lost.filter(|_| before.is_none() && !state.forgotten))
        };
        if let Some(_why) = loss {
            self.recorder.leases_lost.add_one();
            event!(
                WARN,
                lock = self.key.name.as_str(),
                owner = self.key.owner.as_str(),
                why = %_why,
                "lost"
            );
        }
        outcome
    }

    fn deadline(&self) -> Option<Instant> {
        self.state.lock().deadline
    }

    /// A renewal is about to go out. False if the hold is over at `now`: prolonging its lease would only keep others waiting.
    pub(super) fn renewing(&self, now: Instant) -> bool {
        self.change(|state| {
            state.unanswered = self.look(state, now).is_none();
            state.unanswered
        })
    }

    /// The renewal was answered at `now`: the lease lasts until `deadline`. False if the answer came too late.
    pub(super) fn renewed(&self, now: Instant, deadline: Option<Instant>) -> bool {
        self.change(|state| {
            if self.look(state, now).is_some() {
                return false;
            }
            (state.deadline, state.unanswered) = (deadline, false);
            true
        })
    }

    /// It is over, for this reason if it was not over already.
    pub(super) fn lose(&self, why: Lost) {
        self.change(|state| _ = state.lost.get_or_insert(why));
        self.told.notify(usize::MAX);
    }

    pub(super) fn forget(&self) {
        self.state.lock().forgotten = true;
    }

    pub(super) fn is_forgotten(&self) -> bool {
        self.state.lock().forgotten
    }

    /// Why the hold is over at `now`, as far as is known here.
    pub(super) fn lost_at(&self, now: Instant) -> Option<Lost> {
        self.change(|state| self.look(state, now))
    }

    /// How long the lease lasts from `now` if nobody renews it; `None` if the hold is over.
    pub(super) fn left_at(&self, now: Instant) -> Option<Duration> {
        if self.lost_at(now).is_some() {
            return None;
        }
        Some(self.deadline().map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(now)))
    }

    /// Waits until the hold is over.
    pub(super) async fn lost<R: Runtime>(&self, runtime: &R) -> Lost {
        loop {
            let told = self.told.listen();
            // After we listen, so that a loss that comes now is either seen here or told.
            if let Some(lost) = self.lost_at(runtime.now()) {
                return lost;
            }
            // A renewal moves the deadline while we sleep: then this wakes too early, and looks again.
            until(runtime, self.deadline(), told).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::{Duration, Instant};

    use super::{Hold, HoldKey, Lost, Tenure};
    use crate::lock::{LockName, Owner};

    fn a_hold(start: Instant, deadline: Option<Instant>, at_most: Option<Duration>) -> Hold {
        let key = HoldKey { name: LockName::new("hold").unwrap(), owner: Owner::new("client", 1) };
        Hold::new(key, None, deadline, Tenure::new(start, at_most), Arc::default())
    }

    #[test]
    fn loss_is_never_taken_back() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let hold = a_hold(start, Some(at(30)), None);
        assert!(hold.renewing(at(10)));
        assert!(hold.renewed(at(29), Some(at(40))));
        assert!(hold.renewing(at(20)));
        // It did run in time, and says so too late.
        assert!(!hold.renewed(at(40), Some(at(50))));
        assert_eq!(hold.lost_at(at(41)), Some(Lost::Unreachable));
        assert!(!hold.renewing(at(42)), "a lost hold is renewed");
        hold.lose(Lost::Gone);
        assert_eq!(hold.lost_at(at(43)), Some(Lost::Unreachable), "the first reason counts");
    }

    #[test]
    fn lease_that_ends_with_no_renewal_under_way_has_expired() {
        let start = Instant::now();
        let hold = a_hold(start, Some(start), None);
        assert!(!hold.renewing(start));
        assert_eq!(hold.lost_at(start), Some(Lost::Expired));
        assert_eq!(hold.recorder.leases_lost.get(), 1, "counted once");
    }

    #[test]
    fn lease_that_ends_with_the_limit_was_held_too_long() {
        let start = Instant::now();
        let at_most = Duration::from_millis(30);
        let limit = start + at_most;
        let hold = a_hold(start, Some(limit), Some(at_most));
        assert!(hold.renewing(start));
        assert_eq!(hold.lost_at(limit), Some(Lost::HeldTooLong));
    }
}

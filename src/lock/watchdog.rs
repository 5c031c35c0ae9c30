//! The watchdog: renews the leases of watched holds, each time a third of the lease is over.
//!
//! One task per client sees what is due, and renews it in one call to the backend, or in one for each group of names that the
//! backend keeps apart. It runs while there is something to watch: the first hold starts it, and it ends when it finds nothing
//! left. It keeps the client only weakly, so a client that is dropped is not kept alive by its watchdog.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use crate::runtime::Runtime;
use crate::sync::{Event, Mutex};
use crate::unless::unless;

use super::backend::{Backend, HoldKey};
use super::client::Inner;
use super::hold::{Hold, Lost};
use super::lease::Lease;

/// After a failed renewal the next try comes this much sooner than a third of the lease.
const HASTE: u32 = 10;

#[derive(Default)]
pub(super) struct Watchdog {
    watched: Mutex<Watched>,
    /// Tells the task that something is due sooner than what it sleeps for.
    sooner: Event,
}

#[derive(Default)]
struct Watched {
    /// By number; the instant is the hold's key in `due`.
    holds: HashMap<u64, (Instant, Arc<Hold>)>,
    due: BTreeMap<(Instant, u64), ()>,
    next_number: u64,
    running: bool,
    /// When the task looks again by itself.
    sleeps_until: Option<Instant>,
    /// The [groups](Backend::renewal_group) that a call is under way for, and what became due in them meanwhile.
    busy: HashMap<u64, Turn>,
}

/// Holds that are to be renewed, by number.
type Turn = BTreeMap<u64, Arc<Hold>>;

/// Which hold of the watchdog's; given back to [`Inner::unwatch`].
#[derive(Debug)]
pub(super) struct WatchId(u64);

impl Watched {
    fn put(&mut self, number: u64, due: Instant, hold: Arc<Hold>) {
        self.due.insert((due, number), ());
        self.holds.insert(number, (due, hold));
    }

    fn take(&mut self, number: u64) -> Option<Arc<Hold>> {
        let (due, hold) = self.holds.remove(&number)?;
        self.due.remove(&(due, number));
        Some(hold)
    }

    fn first_due(&self) -> Option<Instant> {
        self.due.keys().next().map(|(due, _)| *due)
    }

    /// The holds that are due at `now`, moved on to `next`.
    fn turn(&mut self, now: Instant, next: Instant) -> Turn {
        let mut turn = Turn::new();
        while let Some(entry) = self.due.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let number = entry.key().1;
            if let Some(hold) = self.take(number) {
                self.put(number, next, Arc::clone(&hold));
                turn.insert(number, hold);
            }
        }
        turn
    }
}

impl<B: Backend> Inner<B> {
    /// Renews `hold` until [`unwatch`](Self::unwatch), or until it is lost.
    pub(super) fn watch(self: &Arc<Self>, hold: Arc<Hold>) -> WatchId {
        let (now, lease) = (self.backend.runtime().now(), self.watchdog_timeout);
        // The lease began before the command was sent: what the reply took is over already.
        let left = hold.left_at(now).unwrap_or(Duration::ZERO).min(lease);
        let due = now + left.saturating_sub(lease / 3 * 2);
        let (number, start, sooner) = {
            let mut watched = self.watchdog.watched.lock();
            let sooner = watched.sleeps_until.is_none_or(|until| due < until);
            let number = watched.next_number;
            watched.next_number += 1;
            watched.put(number, due, hold);
            (number, !std::mem::replace(&mut watched.running, true), sooner)
        };
        if start {
            self.backend.runtime().spawn(run(Arc::downgrade(self), due));
        } else if sooner {
            self.watchdog.sooner.notify(usize::MAX);
        }
        WatchId(number)
    }

    pub(super) fn unwatch(&self, id: &WatchId) {
        self.watchdog.watched.lock().take(id.0);
    }

    /// When the watchdog has something to do next. `None` ends it.
    fn next_turn(&self) -> Option<Instant> {
        let mut watched = self.watchdog.watched.lock();
        let first = watched.first_due();
        // Under the same mutex as `watch`: a hold that comes after this starts a new task.
        watched.running = first.is_some();
        watched.sleeps_until = None;
        first
    }

    /// Begins to renew what is due: one call at a time for each group, so that one which does not come back holds up no other.
    fn renew_due(self: &Arc<Self>) {
        let now = self.backend.runtime().now();
        let turn = self.watchdog.watched.lock().turn(now, now + self.watchdog_timeout / 3);
        let mut groups: HashMap<u64, Turn> = HashMap::new();
        for (number, hold) in turn {
            groups.entry(self.backend.renewal_group(&hold.key.name)).or_default().insert(number, hold);
        }
        for (group, turn) in groups {
            match self.watchdog.watched.lock().busy.entry(group) {
                // They go together, in the next call.
                Entry::Occupied(mut waiting) => {
                    waiting.get_mut().extend(turn);
                    continue;
                }
                Entry::Vacant(idle) => idle.insert(Turn::new()),
            };
            let this = Arc::clone(self);
            self.backend.runtime().spawn(async move { this.renew_group(group, turn).await });
        }
    }

    async fn renew_group(&self, group: u64, mut turn: Turn) {
        let busy = OnPanic(|| _ = self.watchdog.watched.lock().busy.remove(&group));
        loop {
            self.renew(turn).await;
            let mut watched = self.watchdog.watched.lock();
            turn = watched.busy.get_mut(&group).map(std::mem::take).unwrap_or_default();
            // What was given back while it waited is not to be renewed.
            turn.retain(|number, _| watched.holds.contains_key(number));
            if turn.is_empty() {
                watched.busy.remove(&group);
                std::mem::forget(busy);
                return;
            }
        }
    }

    async fn renew(&self, turn: Turn) {
        let lease = self.watchdog_timeout;
        // Before the command is sent: the store counts from later, so our deadline is never the later one.
        let now = self.backend.runtime().now();
        // Nearly always one lease for all. Shorter is what is left to those who may not have the lock for much longer.
        let mut by_lease = BTreeMap::<Duration, Turn>::new();
        for (number, hold) in turn {
            if hold.renewing(now) {
                let lease = hold.tenure.cut(now, lease).max(Lease::MIN);
                by_lease.entry(lease).or_default().insert(number, hold);
                continue;
            }
            // Who waits for the loss has a timer of its own.
            self.watchdog.watched.lock().take(number);
            if hold.lost_at(now) != Some(Lost::HeldTooLong) {
                // This process stood still for too long.
                self.recorder.renewals_late.add_one();
            }
        }
        for (lease, turn) in by_lease.into_iter().rev() {
            self.send(turn, now, lease).await;
        }
    }

    /// Renews all of `turn`, as of `now`, in one call.
    async fn send(&self, turn: Turn, now: Instant, lease: Duration) {
        let keys: Vec<HoldKey> = turn.values().map(|hold| hold.key.clone()).collect();
        self.recorder.renewals_sent.add(turn.len());
        match self.backend.renew(&keys, lease).await {
            Ok(still_held) => {
                let answered = self.backend.runtime().now();
                for ((number, hold), held) in turn.into_iter().zip(still_held) {
                    if !self.watchdog.watched.lock().holds.contains_key(&number) {
                        // It was given back meanwhile.
                        continue;
                    }
                    if held {
                        if hold.renewed(answered, now.checked_add(lease)) {
                            event!(
                                TRACE,
                                lock = hold.key.name.as_str(),
                                owner = hold.key.owner.as_str(),
                                "renewed"
                            );
                        } else {
                            self.recorder.renewals_late.add_one();
                            self.watchdog.watched.lock().take(number);
                        }
                    } else if self.watchdog.watched.lock().take(number).is_some() {
                        // Still watched, so it was not given back meanwhile: it is lost.
                        hold.lose(Lost::Gone);
                    }
                }
            }
            Err(_error) => {
                event!(WARN, holds = turn.len(), error = &_error as &dyn std::error::Error, "renewal failed");
                self.recorder.renewals_failed.add(turn.len());
                self.retry_sooner(turn);
            }
        }
    }

    fn retry_sooner(&self, turn: Turn) {
        let now = self.backend.runtime().now();
        let soon = now + (self.watchdog_timeout / 3 / HASTE).max(Duration::from_millis(1));
        for (number, hold) in turn {
            if !self.watchdog.watched.lock().holds.contains_key(&number) {
                // It was given back meanwhile.
                continue;
            }
            let over = hold.lost_at(now).is_some();
            let mut watched = self.watchdog.watched.lock();
            if let Some(hold) = watched.take(number)
                && !over
            {
                watched.put(number, soon, hold);
            }
        }
        self.watchdog.sooner.notify(usize::MAX);
    }
}

/// `next`: when the first hold is due. It is waited for even if that hold is gone by then: who takes and frees locks all the time
/// does not need a new task for each.
async fn run<B: Backend>(client: Weak<Inner<B>>, mut next: Instant) {
    let ended = OnPanic(|| {
        if let Some(client) = client.upgrade() {
            client.watchdog.watched.lock().running = false;
        }
    });
    loop {
        let (sooner, sleep) = {
            let Some(client) = client.upgrade() else { return };
            // Before we look, so that what comes after that is told.
            let sooner = client.watchdog.sooner.listen();
            let mut watched = client.watchdog.watched.lock();
            next = watched.first_due().map_or(next, |first| first.min(next));
            watched.sleeps_until = Some(next);
            drop(watched);
            (sooner, client.backend.runtime().sleep_until(next))
        };
        unless(sooner, sleep).await;
        let Some(client) = client.upgrade() else { return };
        client.renew_due();
        let Some(due) = client.next_turn() else {
            std::mem::forget(ended);
            return;
        };
        next = due;
    }
}

/// Puts in order what a task leaves that does not come to its end: a backend may panic. Forgotten, it does nothing.
struct OnPanic<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

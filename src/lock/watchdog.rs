//! The watchdog: renews, verifies and ends the leases of a client, and supersedes waiters that are not
//! polled.
//!
//! One task for each client. It sleeps until the first of the client's
//! [`Deadlines`](crate::lock::entry::deadlines::Deadlines), looks at the entries that are due, in the order
//! in which they became due, and renews leases by a call to the backend for each kind of lock, or by one for
//! each group of names that the backend keeps apart. It ends when nothing is due, and keeps the client only
//! weakly.
//!
//! Wakers are called last, in a task of their own: a waker that blocks holds up the wakers behind it in its
//! batch, and no renewal.

use std::collections::BTreeMap;
use std::mem;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::lock_entry::{Effects, LockEntry, Moment, Renewal};
use crate::support::foreign;
use crate::support::unless::unless;

use crate::lock::backend::{LeaseKey, Mode};
use crate::lock::context::{Context, yield_now};
use crate::lock::entry::deadlines::{Deadlines, Due, HasDeadline};
use crate::lock::entry::table::Tables;
use crate::lock::entry::{Entry, OnDrop};
use crate::lock::lease::Lease;

/// Looks this close together are made as one.
const GRAIN: Duration = Duration::from_millis(1);

/// So many entries are looked at before others on the same thread have their turn.
const LOOKS: usize = 4096;

/// So many leases are renewed by one call: a store in memory is locked meanwhile.
const CALL: usize = 4096;

/// A watchdog that panics so often in a row, by what the runtime does, ends; the next deadline that is
/// scheduled starts another one.
const PANICS: u32 = 8;

impl HasDeadline for Entry {
    fn due(&self) -> &Due {
        &self.due
    }

    fn start_watchdog(&self) {
        self.context.spawn(Box::pin(keep(Arc::downgrade(&self.context), Arc::downgrade(&self.tables))));
    }
}

/// Not an `async fn`: the runtime may end before the first poll.
fn keep(context: Weak<Context>, tables: Weak<Tables<Entry>>) -> impl Future<Output = ()> + Send {
    // A task is dropped unfinished when its runtime ends, and maybe before the runtime says so.
    let entries = Weak::clone(&tables);
    let mut unfinished = OnDrop(Some(move || {
        let Some(tables) = entries.upgrade() else { return };
        // No lease is kept any more, and no waiter woken when its time has come.
        tables.all().iter().for_each(|entry| entry.event(LockEntry::close));
        // Last: a deadline that was scheduled just now would start another watchdog, which is dropped inside
        // of this, and so on.
        tables.deadlines.ended();
    }));
    async move {
        let mut panics_in_a_row = 0;
        while panics_in_a_row < PANICS {
            match foreign::run("a timer of the watchdog", turn(&context, &tables)).await {
                Some(true) => panics_in_a_row = 0,
                Some(false) => {
                    _ = unfinished.0.take();
                    return;
                }
                None => {
                    panics_in_a_row += 1;
                    yield_now().await;
                }
            }
        }
        _ = unfinished.0.take();
        if let Some(tables) = tables.upgrade() {
            tables.deadlines.ended();
        }
    }
}

/// Sleeps until something is due, and looks at it. False if nothing is due, or the client is gone.
async fn turn(context: &Weak<Context>, tables: &Weak<Tables<Entry>>) -> bool {
    let (changed, sleep) = {
        let (Some(context), Some(tables)) = (context.upgrade(), tables.upgrade()) else { return false };
        let changed = tables.deadlines.changed();
        let (at, now) = (tables.deadlines.next(), context.now());
        if at == Moment::NEVER {
            return false;
        }
        // Not more often than that, however close together the deadlines are.
        let sleep = (now < at).then(|| at.max(now + GRAIN).instant()).flatten();
        (changed, sleep.map(|at| context.store.sleep_until(at)))
    };
    match sleep {
        Some(sleep) => _ = unless(pin!(changed), sleep).await,
        // Others on this thread have their turn.
        None => yield_now().await,
    }
    if let (Some(context), Some(tables)) = (context.upgrade(), tables.upgrade()) {
        look(&context, &tables.deadlines, context.now());
    }
    true
}

/// Leases to be renewed together.
type Batch = Vec<(Arc<Entry>, Renewal)>;

/// What looks leave to be done, which is foreign code for the greater part.
type Deferred = Vec<(Arc<Entry>, Effects)>;

/// Looks at what is due.
fn look(context: &Arc<Context>, deadlines: &Deadlines<Entry>, now: Moment) {
    // In order, so that the commands are sent in the same order each time.
    let mut batches: BTreeMap<(Mode, u64, Option<Duration>), Batch> = BTreeMap::new();
    let mut deferred = Deferred::new();
    let mut add = |entry: Arc<Entry>, renewal: Renewal| {
        let group = context.store.renewal_group(&entry.name);
        batches.entry((entry.mode, group, renewal.lease)).or_default().push((entry, renewal));
    };
    let mut renews = false;
    for (_, entry) in deadlines.take(now, LOOKS, false) {
        let renewal = event_apart(&entry, &mut deferred, |engine, effects| engine.tick(now, effects));
        entry.repeat_releases();
        entry.give_back_abandoned(now);
        match renewal {
            Some(renewal) => {
                renews |= renewal.lease.is_some();
                add(entry, renewal);
            }
            None => entry.let_go(),
        }
    }
    if renews {
        // Those that are due soon go along, so that locks which were taken one after another are not renewed
        // one by one.
        let soon = now + context.rules.renewed_lease / 30;
        for (at, entry) in deadlines.take(soon, LOOKS, true) {
            let early = |engine: &LockEntry, effects: &mut Effects| engine.renew_early(soon, now, effects);
            let renewal = event_apart(&entry, &mut deferred, early);
            match renewal {
                Some(renewal) => add(entry, renewal),
                None => deadlines.put_back(&entry, at),
            }
        }
    }
    for ((_, _, lease), mut left) in batches {
        while !left.is_empty() {
            let rest = left.split_off(left.len().min(CALL));
            let renewing = Renewing { context: Arc::clone(context), batch: mem::replace(&mut left, rest) };
            context.spawn(Box::pin(renew(renewing, lease)));
        }
    }
    apply_apart(context, deferred);
}

/// Runs an event of the engine. Its effects, but for the next look, are left to `deferred`.
fn event_apart<T>(
    entry: &Arc<Entry>,
    deferred: &mut Deferred,
    event: impl FnOnce(&LockEntry, &mut Effects) -> T,
) -> T {
    let mut effects = Effects::default();
    let outcome = event(&entry.engine, &mut effects);
    entry.schedule(effects.look_at);
    if effects.must_be_applied() {
        deferred.push((Arc::clone(entry), effects));
    }
    outcome
}

/// Carries out what events have left, in a task of its own: wakers may block, and others have their leases
/// renewed meanwhile.
fn apply_apart(context: &Context, deferred: Deferred) {
    if deferred.is_empty() {
        return;
    }
    // By a drop, as releases are among them: so by a runtime that cannot run the task as well.
    context.drop_apart(OnDrop(Some(move || {
        deferred.into_iter().for_each(|(entry, effects)| entry.apply(effects));
    })));
}

/// Leases whose renewal is under way. If they are dropped unanswered, as the runtime has ended or has not run
/// the task, it has failed.
struct Renewing {
    context: Arc<Context>,
    batch: Batch,
}

impl Renewing {
    /// What the store has said of each; `None` if it is not known.
    fn ended(&mut self, held: Option<Vec<bool>>, sent: Moment, now: Moment) {
        let (context, mut deferred) = (&self.context, Deferred::new());
        for (at, (entry, renewal)) in mem::take(&mut self.batch).into_iter().enumerate() {
            // A store that says nothing of a lease has not confirmed it.
            let held = held.as_ref().and_then(|held| held.get(at).copied());
            let (counts, is_lost) = event_apart(&entry, &mut deferred, |engine, effects| {
                (engine.renewed(renewal, held, sent, now, effects), effects.lost().is_some())
            });
            if counts && held == Some(true) {
                event!(TRACE, lock = entry.name.as_str(), "renewed");
            } else if held == Some(true) && is_lost {
                context.recorder.renewals_late.add_one();
            }
        }
        apply_apart(context, deferred);
    }
}

/// What the store has not answered has failed.
impl Drop for Renewing {
    fn drop(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        self.context.recorder.renewals_failed.add(self.batch.len());
        let now = self.context.now();
        self.ended(None, now, now);
    }
}

/// Renews leases of one group by one call. A lease of `None` is only to be verified.
async fn renew(mut renewing: Renewing, lease: Option<Duration>) {
    let context = Arc::clone(&renewing.context);
    // Before the command is sent: the store counts from later, so our deadline is never the later one.
    let sent = context.now();
    let key = |(entry, renewal): &(Arc<Entry>, Renewal)| LeaseKey {
        name: entry.name.clone(),
        id: context.lease_id(renewal.number),
    };
    let keys: Vec<LeaseKey> = renewing.batch.iter().map(key).collect();
    context.recorder.renewals_sent.add(keys.len());
    let mode = renewing.batch.first().map_or(Mode::Plain, |(entry, _)| entry.mode);
    match context.store.renew(mode, &keys, lease.unwrap_or(Lease::MIN)).await {
        Ok(held) => renewing.ended(Some(held), sent, context.now()),
        Err(_error) => {
            event!(
                WARN,
                leases = keys.len(),
                error = &*_error.source as &dyn std::error::Error,
                "renewal failed"
            );
        }
    }
}

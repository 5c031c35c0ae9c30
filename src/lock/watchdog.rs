//! The watchdog: renews, verifies and ends a client's leases, and supersedes waiters that are not polled.
//!
//! One task per client sleeps until the first of the
//! [`Deadlines`](crate::lock::entry::deadlines::Deadlines), looks at the due entries, and renews their leases
//! by one call per mode and [group](crate::backend::Backend::renewal_group). The task ends when nothing is
//! due. Wakers are called last, in another task: a blocking waker delays no renewal.

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

const GRAIN: Duration = Duration::from_millis(1);

/// Entries that are looked at before other tasks of the thread have their turn.
const LOOKS: usize = 4096;

/// Leases per renewal call, during which a store in memory is locked.
const CALL: usize = 4096;

/// Panics in a row after which a watchdog ends; the next deadline starts another watchdog.
const PANICS: u32 = 8;

impl HasDeadline for Entry {
    fn due(&self) -> &Due {
        &self.due
    }

    fn start_watchdog(&self) {
        self.context.spawn(Box::pin(keep(Arc::downgrade(&self.context), Arc::downgrade(&self.tables))));
    }
}

/// Not an `async fn`: the runtime may end before the first poll, and drop the task.
fn keep(context: Weak<Context>, tables: Weak<Tables<Entry>>) -> impl Future<Output = ()> + Send {
    // At its end the runtime drops the task unfinished, maybe before reporting the end.
    let entries = Weak::clone(&tables);
    let mut unfinished = OnDrop(Some(move || {
        let Some(tables) = entries.upgrade() else { return };
        // From now on no lease is renewed, and no waiter woken when its time has come.
        tables.all().iter().for_each(|entry| entry.event(LockEntry::close));
        // Last: a deadline after this starts another watchdog, which the runtime drops inside of this drop.
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

/// Sleeps until an entry is due, and looks. False if nothing is due, or the client is gone.
async fn turn(context: &Weak<Context>, tables: &Weak<Tables<Entry>>) -> bool {
    let (changed, sleep) = {
        let (Some(context), Some(tables)) = (context.upgrade(), tables.upgrade()) else { return false };
        let changed = tables.deadlines.changed();
        let (at, now) = (tables.deadlines.next(), context.now());
        if at == Moment::NEVER {
            return false;
        }
        // Looks are `GRAIN` apart, however close together the deadlines are.
        let sleep = (now < at).then(|| at.max(now + GRAIN).instant()).flatten();
        (changed, sleep.map(|at| context.store.sleep_until(at)))
    };
    match sleep {
        Some(sleep) => _ = unless(pin!(changed), sleep).await,
        None => yield_now().await,
    }
    if let (Some(context), Some(tables)) = (context.upgrade(), tables.upgrade()) {
        look(&context, &tables.deadlines, context.now());
    }
    true
}

type Batch = Vec<(Arc<Entry>, Renewal)>;

/// Effects of looks that are not carried out yet; for the greater part foreign code.
type Deferred = Vec<(Arc<Entry>, Effects)>;

fn look(context: &Arc<Context>, deadlines: &Deadlines<Entry>, now: Moment) {
    // Ordered, to send the commands in the same order each time.
    let mut batches: BTreeMap<(Mode, u64, Option<Duration>), Batch> = BTreeMap::new();
    let mut deferred = Deferred::new();
    let mut look_at = |entry: Arc<Entry>, event: &dyn Fn(&LockEntry, &mut Effects) -> Option<Renewal>| {
        let renewal = event_apart(&entry, &mut deferred, event);
        entry.look_after_calls(now);
        let Some(renewal) = renewal else {
            entry.let_go();
            return false;
        };
        let group = context.store.renewal_group(&entry.name);
        batches.entry((entry.mode, group, renewal.lease)).or_default().push((entry, renewal));
        renewal.lease.is_some()
    };
    let mut renews = false;
    for entry in deadlines.take(now, LOOKS) {
        renews |= look_at(entry, &|engine, effects| engine.tick(now, effects));
    }
    if renews {
        // Leases due soon go along: otherwise locks taken one after another are renewed one by one.
        let soon = now + context.rules.renewed_lease / 30;
        for entry in deadlines.take(soon, LOOKS) {
            look_at(entry, &|engine, effects| engine.renew_early(soon, now, effects));
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

/// Runs an event of the engine, and warns of slow waits. Effects, but for the next look, go to `deferred`.
fn event_apart<T>(
    entry: &Arc<Entry>,
    deferred: &mut Deferred,
    event: impl FnOnce(&LockEntry, &mut Effects) -> T,
) -> T {
    let mut effects = Effects::default();
    let outcome = event(&entry.engine, &mut effects);
    entry.schedule(effects.look_at);
    #[cfg(feature = "tracing")]
    entry.warn_of_slow_waits();
    if effects.must_be_applied() {
        deferred.push((Arc::clone(entry), effects));
    }
    outcome
}

/// Carries out effects in a task of their own: wakers may block, and other leases are renewed meanwhile.
fn apply_apart(context: &Context, deferred: Deferred) {
    if deferred.is_empty() {
        return;
    }
    // By a drop: effects may be releases, and a runtime that cannot run the task drops the task.
    context.drop_apart(OnDrop(Some(move || {
        deferred.into_iter().for_each(|(entry, effects)| entry.apply(effects));
    })));
}

/// Leases whose renewal is under way. Dropped unanswered, the renewal has failed.
struct Renewing {
    context: Arc<Context>,
    batch: Batch,
}

impl Renewing {
    /// Applies the store's answer for each lease; `None` if there is no answer.
    fn ended(&mut self, held: Option<Vec<bool>>, sent: Moment, now: Moment) {
        let (context, mut deferred) = (&self.context, Deferred::new());
        for (at, (entry, renewal)) in mem::take(&mut self.batch).into_iter().enumerate() {
            // A store that says nothing of a lease has not confirmed the lease.
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

/// Renews leases of one group by one call. A lease of `None` only verifies.
async fn renew(mut renewing: Renewing, lease: Option<Duration>) {
    let context = Arc::clone(&renewing.context);
    // Taken before the command is sent: the store counts from a later time, so our deadline is the earlier.
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

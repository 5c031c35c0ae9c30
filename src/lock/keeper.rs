//! The keeper: renews, verifies and ends the leases of a client, and supersedes waiters that nobody polls.
//!
//! One task for each client. It sleeps until the [`Alarm`](super::alarm::Alarm) says that something is due, looks at all entries, and renews
//! what is due in one call to the backend for each kind of lock, or in one for each group of names that the backend keeps apart. It ends when nothing is due,
//! and keeps the client only weakly.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::lock_entry::{Moment, Renewal};
use crate::runtime::Runtime;
use crate::unless::unless;

use super::backend::{Backend, LeaseKey};
use super::commands::{Commands, Kind};
use super::context::Context;
use super::entry::{Entry, OnDrop};
use super::lease::Lease;
use super::table::Tables;

/// Looks this close together are made as one.
const GRAIN: Duration = Duration::from_millis(1);

/// Makes the client's alarm start its keeper.
pub(super) fn install<B: Backend>(context: &Arc<Context<B>>, tables: &Arc<Tables<Entry<B>>>) {
    let (weak_context, weak_tables) = (Arc::downgrade(context), Arc::downgrade(tables));
    context.alarm.starts(move || {
        if let Some(context) = weak_context.upgrade() {
            context.backend.runtime().spawn(keep(Weak::clone(&weak_context), Weak::clone(&weak_tables)));
        }
    });
}

async fn keep<B: Backend>(context: Weak<Context<B>>, tables: Weak<Tables<Entry<B>>>) {
    let mut unfinished = OnDrop(Some(|| {
        let Some(context) = context.upgrade() else { return };
        context.alarm.ended();
        if context.backend.runtime().has_ended() {
            close_all(&tables);
        }
    }));
    loop {
        let (rung, sleep) = {
            let Some(context) = context.upgrade() else { break };
            let rung = context.alarm.rung();
            let (at, now) = (context.alarm.next(), context.now());
            if at == Moment::NEVER {
                break;
            }
            // Not more often than that, however close together the alarms are.
            let sleep = (now < at).then(|| at.max(now + GRAIN).instant()).flatten();
            (rung, sleep.map(|at| context.backend.runtime().sleep_until(at)))
        };
        if let Some(sleep) = sleep {
            unless(rung, sleep).await;
        }
        let (Some(context), Some(tables)) = (context.upgrade(), tables.upgrade()) else { break };
        let now = context.now();
        if context.alarm.next() <= now {
            context.alarm.looking();
            look(&context, &tables, now);
        }
    }
    unfinished.0 = None;
}

/// Nobody keeps leases any more, or wakes who waits.
fn close_all<B: Backend>(tables: &Weak<Tables<Entry<B>>>) {
    if let Some(tables) = tables.upgrade() {
        tables.all().iter().for_each(|entry| entry.carry_out(entry.state.close()));
    }
}

/// Leases to be renewed by one call.
type Batch<B> = Vec<(Arc<Entry<B>>, Renewal)>;

fn look<B: Backend>(context: &Arc<Context<B>>, tables: &Arc<Tables<Entry<B>>>, now: Moment) {
    let mut batches: HashMap<(u64, Option<Duration>, Kind), Batch<B>> = HashMap::new();
    for entry in tables.all() {
        let (renewal, actions) = entry.state.tick(now);
        entry.carry_out(actions);
        entry.repeat_releases(now);
        if let Some(renewal) = renewal {
            let group = context.backend.renewal_group(&entry.name);
            let kind = entry.commands.kind();
            batches.entry((group, renewal.lease, kind)).or_default().push((entry, renewal));
        } else if !entry.state.is_forgotten() {
            entry.table().let_go(&entry.name);
        }
    }
    for ((_, lease, _), batch) in batches {
        let renewing = Arc::clone(context);
        context.backend.runtime().spawn(async move { renew(&renewing, batch, lease).await });
    }
}

/// Renews a batch, by one call. A lease of `None` is only to be verified.
async fn renew<B: Backend>(context: &Context<B>, batch: Batch<B>, lease: Option<Duration>) {
    // Before the command is sent: the store counts from later, so our deadline is never the later one.
    let sent = context.now();
    let key = |(entry, renewal): &(Arc<Entry<B>>, Renewal)| LeaseKey {
        name: entry.name.clone(),
        id: context.lease_id(renewal.number),
    };
    let keys: Vec<LeaseKey> = batch.iter().map(key).collect();
    context.recorder.renewals_sent.add(keys.len());
    let failed = || {
        context.recorder.renewals_failed.add(batch.len());
        let now = context.now();
        for (entry, renewal) in &batch {
            entry.carry_out(entry.state.renewal_failed(*renewal, now));
        }
    };
    // A backend may panic.
    let mut unanswered = OnDrop(Some(&failed));
    let commands = batch.first().map_or(Commands::Plain, |(entry, _)| entry.commands);
    let renewed = commands.renew(&context.backend, &keys, lease.unwrap_or(Lease::MIN)).await;
    unanswered.0 = None;
    match renewed {
        Ok(held) => {
            let now = context.now();
            for ((entry, renewal), held) in batch.iter().zip(held) {
                let (counts, actions) = entry.state.renewed(*renewal, held, sent, now);
                if counts && held {
                    event!(TRACE, lock = entry.name.as_str(), "renewed");
                } else if held && actions.lost().is_some() {
                    context.recorder.renewals_late.add_one();
                }
                entry.carry_out(actions);
            }
        }
        Err(_error) => {
            event!(WARN, leases = keys.len(), error = &_error as &dyn std::error::Error, "renewal failed");
            failed();
        }
    }
}

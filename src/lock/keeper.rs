//! The keeper: renews, verifies and ends the leases of a client, and supersedes waiters that nobody polls.
//!
//! One task for each client. It sleeps until the [`Alarm`](super::alarm::Alarm) says that something is due, looks at the entries that are,
//! in the order in which they became due, and renews what is to be renewed by a call to the backend for each kind of lock, or by one for each
//! group of names that the backend keeps apart. It ends when nothing is due, and keeps the client only weakly.
//!
//! Other names do not depend on what one name's foreign code does. The backend's panics are caught entry by entry. Wakers are called last, in
//! a task of their own: one that blocks holds up those behind it in its batch, and no renewal.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::mem;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use crate::fault::fault;
use crate::foreign::{Panics, caught};
use crate::lock_entry::{Actions, Moment, Renewal};
use crate::runtime::Runtime;
use crate::unless::unless;

use super::alarm::Alarm;
use super::backend::{Backend, LeaseKey};
use super::commands::{Commands, Kind};
use super::context::Context;
use super::entry::{Entry, OnDrop};
use super::lease::Lease;
use super::table::Tables;

/// Looks this close together are made as one.
const GRAIN: Duration = Duration::from_millis(1);

/// So many entries are looked at before others on the same thread have their turn.
const LOOKS: usize = 4096;

/// So many leases are renewed by one call: a store in memory is locked meanwhile.
const CALL: usize = 4096;

/// A keeper that panics so often in a row, by what the runtime does, ends; the next ring starts another one.
const PANICS: u32 = 8;

/// Makes the client's alarm start its keeper.
pub(super) fn install<B: Backend>(context: &Arc<Context<B>>, tables: &Arc<Tables<Entry<B>>>) {
    let (weak_context, weak_tables) = (Arc::downgrade(context), Arc::downgrade(tables));
    tables.alarm.starts(move || {
        if let Some(context) = weak_context.upgrade() {
            context.backend.runtime().spawn(keep(Weak::clone(&weak_context), Weak::clone(&weak_tables)));
        }
    });
}

/// How a turn of the keeper ends.
enum Turn {
    Again,
    /// Nothing is due, or the client is gone.
    Done,
}

async fn keep<B: Backend>(context: Weak<Context<B>>, tables: Weak<Tables<Entry<B>>>) {
    let mut unfinished = OnDrop(Some(|| {
        let (Some(context), Some(strong)) = (context.upgrade(), tables.upgrade()) else { return };
        strong.alarm.ended();
        let mut panics = Panics::NONE;
        if panics.catch(|| context.backend.runtime().has_ended()) == Some(true) {
            close_all(&tables);
        }
        panics.report("ending the keeper");
    }));
    let mut panics_in_a_row = 0;
    while panics_in_a_row < PANICS {
        match caught(turn(&context, &tables)).await {
            Ok(Turn::Again) => panics_in_a_row = 0,
            Ok(Turn::Done) => {
                unfinished.0 = None;
                return;
            }
            Err(panics) => {
                panics.report("keeping leases");
                panics_in_a_row += 1;
                yield_now().await;
            }
        }
    }
}

/// Sleeps until something is due, and looks at it.
async fn turn<B: Backend>(context: &Weak<Context<B>>, tables: &Weak<Tables<Entry<B>>>) -> Turn {
    let (rung, sleep) = {
        let (Some(context), Some(tables)) = (context.upgrade(), tables.upgrade()) else { return Turn::Done };
        let rung = tables.alarm.rung();
        let (at, now) = (tables.alarm.next(), context.now());
        if at == Moment::NEVER {
            return Turn::Done;
        }
        // Not more often than that, however close together the alarms are.
        let sleep = (now < at).then(|| at.max(now + GRAIN).instant()).flatten();
        (rung, sleep.map(|at| context.backend.runtime().sleep_until(at)))
    };
    match sleep {
        Some(sleep) => _ = unless(rung, sleep).await,
        // Others on this thread have their turn.
        None => yield_now().await,
    }
    if let (Some(context), Some(tables)) = (context.upgrade(), tables.upgrade()) {
        look(&context, &tables.alarm, context.now());
    }
    Turn::Again
}

/// No lease is kept any more, and no waiter woken when its time has come.
fn close_all<B: Backend>(tables: &Weak<Tables<Entry<B>>>) {
    let Some(tables) = tables.upgrade() else { return };
    let mut panics = Panics::NONE;
    tables.all().iter().for_each(|entry| _ = panics.catch(|| entry.carry_out(entry.state.close())));
    panics.report("closing locks");
}

/// Leases to be renewed together.
type Batch<B> = Vec<(Arc<Entry<B>>, Renewal)>;

/// What looks leave to be done, which is foreign code for the greater part.
type Effects<B> = Vec<(Arc<Entry<B>>, Actions)>;

/// Looks at what is due.
fn look<B: Backend>(context: &Arc<Context<B>>, alarm: &Alarm<Entry<B>>, now: Moment) {
    // In order, so that the commands are sent in the same order each time.
    let mut batches: BTreeMap<(Kind, u64, Option<Duration>), Batch<B>> = BTreeMap::new();
    let (mut effects, mut panics) = (Effects::new(), Panics::NONE);
    let mut add = |entry: Arc<Entry<B>>, renewal: Renewal, panics: &mut Panics| {
        // Without its group it is renewed nevertheless.
        let group = panics.catch(|| context.backend.renewal_group(&entry.name)).unwrap_or_default();
        batches.entry((entry.commands.kind(), group, renewal.lease)).or_default().push((entry, renewal));
    };
    let due = alarm.take_due(now, LOOKS);
    let mut renews = false;
    for entry in due {
        let (renewal, actions) = entry.state.tick_quietly(now);
        entry.ring(actions.look_at);
        if actions.has_effects() {
            effects.push((Arc::clone(&entry), actions));
        }
        panics.catch(|| entry.repeat_releases(now));
        match renewal {
            Some(renewal) => {
                renews |= renewal.lease.is_some();
                add(entry, renewal, &mut panics);
            }
            None if !entry.state.is_forgotten() => entry.table().let_go(&entry.name),
            None => {}
        }
    }
    if renews {
        // Those that are due soon go along, so that locks which were taken one after another are not renewed one by one.
        let soon = now + context.rules.renewed_lease / 30;
        for (at, entry) in alarm.take_early(soon, LOOKS) {
            let (renewal, actions) = entry.state.renew_early(soon, now);
            entry.ring(actions.look_at);
            if actions.has_effects() {
                effects.push((Arc::clone(&entry), actions));
            }
            match renewal {
                Some(renewal) => add(entry, renewal, &mut panics),
                None if fault!(EarlyLookNotPutBack) => {}
                None => alarm.put_back(&entry, at),
            }
        }
    }
    for ((_, _, lease), batch) in batches {
        let renewing = Renewing::new(context, batch);
        panics.catch(|| context.backend.runtime().spawn(renew(renewing, lease)));
    }
    panics.catch(|| carry_out_apart(context, effects));
    panics.report("keeping leases");
}

/// Carries out what events have left, in a task of its own: wakers may block, and others have their leases renewed meanwhile.
fn carry_out_apart<B: Backend>(context: &Context<B>, effects: Effects<B>) {
    if effects.is_empty() {
        return;
    }
    drop_apart(context, CarriedOut(effects));
}

/// Drops what wakes others in a task of its own.
pub(super) fn drop_apart<B: Backend>(context: &Context<B>, wakes: impl Send + 'static) {
    let wakes = Apart(Some(wakes));
    context.backend.runtime().spawn(async move {
        // Not in the task that spawns this one, which a runtime may poll in place.
        yield_now().await;
        drop(wakes);
    });
}

/// What wakes others when it is dropped, by no call that its panics could go on in.
struct Apart<T>(Option<T>);

impl<T> Drop for Apart<T> {
    fn drop(&mut self) {
        let mut panics = Panics::NONE;
        panics.catch(|| drop(self.0.take()));
        panics.report("waking waiters");
    }
}

/// Effects that are carried out when this is dropped: releases are among them, so by a runtime that cannot run the task as well.
struct CarriedOut<B: Backend>(Effects<B>);

impl<B: Backend> Drop for CarriedOut<B> {
    fn drop(&mut self) {
        let mut panics = Panics::NONE;
        for (entry, mut actions) in self.0.drain(..) {
            if fault!(PanicEndsEffects) && panics.is_some() {
                break;
            }
            panics.catch(|| {
                entry.state.call(&mut actions);
                entry.carry_out(actions);
            });
        }
        panics.report("waking waiters");
    }
}

/// Leases whose renewal is under way. If they are dropped unanswered, as the runtime has ended or has not run the task, it has failed.
struct Renewing<B: Backend> {
    context: Arc<Context<B>>,
    batch: Batch<B>,
}

impl<B: Backend> Renewing<B> {
    /// By calls of no more than so many leases each.
    fn new(context: &Arc<Context<B>>, batch: Batch<B>) -> Vec<Self> {
        let (mut calls, mut left) = (Vec::new(), batch);
        while left.len() > CALL {
            let rest = left.split_off(CALL);
            calls.push(Self { context: Arc::clone(context), batch: mem::replace(&mut left, rest) });
        }
        calls.push(Self { context: Arc::clone(context), batch: left });
        calls
    }

    /// What the store has said of each; `None` if it is not known.
    fn ended(&mut self, held: Option<Vec<bool>>, sent: Moment) {
        let (context, now) = (&self.context, self.context.now());
        let mut effects = Effects::new();
        for (at, (entry, renewal)) in mem::take(&mut self.batch).into_iter().enumerate() {
            // A store that says nothing of a lease has not confirmed it.
            let at = if fault!(FirstAnswerForAll) { 0 } else { at };
            let held = held.as_ref().and_then(|held| held.get(at).copied());
            let (counts, actions) = entry.state.renewal_ended(renewal, held, sent, now);
            if counts && held == Some(true) {
                event!(TRACE, lock = entry.name.as_str(), "renewed");
            } else if held == Some(true) && actions.lost().is_some() {
                context.recorder.renewals_late.add_one();
            }
            entry.ring(actions.look_at);
            if actions.has_effects() {
                effects.push((entry, actions));
            }
        }
        carry_out_apart(context, effects);
    }

    fn failed(&mut self, sent: Moment) {
        if !self.batch.is_empty() {
            self.context.recorder.renewals_failed.add(self.batch.len());
            self.ended(None, sent);
        }
    }
}

impl<B: Backend> Drop for Renewing<B> {
    fn drop(&mut self) {
        let mut panics = Panics::NONE;
        panics.catch(|| self.failed(self.context.now()));
        panics.report("renewing leases");
    }
}

/// Renews leases of one group, call by call. A lease of `None` is only to be verified.
async fn renew<B: Backend>(calls: Vec<Renewing<B>>, lease: Option<Duration>) {
    for call in calls {
        renew_by_one_call(call, lease).await;
    }
}

async fn renew_by_one_call<B: Backend>(mut renewing: Renewing<B>, lease: Option<Duration>) {
    let context = Arc::clone(&renewing.context);
    // Before the command is sent: the store counts from later, so our deadline is never the later one.
    let sent = context.now();
    let key = |(entry, renewal): &(Arc<Entry<B>>, Renewal)| LeaseKey {
        name: entry.name.clone(),
        id: context.lease_id(renewal.number),
    };
    let keys: Vec<LeaseKey> = renewing.batch.iter().map(key).collect();
    context.recorder.renewals_sent.add(keys.len());
    let commands = renewing.batch.first().map_or(Commands::Plain, |(entry, _)| entry.commands);
    match caught(commands.renew(&context.backend, &keys, lease.unwrap_or(Lease::MIN))).await {
        Ok(Ok(held)) => renewing.ended(Some(held), sent),
        Ok(Err(_error)) => {
            event!(WARN, leases = keys.len(), error = &_error as &dyn std::error::Error, "renewal failed");
            renewing.failed(sent);
        }
        Err(panics) => {
            panics.report("renewing leases");
            renewing.failed(sent);
        }
    }
}

/// Lets other tasks of the same thread go on.
async fn yield_now() {
    let mut yielded = false;
    poll_fn(|context| {
        if mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

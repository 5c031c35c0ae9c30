//! Releases: how a lease goes back to the store, whatever fails meanwhile.
//!
//! | by | sent in | is over when | if the command fails |
//! |---|---|---|---|
//! | [`release`](Entry::release) | the caller's future, which waits | the store has answered | the caller gets the error, and the background repeats the release |
//! | `release`, dropped, or not answered within `unpolled_limit` | the background, from then on | the store has answered, or the lease is over | the background repeats the release |
//! | [`release_synchronously`](Entry::release_synchronously) | the call, by a synchronous store | the store has answered | the caller sends an ordinary release |
//! | [`release_unawaited`](Entry::release_unawaited) | the call, by a synchronous store; else the background | the store has answered, or the lease is over | the background repeats the release |
//! | [`release_in_background`](Entry::release_in_background) | the background, from its first poll on in the call | the store has answered, or the lease is over | the background repeats the release |
//! | an event that [names](NextHead) the next waiter | the background, from its first poll on in the call | the store has answered, or the lease is over | the background repeats the release without the name, and the waiter asks by itself |
//!
//! Each may be a rollback, which takes effect only after the commands under way with the same id.

use std::future::{pending, poll_fn};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use crate::lock_entry::{Answer, Attempt, HeadTicket, Moment, NextHead, PendingRelease, Turn};

use super::{Entry, OnDrop};
use crate::lock::backend::{CommandFuture, Failed, LATEST_RUN, NextWaiter, ReleaseOutcome};
use crate::lock::context::MAX_RETRY_DELAY;
use crate::lock::entry::abandon_guard::AbandonGuard;
use crate::lock::entry::listening::Listening;
use crate::lock::error::LockError;
use crate::lock::owner::LeaseId;

/// Delay before the first repetition of a release. Doubles each time, up to [`MAX_RETRY_DELAY`].
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(10);

impl Entry {
    /// Sends a release that the caller awaits. False if the store did not know the lease.
    pub(in crate::lock) async fn release(
        self: &Arc<Self>,
        mut pending_release: PendingRelease,
        now: Moment,
    ) -> Result<bool, LockError> {
        let id = self.context.lease_id(pending_release.number);
        let appoints = mem::take(&mut pending_release.appoints);
        let mut on_its_way = OnDrop(Some(|| self.on_its_way(appoints, now)));
        let entry = Arc::clone(self);
        let repeats = move || entry.release_in_background(pending_release);
        // A shutdown waits for this release, so record the release before other tasks hear of it.
        let abandon_guard = AbandonGuard::new(self, OnDrop(Some(repeats)), Some(now), 0);
        let (mut release, mut outcome) = (self.send_once(&id, pending_release.rolls_back), None);
        let sent = poll_fn(|task| {
            let polled = Pin::new(&mut release).poll(task);
            // The next waiter must not depend on the caller's polling.
            if let Some(on_its_way) = on_its_way.0.take() {
                on_its_way();
            }
            polled.map(|polled| {
                if let Err(error) = &polled {
                    self.release_failed(error);
                    self.release_in_background(pending_release);
                }
                outcome = Some(polled);
            })
        });
        let unrepeated = abandon_guard.until_answered(pin!(sent)).await;
        let repeated = unrepeated.is_none();
        unrepeated.into_iter().for_each(|(mut repeats, ())| repeats.0 = None);
        let outcome = match outcome {
            Some(outcome) => outcome,
            None => release.await.inspect_err(|error| self.release_failed(error)),
        };
        match outcome.map_err(|error| self.context.failed(&self.name, error)) {
            Ok(outcome) => Ok(self.answered_release(outcome, repeated)),
            Err(LockError::Backend { name, failure, source }) => {
                Err(LockError::ReleasePending { name, failure, source })
            }
            Err(other) => Err(other),
        }
    }

    /// Sends one release. `rolls_back`: takes effect after the commands under way with the same id.
    #[inline(always)]
    pub(in crate::lock) fn send_once<'a>(
        &'a self,
        id: &'a LeaseId,
        rolls_back: bool,
    ) -> CommandFuture<'a, ReleaseOutcome> {
        let store = &self.context.store;
        if rolls_back {
            store.roll_back(self.mode, &self.name, id)
        } else {
            store.release(self.mode, &self.name, id, None)
        }
    }

    pub(in crate::lock) fn release_unawaited(
        self: &Arc<Self>,
        pending_release: &PendingRelease,
        now: Moment,
    ) {
        if self.release_synchronously(pending_release, now).is_none() {
            self.release_in_background(PendingRelease { appoints: false, ..*pending_release });
            self.on_its_way(pending_release.appoints, now);
        }
    }

    /// Counts and reports a release. True if the store knew the lease until this release, or a repeated one.
    #[inline(always)]
    pub(in crate::lock) fn answered_release(&self, outcome: ReleaseOutcome, repeated: bool) -> bool {
        let context = &self.context;
        context.releases.succeeded();
        context.tell_shutdown();
        if let ReleaseOutcome::Released { receivers: receivers @ 1.. } = outcome {
            self.engine.note_receivers(receivers, self.now());
        }
        let had_it = repeated || outcome != ReleaseOutcome::NotHeld;
        if had_it {
            event!(DEBUG, lock = self.name.as_str(), "released");
        } else {
            context.recorder.leases_lost.add_one();
            event!(WARN, lock = self.name.as_str(), reason = %crate::lock_entry::LossReason::Gone, "lost");
        }
        had_it
    }

    /// Notes that a release is under way, and appoints the next waiter if the release `appoints`.
    #[inline(always)]
    pub(in crate::lock) fn on_its_way(self: &Arc<Self>, appoints: bool, now: Moment) {
        if appoints {
            self.appoint_next(0, now);
        } else {
            self.context.tell_shutdown();
        }
    }

    /// A lease's release is under way or answered; `receivers` other clients have heard of the release.
    #[inline(always)]
    pub(in crate::lock) fn appoint_next(self: &Arc<Self>, receivers: usize, now: Moment) {
        self.event(|engine, effects| engine.appoint_next(receivers, now, effects));
        // A shutdown looks at the lease until then.
        self.context.tell_shutdown();
    }

    pub(in crate::lock) fn is_unreleased(&self) -> bool {
        self.rare.get().is_some_and(|rare| !rare.unreleased.lock().is_empty())
    }

    pub(super) fn repeat_releases(self: &Arc<Self>) {
        let Some(rare) = self.rare.get() else { return };
        let unreleased = mem::take(&mut *rare.unreleased.lock());
        unreleased.into_iter().for_each(|pending_release| self.release_in_background(pending_release));
    }

    fn release_failed(&self, _error: &Failed) {
        self.context.recorder.releases_failed.add_one();
        if self.context.releases.failed() {
            event!(
                WARN,
                lock = self.name.as_str(),
                error = &*_error.source as &dyn std::error::Error,
                "release failed"
            );
        }
    }

    /// Sends a release until it is answered or the lease is over; polled once here, for stores in memory.
    pub(in crate::lock) fn release_in_background(self: &Arc<Self>, pending_release: PendingRelease) {
        self.send_release(pending_release, None);
    }

    pub(super) fn send_release(self: &Arc<Self>, pending_release: PendingRelease, next: Option<NextHead>) {
        if self.context.check_origin().is_err() {
            return;
        }
        let number = self.context.releases.begin(&self.name);
        let next = next.map(|next| {
            let named = (!pending_release.rolls_back).then(|| NamedWaiter::new(self, next)).flatten();
            (next.head, named)
        });
        let ends = Release { entry: Arc::clone(self), number, pending_release, next, is_over: false };
        self.context.start(ends.send());
    }
}

struct NamedWaiter {
    attempt: Attempt,
    next: NextWaiter,
    /// Hears the grant that comes later if another waiter is first.
    listening: Listening,
}

impl NamedWaiter {
    /// `None` if the waiter has left, or if the store cannot grant the lock by a release.
    fn new(entry: &Entry, next: NextHead) -> Option<Self> {
        if !entry.believes_grants() {
            return None;
        }
        let context = &entry.context;
        let listening = entry.listen();
        let sent = entry.now();
        let position = entry.position_of(&next.head, sent)?;
        let attempt = entry.attempt(&next.head, &next.request, sent)?;
        listening.expect(attempt.number());
        let (id, lease) = (context.lease_id(attempt.number()), attempt.lease());
        let next = NextWaiter { id, lease, tokens: attempt.tokens(), position };
        Some(Self { attempt, next, listening })
    }
}

/// A release in the background. If the runtime drops its task, the watchdog repeats the release.
struct Release {
    entry: Arc<Entry>,
    number: u64,
    /// `appoints` until the next waiter is appointed.
    pending_release: PendingRelease,
    /// The next waiter, a queue head that has not been told, and the attempt made on its behalf, if any.
    next: Option<(HeadTicket, Option<NamedWaiter>)>,
    is_over: bool,
}

impl Release {
    async fn send(mut self) {
        let entry = Arc::clone(&self.entry);
        let (context, id) = (&entry.context, entry.context.lease_id(self.pending_release.number));
        let (mode, store) = (entry.mode, &context.store);
        let mut delay = FIRST_RETRY_DELAY;
        loop {
            let outcome = match &self.next {
                Some((_, Some(named))) => {
                    // Only messages sent after the confirmation are certain to arrive.
                    let is_confirmed = named.listening.is_ready();
                    let outcome = store.release(mode, &entry.name, &id, Some(&named.next)).await;
                    outcome.inspect(|outcome| self.tell_next(*outcome, is_confirmed))
                }
                _ => entry.send_once(&id, self.pending_release.rolls_back).await,
            };
            match outcome {
                Ok(outcome) => {
                    self.is_over = true;
                    context.releases.succeeded();
                    event!(DEBUG, lock = entry.name.as_str(), "released");
                    let receivers = match outcome {
                        ReleaseOutcome::Released { receivers } => receivers,
                        ReleaseOutcome::GrantedToNext { .. } | ReleaseOutcome::NotHeld => 0,
                    };
                    self.appoint(receivers);
                    return;
                }
                Err(error) => entry.release_failed(&error),
            }
            // Meanwhile the next waiter asks for a lease of its own.
            self.appoint(0);
            let again = context.now() + delay;
            if self.repeated_until() <= again || context.has_ended() {
                self.is_over = true;
                return;
            }
            context.until(again, pending::<()>()).await;
            delay = (delay * 2).min(MAX_RETRY_DELAY);
        }
    }

    /// End of the repetitions: a silent link may deliver an attempt when its lease would be over.
    fn repeated_until(&self) -> Moment {
        match self.pending_release.rolls_back {
            true => self.pending_release.until + LATEST_RUN,
            false => self.pending_release.until,
        }
    }

    /// Passes on the release's answer, which may tell the outcome for the waiter that was named.
    fn tell_next(&mut self, outcome: ReleaseOutcome, is_confirmed: bool) {
        let (entry, now) = (&self.entry, self.entry.now());
        let Some((head, Some(NamedWaiter { attempt, next, listening }))) = self.next.take() else { return };
        let answer = match outcome {
            ReleaseOutcome::GrantedToNext { last_token } => Answer::Granted { last_token },
            ReleaseOutcome::Released { .. } if is_confirmed => {
                Answer::Held { kept: Some(next.position.kept) }
            }
            ReleaseOutcome::Released { .. } | ReleaseOutcome::NotHeld => Answer::Unsaid,
        };
        let mut listening = Some(listening);
        if let Answer::Held { .. } = answer {
            let _before = mem::replace(&mut *entry.rare().named_listening.lock(), listening.take());
        }
        entry.event(|engine, effects| match engine.answered(&head, attempt, answer, now, effects) {
            Some(Turn::Superseded) => entry.take_kept(),
            _ => None,
        });
    }

    fn appoint(&mut self, receivers: usize) {
        let (entry, now) = (&self.entry, self.entry.now());
        if let Some((head, named)) = self.next.take() {
            entry.event(|engine, effects| match named {
                Some(named) => _ = engine.answered(&head, named.attempt, Answer::Unanswered, now, effects),
                None => engine.asks_itself(&head, now, effects),
            });
        }
        if mem::take(&mut self.pending_release.appoints) {
            entry.appoint_next(receivers, now);
        } else {
            entry.engine.note_receivers(receivers, now);
        }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        let entry = Arc::clone(&self.entry);
        // In a child the mutexes may stay locked forever.
        if !entry.context.is_same_process() {
            return;
        }
        self.appoint(0);
        if !self.is_over && !entry.context.has_ended() {
            // The entry stays until the release is repeated.
            entry.rare().unreleased.lock().push(self.pending_release);
            entry.schedule(entry.now() + entry.context.rules.unpolled_limit);
            entry.keep();
        }
        entry.context.releases.end(self.number);
    }
}

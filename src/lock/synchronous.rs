//! Taking and giving back a lock at a store that answers within the call: without a future and, at an idle
//! entry, without an event. The queue head would take twice as long. The engine's half: `lock_entry/gate.rs`.

use std::sync::Arc;

use crate::lock_entry::{Attempt, Grant, Moment, PendingRelease, Request};

use super::backend::{AcquireOutcome, AcquireRequest, CommandFuture, Failure};
use super::entry::{Entry, OnDrop};
use super::error::LockError;

impl Entry {
    /// Claims an idle entry and asks the store. `None`: the caller has to enter the queue.
    #[inline(always)]
    pub(super) fn acquire_synchronously(
        self: &Arc<Self>,
        request: &Request,
        number: u64,
        now: Moment,
    ) -> Result<Option<Grant>, LockError> {
        let context = &self.context;
        if !self.engine.claim() {
            return Ok(None);
        }
        let mut claimed = OnDrop(Some(|| self.appoint_next(0, now)));
        let lease = context.lease_of(request);
        let attempt = Attempt::outside_of_queue(number, request, now, lease);
        let mut unfinished = OnDrop(Some(|| self.release_in_background(attempt.rollback())));
        let asked = AcquireRequest::new(context.lease_id(number), lease, now).tokens(attempt.tokens());
        let asked = asked.permits(self.permits());
        // Matched in place: a copy of the answer costs more than the answer.
        match self.acquire(&asked) {
            CommandFuture::Done(Some(Ok(AcquireOutcome::Acquired { last_token }))) => {
                (claimed.0, unfinished.0) = (None, None);
                Ok(self.event(|engine, effects| engine.take(request, &attempt, last_token, now, effects)))
            }
            CommandFuture::Done(Some(Ok(
                AcquireOutcome::Held { left: _left } | AcquireOutcome::HeldUncalled { left: _left },
            ))) => {
                unfinished.0 = None;
                event!(TRACE, lock = self.name.as_str(), left = ?_left, "held by another");
                Ok(None)
            }
            CommandFuture::Done(Some(Err(error))) => {
                if error.failure != Failure::Indeterminate {
                    unfinished.0 = None;
                }
                Err(context.failed(&self.name, error))
            }
            // The store does not answer within the call, and the command may still run.
            CommandFuture::Done(None) | CommandFuture::UnderWay(_) => Ok(None),
        }
    }

    /// Releases a lease and lets the next waiter go on. `None`: the caller still has to send the release.
    // Always inlined, with all callees: a copy of the answer costs more than the answer.
    #[inline(always)]
    pub(super) fn release_synchronously(
        self: &Arc<Self>,
        pending_release: &PendingRelease,
        now: Moment,
    ) -> Option<bool> {
        if !self.context.is_synchronous {
            return None;
        }
        let id = self.context.lease_id(pending_release.number);
        let CommandFuture::Done(Some(Ok(outcome))) = self.send_once(&id, pending_release.rolls_back) else {
            return None;
        };
        let had_it = self.answered_release(outcome, false);
        self.on_its_way(pending_release.appoints, now);
        Some(had_it)
    }
}

//! The lock of a store that answers by the call: taken without a future and, if the entry is idle, without
//! entering it, and given back so. Without this all goes by the queue head, and a lock and unlock in memory
//! takes twice as long. The other half, by which the engine learns what it has missed, is
//! `lock_entry/idle.rs`.

use std::sync::Arc;

use crate::lock_entry::{Attempt, Grant, Moment, PendingRelease, Request};

use super::backend::{AcquireOutcome, AcquireRequest, CommandFuture, Failure};
use super::entry::{Entry, OnDrop};
use super::error::LockError;

impl Entry {
    /// Asks the store before it enters: an entry that is idle is the call's until then. `None` if it was not,
    /// or if the lock is another client's: the caller has to enter.
    #[inline(always)]
    pub(super) fn take_idle(
        self: &Arc<Self>,
        request: &Request,
        number: u64,
        now: Moment,
    ) -> Result<Option<Grant>, LockError> {
        let context = &self.context;
        if !context.at_once || !self.state.claim() {
            return Ok(None);
        }
        let mut claimed = OnDrop(Some(|| self.returned(0, now)));
        let lease = context.lease_of(request);
        let attempt = Attempt::outside_of_queue(number, request, now, lease);
        let mut unfinished = OnDrop(Some(|| self.release_in_background(attempt.rollback())));
        let asked = AcquireRequest::new(context.lease_id(number), lease, now).tokens(attempt.tokens());
        // Looked at where it is: an answer costs more to be passed on than to be given.
        match self.acquire(&asked) {
            CommandFuture::Done(Some(Ok(AcquireOutcome::Acquired { last_token }))) => {
                (claimed.0, unfinished.0) = (None, None);
                Ok(self.event(|state, effects| state.take(request, &attempt, last_token, now, effects)))
            }
            CommandFuture::Done(Some(Ok(AcquireOutcome::Held { left: _left }))) => {
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
            // It does not answer by the call, and may run yet.
            CommandFuture::Done(None) | CommandFuture::UnderWay(_) => Ok(None),
        }
    }

    /// Releases a lease, and lets the next waiter go on. `None` if the store does not answer by the call, or
    /// fails: then nothing has become of it.
    // Always inlined, as is what it calls: an answer costs more to be passed on than to be given.
    #[inline(always)]
    pub(super) fn give_back_idle(
        self: &Arc<Self>,
        pending_release: &PendingRelease,
        now: Moment,
    ) -> Option<bool> {
        if !self.context.at_once {
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

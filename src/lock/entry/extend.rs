//! Extensions: commands that make a lease last longer, or ask the store about a lease.

use std::sync::Arc;
use std::time::Duration;

use crate::lock_entry::{Extension, Grant, LossReason, PendingRelease};

use super::{Entry, read_or};
use crate::lock::backend::{AcquireOutcome, AcquireRequest, LeaseKey};
use crate::lock::error::LockError;
use crate::lock::lease::Lease;
use crate::lock::owner::Owner;

impl Entry {
    /// Makes the lease suffice for an owner's further hold. Returns the hold's token if the token is new.
    pub(in crate::lock) async fn extend(
        self: &Arc<Self>,
        owner: Owner,
        grant: &Grant,
        extension: Extension,
    ) -> Result<Option<u64>, LockError> {
        let (mut extension, mut is_repeated) = (extension, false);
        loop {
            let mut extended = Ok(None);
            if extension.fenced {
                // The token command would begin a lost lease anew, and its holder would not hear of the loss.
                let lasts = Extension { fenced: false, ..extension };
                extended = self.extend_once(owner, lasts, is_repeated).await;
            }
            if extended.is_ok() {
                extended = self.extend_once(owner, extension, is_repeated).await;
            }
            let Err(LockError::Lost { .. }) = extended else { return extended };
            match self.engine.state_of(grant, self.now()) {
                // A shared hold may have moved to another lease meanwhile.
                Ok(hold) if hold.number != extension.number => extension.number = hold.number,
                // A token command that was sent after this one has begun the lease anew.
                Ok(_) => is_repeated = true,
                // The reason for the hold's end is known here; the late command only found the lease gone.
                Err(reason) => return Err(LockError::lost(&self.name, owner, reason)),
            }
        }
    }

    async fn extend_once(
        self: &Arc<Self>,
        owner: Owner,
        extension: Extension,
        is_repeated: bool,
    ) -> Result<Option<u64>, LockError> {
        let lost = |reason| Err(LockError::lost(&self.name, owner, reason));
        let (context, sent, number) = (&self.context, self.now(), extension.number);
        // Recorded before sending: unanswered, the command may still keep the lease for this long.
        let lease = self.event(|engine, effects| engine.extending(extension, sent, effects));
        let Some(lease) = lease.map(whole_millis) else { return lost(LossReason::Expired) };
        let id = context.lease_id(number);
        // The command may begin a lease anew that was given back meanwhile.
        let roll_back = PendingRelease { number, until: sent + lease, appoints: false, rolls_back: true };
        let answer = match extension.fenced {
            false => {
                let key = LeaseKey { name: self.name.clone(), id };
                let renewed = context.store.renew(self.mode, std::slice::from_ref(&key), lease).await;
                renewed.map(|renewed| (renewed.first() == Some(&true), None))
            }
            true => {
                let asked = AcquireRequest::new(id, lease, sent).tokens(1);
                let answer = read_or(self.acquire(&asked), || self.unread(roll_back)).await;
                match (&answer, self.may_still_run(&asked.id, &answer)) {
                    (Ok(_), true) => self.event(|engine, effects| engine.may_run_again(roll_back, effects)),
                    (Ok(_), false) => {}
                    (Err(_), true) => self.unread(roll_back),
                    (Err(_), false) => self.engine.not_extended(extension),
                }
                answer.map(|outcome| match outcome {
                    AcquireOutcome::Acquired { last_token } => (true, Some(last_token)),
                    AcquireOutcome::Held { .. } | AcquireOutcome::HeldUncalled { .. } => (false, None),
                })
            }
        };
        let (held, token) = answer.map_err(|error| context.failed(&self.name, error))?;
        if !held {
            self.engine.not_extended(extension);
            // A repeated command counts as sent after the fresh lease, even by a clock that stands still.
            self.gone(number, sent + Duration::from_nanos(is_repeated.into()));
            return lost(LossReason::Gone);
        }
        let now = self.now();
        let in_hand = self.event(|engine, effects| engine.extended(number, sent, lease, token, now, effects));
        // A renewal begins no lease, and a rollback could overtake the release, whose caller would then hear
        // of a loss.
        if !in_hand && extension.fenced {
            self.release_in_background(roll_back);
        }
        if in_hand { Ok(token) } else { lost(LossReason::Expired) }
    }

    /// Records an unread answer: the command may have been sent after the rollback of a lease given back.
    fn unread(self: &Arc<Self>, roll_back: PendingRelease) {
        if self.context.is_same_process() {
            self.event(|engine, effects| engine.unread(roll_back, effects));
        }
    }

    /// Has the holds of older leases go on by the newest lease, if the store has all these leases.
    pub(super) fn merge_leases(self: &Arc<Self>) {
        let entry = Arc::clone(self);
        self.context.start(async move {
            let (into, mut older) = entry.engine.older_leases();
            // A lost lease is given up by this question, so that its holders hear of the loss.
            if !older.is_empty() && entry.verify_leases(&[&[into], &older[..]].concat()).await.is_err() {
                older.clear();
            }
            entry.event(|engine, effects| engine.merge(into, &older, entry.now(), effects));
        });
    }

    /// Asks the store for these leases, by a renewal that prolongs no lease, and gives up the lost leases.
    pub(in crate::lock) async fn verify_leases(self: &Arc<Self>, numbers: &[u64]) -> Result<(), LockError> {
        let (context, mut unverified, mut is_repeated) = (&self.context, numbers.to_vec(), false);
        while !unverified.is_empty() {
            let sent = self.now();
            context.check_origin()?;
            let key = |number: &u64| LeaseKey { name: self.name.clone(), id: context.lease_id(*number) };
            let leases: Vec<LeaseKey> = unverified.iter().map(key).collect();
            let there = context.store.renew(self.mode, &leases, Lease::MIN).await;
            let there = there.map_err(|error| context.failed(&self.name, error))?;
            // As in `extend`.
            let sent = sent + Duration::from_nanos(is_repeated.into());
            let mut there = there.into_iter();
            // A token command that was answered meanwhile has begun the lease anew, maybe before this answer.
            unverified.retain(|number| {
                let is_there = there.next() == Some(true);
                !is_there && !self.gone(*number, sent) && self.engine.lease_numbers().contains(number)
            });
            is_repeated = true;
        }
        Ok(())
    }
}

fn whole_millis(lease: Duration) -> Duration {
    let millis = u64::try_from(lease.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX);
    Duration::from_millis(millis).min(Lease::MAX)
}

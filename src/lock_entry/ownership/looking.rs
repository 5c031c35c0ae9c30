//! What can be seen of the engine from outside.

use crate::moment::Moment;

use super::super::outcome::HoldState;
use super::super::request::{Grant, LossReason};
use super::{Ownership, Phase};

impl Ownership {
    // === Looking ===

    /// The hold that was granted so, or why it is over.
    pub(in crate::lock_entry) fn state_of(
        &self,
        grant: &Grant,
        now: Moment,
    ) -> Result<HoldState, LossReason> {
        match &self.phase {
            Phase::Held(hold, lease) if hold.serial == grant.serial => {
                if let Some(reason) = hold.loss(lease, now) {
                    return Err(reason);
                }
                let ends = lease.deadline.min(hold.limit).min(grant.ends);
                match grant.ends <= now {
                    true => Err(LossReason::Expired),
                    false => Ok(HoldState { ends, number: lease.number }),
                }
            }
            _ => {
                let loss = self.losses.iter().find(|loss| loss.serial == grant.serial);
                Err(loss.map_or(LossReason::GivenBack, |loss| loss.reason))
            }
        }
    }

    /// Who has the lock here, how often, and under which lease.
    pub(in crate::lock_entry) fn holder(&self, now: Moment) -> Option<(u64, u32, u64)> {
        match &self.phase {
            Phase::Held(hold, lease) if hold.loss(lease, now).is_none() => {
                Some((hold.owner, hold.count, lease.number))
            }
            _ => None,
        }
    }

    /// The lease in hand.
    pub(in crate::lock_entry) fn lease_number(&self) -> Option<u64> {
        match &self.phase {
            Phase::Held(_, lease) => Some(lease.number),
            _ => None,
        }
    }

    /// Whether another acquisition is known to have the lock, here or elsewhere.
    pub(in crate::lock_entry) fn is_known_held(&self) -> bool {
        match &self.phase {
            Phase::Free => false,
            Phase::Competing(head) => head.was_refused() || head.inherits(),
            Phase::Held(..) | Phase::Returning(_) => true,
        }
    }

    pub(in crate::lock_entry) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Free)
    }

    pub(in crate::lock_entry) fn phase_name(&self) -> &'static str {
        match &self.phase {
            Phase::Free => "Free",
            Phase::Competing(_) => "Competing",
            Phase::Held(..) => "Held",
            Phase::Returning(_) => "Returning",
        }
    }

    pub(in crate::lock_entry) fn acquisitions(&self) -> u64 {
        self.acquisitions
    }

    pub(in crate::lock_entry) fn hand_offs(&self) -> u64 {
        self.hand_offs
    }

    pub(in crate::lock_entry) fn waiters(&self) -> usize {
        self.queue.len()
    }

    /// Whether all of the hold's guards are forgotten.
    pub(in crate::lock_entry) fn is_forgotten(&self) -> bool {
        matches!(&self.phase, Phase::Held(hold, _) if hold.guards == 0 && hold.unclaimed == 0)
    }

    /// Whether the lease with this number is in hand, or goes on with the queue head.
    #[cfg(test)]
    pub(super) fn knows_lease(&self, number: u64) -> bool {
        match &self.phase {
            Phase::Held(_, lease) => lease.number == number,
            Phase::Competing(head) => head.knows_lease(number),
            Phase::Free | Phase::Returning(_) => false,
        }
    }
}

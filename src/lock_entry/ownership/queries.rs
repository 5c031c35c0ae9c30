use crate::support::moment::Moment;

use super::super::events::{Grant, HeldHere, HoldState, LossReason};
use super::{Hold, Ownership, Phase, Sharer, StoreLease};

impl Ownership {
    pub(in crate::lock_entry) fn state_of(
        &self,
        grant: &Grant,
        now: Moment,
    ) -> Result<HoldState, LossReason> {
        let held = self.held().find_map(|(hold, lease)| Some((hold.owner_holds.get(grant.serial)?, lease)));
        let Some((sharer, lease)) = held else {
            let loss = self.losses.get(&grant.serial);
            return Err(loss.map_or(LossReason::GivenBack, |loss| loss.reason));
        };
        if let Some(reason) = sharer.loss(lease, now) {
            return Err(reason);
        }
        let ends = lease.sure_until.min(sharer.due()).min(grant.ends());
        match grant.ends() <= now {
            true => Err(LossReason::Expired),
            false => Ok(HoldState { ends, number: lease.number() }),
        }
    }

    pub(in crate::lock_entry) fn is_returning(&self) -> bool {
        matches!(self.phase, Phase::Returning { .. })
    }

    pub(in crate::lock_entry) fn each_hold<'a>(&'a self, now: Moment) -> Vec<HeldHere> {
        let each = |(hold, lease): (&'a Hold, &'a StoreLease)| {
            let lasts = move |(_, sharer): &(u64, &Sharer)| sharer.loss(lease, now).is_none();
            hold.owner_holds.iter().filter(lasts).map(move |(_, sharer)| HeldHere {
                owner: sharer.owner,
                holds: sharer.count,
                number: lease.number(),
                since: sharer.since,
                ends: sharer.due().min(lease.sure_until),
                is_watched: sharer.watched > 0,
                is_forgotten: sharer.guards + sharer.unclaimed == 0,
            })
        };
        self.held().flat_map(each).collect()
    }

    pub(in crate::lock_entry) fn head_waits_since(&self) -> Option<Moment> {
        match &self.phase {
            Phase::Competing(head) => Some(head.since),
            _ => None,
        }
    }

    /// The queue head is older than the queue.
    pub(in crate::lock_entry) fn waits_since(&self) -> Option<Moment> {
        self.head_waits_since().or_else(|| self.queue.first_since())
    }

    pub(in crate::lock_entry) fn waiting(&self) -> usize {
        self.queue.len() + usize::from(matches!(self.phase, Phase::Competing(_)))
    }

    pub(in crate::lock_entry) fn lease_numbers(&self) -> impl Iterator<Item = u64> {
        self.held().map(|(_, lease)| lease.number())
    }

    pub(in crate::lock_entry) fn is_known_held(&self) -> bool {
        match &self.phase {
            Phase::Free => false,
            Phase::Competing(head) => head.refused || head.inherits(),
            Phase::Held(..) | Phase::Returning { .. } => true,
        }
    }

    pub(in crate::lock_entry) fn was_known_held(&self, since: Moment) -> bool {
        self.is_known_held() || self.known_held.is_some_and(|last| last >= since)
    }

    pub(in crate::lock_entry) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Free) && self.parallel.is_empty()
    }

    pub(in crate::lock_entry) fn phase_name(&self) -> &'static str {
        match &self.phase {
            Phase::Free => "Free",
            Phase::Competing(_) => "Competing",
            Phase::Held(..) => "Held",
            Phase::Returning { .. } => "Returning",
        }
    }

    pub(in crate::lock_entry) fn is_forgotten(&self) -> bool {
        self.held().flat_map(|(hold, _)| hold.owner_holds.iter()).any(|(_, sharer)| sharer.is_forgotten())
    }

    /// True if the lease with this number is in hand, or goes on with the queue head.
    #[cfg(test)]
    pub(super) fn knows_lease(&self, number: u64) -> bool {
        let competes = matches!(&self.phase, Phase::Competing(head) if head.has_number(number));
        competes || self.lease_numbers().any(|held| held == number)
    }
}

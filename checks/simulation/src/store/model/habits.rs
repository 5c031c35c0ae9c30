//! [`Habits`]: what this store does where the contract leaves it a choice, drawn once; what it chooses each
//! time is drawn then.

use crate::world::{MS, Nanos, SECOND};

/// The liberties that a store takes in the same way for as long as it lasts.
#[derive(Clone, Debug)]
pub(super) struct Habits {
    /// A message of a release by a foreign client's rules is published on a channel of its own.
    pub(super) has_foreign_channel: bool,
    /// A grant's message may be taken for the lease.
    pub(super) grants_suffice: bool,
    /// A release of a plain lock calls a client that waits.
    pub(super) calls_waiters: bool,
    /// It knows which clients listen no more. Otherwise it grants to any.
    pub(super) knows_listeners: bool,
    /// Says how many others heard of a release. Otherwise too few.
    pub(super) counts_listeners: bool,
    /// A place that is asked for again is the earlier of both.
    pub(super) takes_earlier: bool,
    /// A lease that is over and was not taken since can be released.
    pub(super) releases_the_dead: bool,
    /// Finds a lock whose lease is over by itself, and not only when it is asked.
    pub(super) watches_ends: bool,
    /// Publishes more than it has to, of so many commands one time.
    pub(super) chatters_one_in: Option<u32>,
    /// A grant's message may come once more, much later.
    pub(super) repeats_grants: bool,
    /// Into how many parts the names are divided that are renewed apart.
    pub(super) renewal_groups: u64,
    /// For how long a subscription is kept that was ended.
    pub(super) lingers: Nanos,
}

impl Habits {
    pub(super) fn draw(chance: &mut fastrand::Rng) -> Self {
        Self {
            has_foreign_channel: chance.bool(),
            grants_suffice: chance.u8(..4) > 0,
            calls_waiters: chance.u8(..4) > 0,
            knows_listeners: chance.u8(..4) > 0,
            counts_listeners: chance.u8(..4) > 0,
            takes_earlier: chance.bool(),
            releases_the_dead: chance.bool(),
            watches_ends: chance.bool(),
            chatters_one_in: (chance.u8(..4) == 0).then(|| chance.u32(4..64)),
            repeats_grants: chance.u8(..4) == 0,
            renewal_groups: chance.u64(1..4),
            lingers: if chance.bool() { 0 } else { chance.u64(MS..5 * SECOND) },
        }
    }
}

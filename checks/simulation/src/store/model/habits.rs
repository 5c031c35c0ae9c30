//! [`Habits`]: the choices that the contract leaves to a store, drawn once for each store. Choices of the
//! moment are drawn elsewhere.

use crate::world::{MS, Nanos, SECOND};

/// Liberties that a store takes in the same way for its whole life.
#[derive(Clone, Debug)]
pub(super) struct Habits {
    /// True if releases by a foreign client's rules are published on a separate channel.
    pub(super) has_foreign_channel: bool,
    /// True if a waiter may take the message of a grant for the lease.
    pub(super) grants_suffice: bool,
    /// True if the release of a plain lock calls a waiting client.
    pub(super) calls_waiters: bool,
    /// True if the store grants only to clients that still listen; otherwise the store grants to any.
    pub(super) knows_listeners: bool,
    /// True if releases report the exact number of other listeners; otherwise possibly too few.
    pub(super) counts_listeners: bool,
    /// True if a waiter that queues again gets the earlier of its two positions.
    pub(super) takes_earlier: bool,
    /// True if an expired lease can be released while no other client has taken the lock.
    pub(super) releases_the_dead: bool,
    /// True if the store notices the end of a lease by itself, rather than at the next command.
    pub(super) watches_ends: bool,
    /// The store publishes a superfluous message with one in this many commands.
    pub(super) chatters_one_in: Option<u32>,
    /// True if the message of a grant may arrive again, much later.
    pub(super) repeats_grants: bool,
    /// Number of groups of names that are renewed separately.
    pub(super) renewal_groups: u64,
    /// Time for which the store keeps a subscription after its end.
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

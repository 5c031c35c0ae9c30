//! [`RegistryStats`]: what goes on in a registry, in numbers.

/// A snapshot of what happened through one [`Registry`](crate::subscription::Registry) and its clones, since
/// it was made.
///
/// The figures are read one after the other while things go on, so they need not add up. Once all is quiet
/// they do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegistryStats {
    /// Subscriptions that the transport was asked to begin. Those that neither ended nor failed stand now.
    pub subscriptions_begun: u64,
    /// Subscriptions that the transport was asked to end, as the last one had left.
    pub subscriptions_ended: u64,
    /// Subscriptions that the transport could not have, or lost for good.
    pub subscriptions_failed: u64,
    /// Times that messages of a channel arrived again, after some may have been lost.
    pub resubscriptions: u64,
    /// Channels that have users now. Fewer than subscriptions stand never; more while some users of a failed
    /// one have not left.
    pub entries: u64,
    /// [`Subscription`](crate::subscription::Subscription)s alive now.
    pub interest: u64,
    /// [`Unlock`](crate::subscription::Message::Unlock)s that came.
    pub unlock_messages: u64,
    /// [`ReadUnlock`](crate::subscription::Message::ReadUnlock)s that came.
    pub read_unlock_messages: u64,
    /// [`Granted`](crate::subscription::Message::Granted)s that came.
    pub grant_messages: u64,
    /// Useful wake-ups: notifications that were [consumed](crate::latch::Notification::consume), and
    /// callbacks that were run.
    ///
    /// A notification counts when it is consumed, and so once, however often it is passed on before. One that
    /// stays pending wakes no waiter, and is not counted.
    pub wakes_useful: u64,
    /// Spurious wake-ups: notifications that were [consumed as
    /// such](crate::latch::Notification::consume_spurious), as by a waiter of a lock that finds it still
    /// held.
    pub wakes_spurious: u64,
}

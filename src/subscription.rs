//! One subscription per channel and process, however many tasks wait: for a lock client of your own, or for
//! anything else that waits for messages.
//!
//! [`Registry`] keeps the subscriptions over a [`Transport`]. The locks of this crate wait by a registry, and
//! users of the locks need nothing from this module.

pub(crate) mod channel;
pub(crate) mod message;
pub(crate) mod registry;
pub(crate) mod transport;

pub use self::channel::{ChannelEntry, Listener};
pub use self::registry::{Registry, RegistryStats, Subscription};
pub use self::transport::{Inbox, Message, SubscribeError, Transport};

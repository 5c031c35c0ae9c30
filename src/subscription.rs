//! One subscription per channel and process, however many tasks wait: [`Registry`] keeps the subscriptions
//! over a [`Transport`]. For a lock client of your own, or anything else that waits for messages; users of
//! this crate's locks need nothing from this module.

pub(crate) mod channel;
pub(crate) mod registry;
pub(crate) mod transport;

pub use self::channel::{ChannelEntry, Listener};
pub use self::registry::{Registry, RegistryStats, Subscription};
pub use self::transport::{Inbox, Message, SubscribeError, Transport};

//! One subscription per channel and process, however many wait: for a lock client, or anything else that
//! waits for messages, of one's own.
//!
//! [`Registry`] keeps the subscriptions over a [`Transport`]. The locks of this crate wait by it, and need
//! none of this from a user.

pub(crate) mod channel;
pub(crate) mod message;
pub(crate) mod registry;
pub(crate) mod transport;

pub use self::channel::{ChannelEntry, Listener};
pub use self::registry::{Registry, RegistryStats, Subscription};
pub use self::transport::{Inbox, Message, SubscribeError, Transport};

//! [`Figures`]: what happens to all entries of one registry.

use std::sync::Arc;

use crate::counter::Counter;
use crate::latch::NotificationFigures;

/// Shared by a registry and its entries. See [`RegistryStats`](crate::subscription::RegistryStats) for what
/// they mean.
#[derive(Debug, Default)]
pub(crate) struct Figures {
    pub(crate) begun: Counter,
    pub(crate) ended: Counter,
    pub(crate) failed: Counter,
    pub(crate) resubscribed: Counter,
    pub(crate) interest: Counter,
    pub(crate) unlocks: Counter,
    pub(crate) read_unlocks: Counter,
    pub(crate) grants: Counter,
    pub(crate) notifications: Arc<NotificationFigures>,
}

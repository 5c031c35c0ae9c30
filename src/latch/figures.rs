//! [`NotificationFigures`]: what notifications were good for.

use crate::counter::Counter;

/// How the notifications of some latches were consumed. One that is passed on, or stays pending, counts as
/// neither.
#[derive(Debug, Default)]
pub(crate) struct NotificationFigures {
    pub(crate) useful: Counter,
    pub(crate) spurious: Counter,
}

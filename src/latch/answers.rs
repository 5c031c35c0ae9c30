//! [`Answers`]: what calls were good for.

use crate::counter::Counter;

/// How the calls of some latches were answered. A call that is passed on, or kept and never heard, counts as neither.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    pub(crate) wanted: Counter,
    pub(crate) wasted: Counter,
}

//! The short scenarios. Each one is a list of events with a row for each peer.

mod burst_1000;
mod cancel_waiting;
mod first_wait;
mod hand_over;
mod tasks;
mod threads;
mod uncontended;

use crate::event::Event;

pub use self::burst_1000::burst_1000;
pub use self::cancel_waiting::cancel_waiting;
pub use self::first_wait::first_wait;
pub use self::hand_over::hand_over;
pub use self::tasks::tasks;
pub use self::threads::threads;
pub use self::uncontended::uncontended;

/// All short scenarios.
pub fn short() -> Vec<Event> {
    [uncontended(), first_wait(), hand_over(), cancel_waiting(), burst_1000(), threads(), tasks()]
        .into_iter()
        .flatten()
        .collect()
}

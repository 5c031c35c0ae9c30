//! What the models of loom and of shuttle have in common: stand-ins for the crates under the real thing.

pub(crate) mod epoch;
mod event;

pub(crate) use self::event::Event;

#[cfg(latchwork_loom)]
use super::loom as checker;
#[cfg(latchwork_shuttle)]
use super::shuttle as checker;

/// Models have no clock.
pub(crate) fn block_on_until<F: Future>(future: F, _deadline: std::time::Instant) -> Option<F::Output> {
    Some(checker::block_on(future))
}

/// parking_lot's face (no poisoning) over the model checker's mutex.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(checker::PoisoningMutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(checker::PoisoningMutex::new(value))
    }

    pub(crate) fn lock(&self) -> checker::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

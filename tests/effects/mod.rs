//! Events of a `LockEntry` as pairs of outcome and effects. The parent module names `Effects`.

use std::task::Waker;

use super::Effects;

/// The outcome of an event, and the effects to be carried out.
pub(crate) fn with<T>(event: impl FnOnce(&mut Effects) -> T) -> (T, Effects) {
    let mut effects = Effects::default();
    let outcome = event(&mut effects);
    (outcome, effects)
}

pub(crate) fn effects_of(event: impl FnOnce(&mut Effects)) -> Effects {
    with(event).1
}

/// The waker of a caller that may wait.
pub(crate) fn noop() -> Option<Waker> {
    Some(Waker::noop().clone())
}

//! Outcomes of `LockEntry` events paired with effects. The parent module names `Effects`.

use std::task::Waker;

use super::Effects;

pub(crate) fn with<T>(event: impl FnOnce(&mut Effects) -> T) -> (T, Effects) {
    let mut effects = Effects::default();
    let outcome = event(&mut effects);
    (outcome, effects)
}

pub(crate) fn effects_of(event: impl FnOnce(&mut Effects)) -> Effects {
    with(event).1
}

pub(crate) fn noop() -> Option<Waker> {
    Some(Waker::noop().clone())
}

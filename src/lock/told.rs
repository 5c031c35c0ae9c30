//! Waiting for what an event tells of.

use crate::sync::Event;

/// What `look` finds, as soon as it finds something. `event` tells when to look again.
pub(super) async fn told<T>(event: &Event, mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(found) = look() {
            return found;
        }
        let told = event.listen();
        // After we listen, so that what comes now is either seen here or told.
        if let Some(found) = look() {
            return found;
        }
        told.await;
    }
}

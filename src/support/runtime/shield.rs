//! Callers' wakers in code of other crates: tasks of the redis crate and timers of tokio call them, and would
//! end by a panic. What hands a caller's waker to those is polled by [`shielded`], and theirs is one that
//! reports the panic and returns. (What waits for a reply has one of its connection:
//! `redis/connection/in_flight.rs`.)

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use tokio::task::coop::unconstrained;

use crate::support::foreign;

/// Awaits what hands the caller's waker to tasks and timers of other crates. Without tokio's budget: a
/// blocking call inside of a task that has spent its budget never returns to tokio, which would give it a new
/// one.
///
/// Pinned by the caller: moved into this one, `future` would have room in its box twice.
pub(crate) async fn shielded<F: Future + Unpin>(future: F) -> F::Output {
    let (mut future, mut shield) = (unconstrained(future), Shield::default());
    poll_fn(|task| Pin::new(&mut future).poll(&mut Context::from_waker(shield.over(task.waker())))).await
}

/// A caller's waker, and the one that stands for it in code of other crates.
#[derive(Default)]
struct Shield(Option<(Arc<Shielded>, Waker)>);

impl Shield {
    /// Wakes what `waker` does, and panics never. A task's waker is the same at each poll, so this allocates
    /// once.
    fn over(&mut self, waker: &Waker) -> &Waker {
        if self.0.as_ref().is_some_and(|(shielded, _)| !shielded.stands_for(waker)) {
            self.0 = None;
        }
        let (_, shield) = self.0.get_or_insert_with(|| {
            let shielded = Arc::new(Shielded(Some(waker.clone())));
            (Arc::clone(&shielded), Waker::from(shielded))
        });
        shield
    }
}

/// Absent once it is dropped.
struct Shielded(Option<Waker>);

impl Shielded {
    fn stands_for(&self, waker: &Waker) -> bool {
        self.0.as_ref().is_some_and(|own| own.will_wake(waker))
    }
}

impl Wake for Shielded {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        foreign::call("a waker", || _ = self.0.as_ref().map(Waker::wake_by_ref));
    }
}

impl Drop for Shielded {
    fn drop(&mut self) {
        foreign::call("dropping a waker", || drop(self.0.take()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::support::sync::atomic::{AtomicUsize, Ordering};

    /// Counts, and panics when it is dropped.
    struct Hostile(Arc<AtomicUsize>);

    impl Wake for Hostile {
        fn wake(self: Arc<Self>) {
            // Ordering: Relaxed, all is on one thread.
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Drop for Hostile {
        fn drop(&mut self) {
            panic!("a waker is dropped");
        }
    }

    #[test]
    fn shield_stands_for_the_waker_of_the_last_poll_and_is_made_once_for_each() {
        let counts = [(), ()].map(|()| Arc::new(AtomicUsize::new(0)));
        let wakers = counts.each_ref().map(|count| Waker::from(Arc::new(Hostile(Arc::clone(count)))));
        let mut shield = Shield::default();
        let first = shield.over(&wakers[0]).clone();
        assert!(shield.over(&wakers[0]).will_wake(&first));
        shield.over(&wakers[1]).wake_by_ref();
        // Ordering: Relaxed, all is on one thread.
        assert_eq!(counts.each_ref().map(|count| count.load(Ordering::Relaxed)), [0, 1]);
        drop(wakers);
        // These have the last copies, and the panics of those end here.
        drop((first, shield));
    }
}

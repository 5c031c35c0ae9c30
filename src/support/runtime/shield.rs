//! Protects tasks of the redis crate and timers of tokio from panics of callers' wakers: [`shielded`] polls a
//! future with a waker that reports a panic and returns. (For replies, see `redis/connection/in_flight.rs`.)

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake, Waker};

use tokio::task::coop::unconstrained;

use crate::support::foreign;

/// Awaits a future that passes the caller's waker to other crates. Without tokio's budget: a blocking call in
/// a task with a spent budget gets no new one. The caller pins `future`: moved in, it would take room twice.
pub(crate) async fn shielded<F: Future + Unpin>(future: F) -> F::Output {
    let (mut future, mut shield) = (unconstrained(future), Shield::default());
    poll_fn(|task| Pin::new(&mut future).poll(&mut Context::from_waker(shield.over(task.waker())))).await
}

/// A caller's waker, and its stand-in for code of other crates.
#[derive(Default)]
struct Shield(Option<(Arc<Shielded>, Waker)>);

impl Shield {
    /// Returns a stand-in for `waker` that never panics. Allocates once if all polls have the same waker.
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
    fn shield_wraps_the_last_polls_waker_and_is_made_once_each() {
        let counts = [(), ()].map(|()| Arc::new(AtomicUsize::new(0)));
        let wakers = counts.each_ref().map(|count| Waker::from(Arc::new(Hostile(Arc::clone(count)))));
        let mut shield = Shield::default();
        let first = shield.over(&wakers[0]).clone();
        assert!(shield.over(&wakers[0]).will_wake(&first));
        shield.over(&wakers[1]).wake_by_ref();
        // Ordering: Relaxed, all is on one thread.
        assert_eq!(counts.each_ref().map(|count| count.load(Ordering::Relaxed)), [0, 1]);
        drop(wakers);
        drop((first, shield));
    }
}

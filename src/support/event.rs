use std::collections::BTreeMap;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::support::foreign;
use crate::support::sync::Mutex;

/// Calls wakers without the mutex, so that a waker may listen, notify or panic.
#[derive(Default)]
pub(crate) struct Event {
    /// The round of all listeners since the last notification; `None` without listeners.
    round: Mutex<Option<Arc<Round>>>,
}

#[derive(Default)]
struct Round(Mutex<Listeners>);

#[derive(Default)]
struct Listeners {
    told: bool,
    /// Wakers by the number of each listener's first poll, and so in that order.
    wakers: BTreeMap<usize, Waker>,
    polls: usize,
}

impl Event {
    /// Listens from this call on, before the first poll: ready at the next notification.
    pub(crate) fn listen(&self) -> Listener {
        let round = Arc::clone(self.round.lock().get_or_insert_default());
        Listener { round, place: None }
    }

    /// Notifies all listeners. The caller calls the returned wakers.
    pub(crate) fn tell(&self) -> Vec<Waker> {
        let Some(round) = self.round.lock().take() else { return Vec::new() };
        let wakers = {
            let mut listeners = round.0.lock();
            listeners.told = true;
            mem::take(&mut listeners.wakers)
        };
        wakers.into_values().collect()
    }

    pub(crate) fn notify(&self) {
        foreign::wake(self.tell());
    }
}

pub(crate) struct Listener {
    round: Arc<Round>,
    place: Option<usize>,
}

impl Future for Listener {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        // Without the mutex: cloning and dropping wakers is foreign code.
        let waker = context.waker().clone();
        let (place, replaced) = {
            let mut listeners = self.round.0.lock();
            if listeners.told {
                drop(listeners);
                foreign::discard(waker);
                return Poll::Ready(());
            }
            listeners.polls += 1;
            let place = self.place.unwrap_or(listeners.polls);
            (place, listeners.wakers.insert(place, waker))
        };
        self.place = Some(place);
        foreign::discard(replaced);
        Poll::Pending
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        let waker = self.round.0.lock().wakers.remove(&place);
        foreign::discard(waker);
    }
}

#[cfg(all(test, not(latchwork_loom)))]
mod tests {
    use std::pin::pin;
    use std::task::Wake;

    use crate::support::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    struct Acts<F>(F);

    impl<F: Fn() + Send + Sync> Wake for Acts<F> {
        fn wake(self: Arc<Self>) {
            (self.0)();
        }
    }

    fn waker(act: impl Fn() + Send + Sync + 'static) -> Waker {
        Waker::from(Arc::new(Acts(act)))
    }

    fn poll(listener: Pin<&mut Listener>, waker: &Waker) -> Poll<()> {
        listener.poll(&mut Context::from_waker(waker))
    }

    #[test]
    fn listener_is_notified_of_later_events_and_not_of_earlier_ones() {
        let event = Event::default();
        event.notify();
        let mut listener = pin!(event.listen());
        assert!(poll(listener.as_mut(), Waker::noop()).is_pending());
        let unpolled = pin!(event.listen());
        event.notify();
        let late = pin!(event.listen());
        assert!(poll(listener, Waker::noop()).is_ready() && poll(unpolled, Waker::noop()).is_ready());
        assert!(poll(late, Waker::noop()).is_pending());
    }

    /// Called under the mutex, a waker that listens to the same event would deadlock.
    #[test]
    fn relistening_or_panicking_waker_prevents_no_other_wake_up() {
        let (event, woken) = (Arc::new(Event::default()), Arc::new(AtomicUsize::new(0)));
        let again = Arc::clone(&event);
        let counts = Arc::clone(&woken);
        let wakers = [
            waker(|| panic!("on purpose")),
            waker(move || {
                let _ = poll(pin!(again.listen()), Waker::noop());
                again.notify();
            }),
            // Ordering: Relaxed, one thread.
            waker(move || _ = counts.fetch_add(1, Ordering::Relaxed)),
        ];
        let mut listeners = [(); 3].map(|()| Box::pin(event.listen()));
        for (listener, waker) in listeners.iter_mut().zip(&wakers) {
            assert!(poll(listener.as_mut(), waker).is_pending());
        }
        event.notify();
        // Ordering: Relaxed, one thread.
        assert_eq!(woken.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn waker_that_another_one_wakes_is_called_behind_it() {
        let (event, inner, woken) =
            (Event::default(), Arc::new(Event::default()), Arc::new(AtomicUsize::new(0)));
        let counts = Arc::clone(&woken);
        let (wakes, behind) = (Arc::clone(&inner), inner.listen());
        // Ordering: Relaxed, one thread.
        let counting = waker(move || _ = counts.fetch_add(1, Ordering::Relaxed));
        let (mut outer, mut behind) = (pin!(event.listen()), pin!(behind));
        assert!(poll(outer.as_mut(), &waker(move || wakes.notify())).is_pending());
        assert!(poll(behind.as_mut(), &counting).is_pending());
        event.notify();
        // Ordering: Relaxed, one thread.
        assert_eq!(woken.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn listener_polled_again_keeps_its_position_and_last_waker_only() {
        let (event, woken) = (Event::default(), Arc::new(AtomicUsize::new(0)));
        let counts = Arc::clone(&woken);
        let mut listener = pin!(event.listen());
        // Ordering: Relaxed, one thread.
        for waker in [
            waker(|| panic!("it is not the last")),
            waker(move || _ = counts.fetch_add(1, Ordering::Relaxed)),
        ] {
            assert!(poll(listener.as_mut(), &waker).is_pending());
        }
        assert_eq!(event.tell().into_iter().map(Waker::wake).count(), 1);
        // Ordering: Relaxed, one thread.
        assert_eq!(woken.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn listeners_that_have_left_keep_no_memory_and_no_waker() {
        let event = Event::default();
        let token = Arc::new(Acts(|| {}));
        let held = Waker::from(Arc::clone(&token));
        let mut listeners: Vec<_> = (0..1000).map(|_| Box::pin(event.listen())).collect();
        for listener in &mut listeners {
            assert!(poll(listener.as_mut(), &held).is_pending());
        }
        drop((listeners, held));
        assert_eq!(Arc::strong_count(&token), 1);
        let round = event.round.lock().clone().unwrap();
        assert!(round.0.lock().wakers.is_empty());
    }
}

//! `event_listener::Event` in a model.

use crate::sync::{Arc, Mutex};

/// Stands in for `event_listener::Event`: all who listen now are told once.
#[derive(Debug)]
pub(crate) struct Event(Mutex<Vec<Arc<Mutex<Heard>>>>);

/// What one listener has heard, and whom to tell.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    notified: bool,
    waker: Option<std::task::Waker>,
}

#[derive(Debug)]
pub(crate) struct EventListener(Arc<Mutex<Heard>>);

impl Event {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    pub(crate) fn listen(&self) -> EventListener {
        let heard = Arc::new(Mutex::new(Heard::default()));
        self.0.lock().push(Arc::clone(&heard));
        EventListener(heard)
    }

    pub(crate) fn notify(&self, _everyone: usize) {
        let listeners = std::mem::take(&mut *self.0.lock());
        for listener in listeners {
            let waker = {
                let mut heard = listener.lock();
                heard.notified = true;
                heard.waker.take()
            };
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

impl Future for EventListener {
    type Output = ();

    fn poll(self: std::pin::Pin<&mut Self>, context: &mut std::task::Context<'_>) -> std::task::Poll<()> {
        let mut heard = self.0.lock();
        if heard.notified {
            return std::task::Poll::Ready(());
        }
        heard.waker = Some(context.waker().clone());
        std::task::Poll::Pending
    }
}

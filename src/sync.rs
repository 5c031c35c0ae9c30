//! The one place that names `std::sync::atomic` or loom.
//!
//! Everything lock-free in this crate takes its atomics, cells and queues from here, so that `--cfg latchwork_loom`
//! swaps them all for ones the model checker sees. An atomic taken from std elsewhere would be invisible to loom, and a
//! model over it would pass whatever the code does; `tests/tidy.rs` keeps that from happening.

#[cfg(not(latchwork_loom))]
mod imp {
    pub(crate) use std::sync::Arc;
    pub(crate) mod atomic {
        #[cfg(feature = "lock")]
        pub(crate) use std::sync::atomic::AtomicU64;
        pub(crate) use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU8, AtomicUsize, Ordering};
    }
    pub(crate) use crossbeam_queue::SegQueue;
    pub(crate) use event_listener::Event;
    pub(crate) use parking_lot::Mutex;

    /// loom's `UnsafeCell` takes a closure, so that it can see how long an access lasts; this one only looks like it.
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }

    /// Runs `future` on this thread, parked in between.
    pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
        use std::task::{Context, Poll, Wake, Waker};
        use std::thread::{self, Thread};

        struct Unpark(Thread);

        impl Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }

        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let mut context = Context::from_waker(&waker);
        let mut future = std::pin::pin!(future);
        loop {
            match future.as_mut().poll(&mut context) {
                Poll::Ready(output) => return output,
                // `unpark` before `park` makes `park` return at once, and a spurious return only polls once more.
                Poll::Pending => thread::park(),
            }
        }
    }
}

#[cfg(latchwork_loom)]
mod imp {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::future::block_on;
    pub(crate) use loom::sync::Arc;
    pub(crate) mod atomic {
        pub(crate) use loom::sync::atomic::{AtomicBool, AtomicIsize, AtomicU8, AtomicUsize, Ordering};
    }

    /// parking_lot's face (no poisoning) over loom's mutex.
    #[derive(Debug, Default)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        pub(crate) fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
            self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
        }
    }

    /// Stands in for crossbeam's queue, whose happens-before edges loom cannot see (it would report races that are none).
    /// Both are linearizable; what a model checks is the protocol around the queue, not the queue.
    #[derive(Debug)]
    pub(crate) struct SegQueue<T>(Mutex<std::collections::VecDeque<T>>);

    impl<T> SegQueue<T> {
        pub(crate) fn new() -> Self {
            Self(Mutex::new(std::collections::VecDeque::new()))
        }

        pub(crate) fn push(&self, value: T) {
            self.0.lock().push_back(value);
        }

        pub(crate) fn pop(&self) -> Option<T> {
            self.0.lock().pop_front()
        }

        pub(crate) fn is_empty(&self) -> bool {
            self.0.lock().is_empty()
        }

        pub(crate) fn len(&self) -> usize {
            self.0.lock().len()
        }
    }

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
}

pub(crate) use imp::*;

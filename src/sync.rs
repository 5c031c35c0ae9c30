//! The one place that names `std::sync::atomic` or loom.
//!
//! Everything lock-free in this crate takes its atomics, cells and queues from here, so that `--cfg latchwork_loom`
//! swaps them all for ones the model checker sees. An atomic taken from std elsewhere would be invisible to loom, and a
//! model over it would pass whatever the code does; `tests/tidy.rs` keeps that from happening.

#[cfg(not(latchwork_loom))]
mod imp {
    use std::sync::Arc;
    pub(crate) mod atomic {
        #[cfg(feature = "lock")]
        pub(crate) use std::sync::atomic::AtomicU64;
        pub(crate) use std::sync::atomic::{
            AtomicBool, AtomicI32, AtomicIsize, AtomicPtr, AtomicU32, AtomicUsize, Ordering,
        };
    }

    /// A thread-local that is there from a thread's start to its very end. (loom's macro knows no `const` blocks.)
    macro_rules! thread_cell {
        ($name:ident: $type:ty = $init:expr) => {
            std::thread_local! {
                static $name: $type = const { $init };
            }
        };
    }
    pub(crate) use event_listener::Event;
    pub(crate) use parking_lot::Mutex;
    pub(crate) use std::hint::spin_loop;
    pub(crate) use thread_cell;

    /// Memory that may still be read when it is taken out of use: crossbeam-epoch, by a collector of our own, so that pinning
    /// never runs the destructors of other crates.
    pub(crate) mod epoch {
        use std::sync::LazyLock;

        use crossbeam_epoch::{Collector, LocalHandle, Shared};

        static COLLECTOR: LazyLock<Collector> = LazyLock::new(Collector::new);

        thread_local! {
            static HANDLE: LocalHandle = COLLECTOR.register();
            static RETIRED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) };
        }

        /// A thread hands what it has retired to the collector each time it is so much. By itself it would keep up to 64 pieces
        /// back, which is more than all that a semaphore with few waiters needs.
        const HAND_OVER: u32 = 16;

        /// In a model, tells whether what it is part of was freed.
        #[derive(Debug)]
        pub(crate) struct Canary;

        impl Canary {
            pub(crate) const fn new() -> Self {
                Self
            }

            pub(crate) fn assert_alive(&self) {}
        }

        pub(crate) trait Retire {
            #[expect(dead_code, reason = "asked for in models")]
            fn canary(&self) -> &Canary;
        }

        /// Keeps what is retired from now on from being freed.
        pub(crate) struct Guard(crossbeam_epoch::Guard);

        #[inline]
        pub(crate) fn pin() -> Guard {
            // A thread whose locals are being destroyed can still drop a permit.
            Guard(HANDLE.try_with(LocalHandle::pin).unwrap_or_else(|_| COLLECTOR.register().pin()))
        }

        impl Guard {
            /// Frees a box once nobody is pinned who was pinned at the time of this call.
            ///
            /// # Safety
            ///
            /// `retired` came from `Box::into_raw`, is retired once, and cannot be reached by who is not pinned now.
            pub(crate) unsafe fn retire<T: Retire>(&self, retired: *mut T) {
                // SAFETY: the caller's promise.
                unsafe { self.0.defer_destroy(Shared::from(retired.cast_const())) };
                let retired = RETIRED.get() + 1;
                RETIRED.set(retired % HAND_OVER);
                if retired == HAND_OVER {
                    self.0.flush();
                }
            }
        }
    }

    /// See the loom side: in the model, SeqCst accesses are weaker than they are.
    pub(crate) fn seq_cst_for_loom() {}

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

    /// Runs `future` on this thread, asleep in between.
    pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
        let woken = run(future, || {
            std::thread::park();
            true
        });
        woken.expect("a sleep without an end does not end")
    }

    /// Runs `future` on this thread, asleep in between, until `deadline`; drops it then.
    pub(crate) fn block_on_until<F: Future>(future: F, deadline: std::time::Instant) -> Option<F::Output> {
        run(future, || {
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            std::thread::park_timeout(left);
            !left.is_zero()
        })
    }

    /// `sleep` until unparked; false when it is time to give up.
    fn run<F: Future>(future: F, sleep: impl Fn() -> bool) -> Option<F::Output> {
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
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return Some(output);
            }
            // `unpark` before `park` makes `park` return at once, and a spurious return only polls once more.
            if !sleep() {
                return None;
            }
        }
    }
}

#[cfg(latchwork_loom)]
mod imp {
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::future::block_on;
    pub(crate) use loom::hint::spin_loop;

    /// Models have no clock.
    pub(crate) fn block_on_until<F: Future>(future: F, _deadline: std::time::Instant) -> Option<F::Output> {
        Some(block_on(future))
    }
    use loom::sync::Arc;
    pub(crate) mod atomic {
        pub(crate) use loom::sync::atomic::{
            AtomicBool, AtomicI32, AtomicIsize, AtomicPtr, AtomicU32, AtomicUsize, Ordering,
        };
    }

    macro_rules! thread_cell {
        ($name:ident: $type:ty = $init:expr) => {
            loom::thread_local! {
                static $name: $type = $init;
            }
        };
    }
    pub(crate) use thread_cell;

    /// The strictest scheme that keeps crossbeam-epoch's promise: what is retired is freed the moment that nobody is pinned.
    ///
    /// Freed things are buried and not given back, so that whoever still comes to one meets its dead canary. All this is made
    /// of std's cells, which loom does not see, so it adds no order between the model's threads; these all run on one real
    /// thread, so a thread-local is shared by them.
    pub(crate) mod epoch {
        use std::cell::{Cell, RefCell};

        /// Tells whether what it is part of was freed.
        #[derive(Debug)]
        pub(crate) struct Canary(Cell<bool>);

        // SAFETY: all threads of a model run on one real thread.
        unsafe impl Sync for Canary {}

        impl Canary {
            pub(crate) const fn new() -> Self {
                Self(Cell::new(true))
            }

            pub(crate) fn assert_alive(&self) {
                assert!(self.0.get(), "read after it was freed");
            }
        }

        pub(crate) trait Retire: 'static {
            fn canary(&self) -> &Canary;
        }

        std::thread_local! {
            static PINNED: Cell<usize> = const { Cell::new(0) };
            static RETIRED: RefCell<Vec<Box<dyn Retire>>> = const { RefCell::new(Vec::new()) };
            static BURIED: RefCell<Vec<Box<dyn Retire>>> = const { RefCell::new(Vec::new()) };
        }

        pub(crate) struct Guard(());

        pub(crate) fn pin() -> Guard {
            PINNED.set(PINNED.get() + 1);
            Guard(())
        }

        impl Guard {
            pub(crate) unsafe fn retire<T: Retire>(&self, retired: *mut T) {
                // SAFETY: the caller's promise.
                let retired = unsafe { Box::from_raw(retired) };
                RETIRED.with_borrow_mut(|all| all.push(retired));
                if crate::fault::fault!(FreedUnderReaders) {
                    bury();
                }
            }
        }

        impl Drop for Guard {
            fn drop(&mut self) {
                PINNED.set(PINNED.get() - 1);
                if PINNED.get() == 0 {
                    bury();
                }
            }
        }

        fn bury() {
            for freed in RETIRED.take() {
                freed.canary().0.set(false);
                BURIED.with_borrow_mut(|all| all.push(freed));
            }
        }

        /// Nobody can come any more: the row that the buried ones were part of is gone.
        pub(crate) fn forget_buried() {
            drop(BURIED.take());
        }
    }

    /// loom takes SeqCst loads and stores for Acquire and Release, and would report a store buffering that SeqCst forbids.
    pub(crate) fn seq_cst_for_loom() {
        if !crate::fault::fault!(NoCommonOrder) {
            // Ordering: SeqCst, the one order that the real accesses have by themselves.
            loom::sync::atomic::fence(atomic::Ordering::SeqCst);
        }
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

//! The real thing: what every user of the library runs on.

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
            if crate::fault::fault!(NeverFreed) {
                return;
            }
            if crate::fault::fault!(FreedUnderReaders) {
                // SAFETY: none; this is the fault.
                return drop(unsafe { Box::from_raw(retired) });
            }
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

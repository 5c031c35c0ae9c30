//! The real thing: what every user of the library runs on.

use std::sync::Arc;

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
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
pub(crate) use parking_lot::Mutex;
pub(crate) use thread_cell;

/// A static that all threads share.
macro_rules! shared_static {
    ($name:ident: $type:ty = $init:expr) => {
        static $name: $type = $init;
    };
}
pub(crate) use shared_static;

/// A constructor that is `const` wherever atomics can be made in a const.
macro_rules! maybe_const {
    (impl $type:ty { $(#[$meta:meta])* $visibility:vis fn $name:ident($($argument:ident: $of:ty),*) -> Self $body:block }) => {
        impl $type {
            $(#[$meta])*
            $visibility const fn $name($($argument: $of),*) -> Self $body
        }
    };
}
pub(crate) use maybe_const;

/// In a model, tells whether what it is part of was freed.
#[derive(Debug)]
pub(crate) struct Canary;

impl Canary {
    pub(crate) const fn new() -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn assert_alive(&self) {}
}

/// What is never freed. (A model frees it between two executions.)
pub(crate) fn leak<T>(value: Box<T>) -> &'static T {
    Box::leak(value)
}

/// Calls `f` when this thread ends. False if it is ending already.
pub(crate) fn at_thread_exit(f: fn()) -> bool {
    struct Exit(std::cell::Cell<Option<fn()>>);

    impl Drop for Exit {
        fn drop(&mut self) {
            if let Some(f) = self.0.take() {
                f();
            }
        }
    }

    std::thread_local! {
        static EXIT: Exit = const { Exit(std::cell::Cell::new(None)) };
    }
    EXIT.try_with(|exit| exit.0.set(Some(f))).is_ok()
}

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

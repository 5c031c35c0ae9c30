use std::ops::Deref;
use std::sync::{Arc, OnceLock};

pub(crate) mod atomic {
    pub(crate) use std::sync::atomic::{
        AtomicBool, AtomicIsize, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    };
}

/// Declares a thread-local that lives until its thread's very end. (loom's takes no `const` blocks.)
macro_rules! thread_cell {
    ($name:ident: $type:ty = $init:expr) => {
        std::thread_local! {
            static $name: $type = const { $init };
        }
    };
}
pub(crate) use parking_lot::Mutex;
pub(crate) use thread_cell;

macro_rules! shared_static {
    ($name:ident: $type:ty = $init:expr) => {
        static $name: $type = $init;
    };
}
pub(crate) use shared_static;

/// Declares a constructor, `const` wherever atomics can be made in a const.
macro_rules! maybe_const {
    (impl $type:ty {
        $(#[$meta:meta])*
        $visibility:vis fn $name:ident($($argument:ident: $of:ty),*) -> Self $body:block
    }) => {
        impl $type {
            $(#[$meta])*
            $visibility const fn $name($($argument: $of),*) -> Self $body
        }
    };
}
pub(crate) use maybe_const;

/// A value made at its first use, or in models by `new`, as a model checker does not see std's locks.
pub(crate) struct Lazy<T> {
    cell: OnceLock<T>,
    make: fn() -> T,
}

impl<T> Lazy<T> {
    pub(crate) const fn new(make: fn() -> T) -> Self {
        Self { cell: OnceLock::new(), make }
    }

    pub(crate) fn of(value: T) -> Self {
        Self { cell: OnceLock::from(value), make: || unreachable!("the value is there") }
    }
}

impl<T> Deref for Lazy<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.cell.get_or_init(self.make)
    }
}

/// Does nothing; in a model, detects a use after its owner was freed.
#[derive(Debug)]
pub(crate) struct Canary;

impl Canary {
    pub(crate) const fn new() -> Self {
        Self
    }

    #[inline(always)]
    pub(crate) fn assert_alive(&self) {}
}

/// Frees `dead`. (A model keeps the memory and marks the canary as dead.)
pub(crate) fn bury<T>(dead: Box<T>, _canary: impl FnOnce(&T) -> &Canary) {
    drop(dead);
}

/// Leaks a box. (A model frees the box between two executions.)
///
/// # Safety
/// `boxed` is from `Box::into_raw`, and nothing else frees it.
pub(crate) unsafe fn leak<T>(boxed: *mut T) -> &'static T {
    // SAFETY: from a box that is never freed; only shared references to it are made.
    unsafe { &*boxed }
}

/// Calls `f` at the end of this thread. False if the thread is already ending.
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

/// Has the interface of loom's `UnsafeCell`, which takes closures to see the duration of an access.
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

/// Runs `future` on this thread, which sleeps between polls.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    block_on_until(future, None).expect("a sleep without an end does not end")
}

/// As [`block_on`], until `deadline`, if there is one: then polls the future once more, and drops it.
pub(crate) fn block_on_until<F: Future>(
    future: F,
    deadline: Option<std::time::Instant>,
) -> Option<F::Output> {
    use std::task::{Context, Poll, Wake, Waker};
    use std::time::Instant;

    use parking_lot::Condvar;

    /// Wakes the thread, but not by `unpark`: a thread's one token is the caller's.
    #[derive(Default)]
    struct Alarm {
        is_rung: Mutex<bool>,
        rings: Condvar,
    }

    impl Wake for Alarm {
        fn wake(self: Arc<Self>) {
            self.wake_by_ref();
        }

        fn wake_by_ref(self: &Arc<Self>) {
            *self.is_rung.lock() = true;
            self.rings.notify_one();
        }
    }

    impl Alarm {
        fn sleep(&self, deadline: Option<Instant>) {
            let mut is_rung = self.is_rung.lock();
            while !*is_rung {
                match deadline {
                    None => self.rings.wait(&mut is_rung),
                    Some(deadline) if self.rings.wait_until(&mut is_rung, deadline).timed_out() => break,
                    Some(_) => {}
                }
            }
            *is_rung = false;
        }
    }

    // A tokio task that blocks here gets no new budget, and tokio's types would wait for a budget.
    #[cfg(feature = "tokio")]
    let future = tokio::task::coop::unconstrained(future);
    let alarm = Arc::new(Alarm::default());
    let waker = Waker::from(Arc::clone(&alarm));
    let mut context = Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        let is_last = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        if is_last {
            return None;
        }
        alarm.sleep(deadline);
    }
}

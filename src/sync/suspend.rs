//! std's, with a hook before each access to what threads share: there `verify`'s `suspension` stops threads.

use std::cell::Cell;
use std::panic::Location;

pub(crate) use super::std::*;

/// What is called before an access to what threads share, with its place in the sources.
pub type Hook = fn(&'static Location<'static>);

std::thread_local! {
    static HOOK: Cell<Option<Hook>> = const { Cell::new(None) };
}

/// From now on, `hook` is called before each access of this thread. It may block; it must not use what it is
/// called from.
pub fn before_each_access(hook: Option<Hook>) {
    HOOK.with(|cell| cell.set(hook));
}

/// Comes before each access.
#[track_caller]
pub fn access() {
    // At a thread's end there are no thread-locals any more, and it is not stopped either.
    if let Ok(Some(hook)) = HOOK.try_with(Cell::get) {
        hook(Location::caller());
    }
}

pub(crate) mod atomic {
    use super::super::std::atomic as real;

    pub(crate) use real::Ordering;

    use super::access;

    macro_rules! methods {
        ($value:ty) => {
            #[track_caller]
            pub(crate) fn load(&self, ordering: Ordering) -> $value {
                access();
                self.0.load(ordering)
            }

            #[track_caller]
            pub(crate) fn store(&self, value: $value, ordering: Ordering) {
                access();
                self.0.store(value, ordering);
            }

            #[track_caller]
            pub(crate) fn compare_exchange(
                &self,
                from: $value,
                to: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                access();
                self.0.compare_exchange(from, to, success, failure)
            }

            #[track_caller]
            pub(crate) fn compare_exchange_weak(
                &self,
                from: $value,
                to: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                access();
                self.0.compare_exchange_weak(from, to, success, failure)
            }
        };
    }

    macro_rules! atomics {
        ($($name:ident: $value:ty { $($method:ident,)* })*) => {
            $(
                #[derive(Debug, Default)]
                pub(crate) struct $name(real::$name);

                #[allow(dead_code, reason = "not every method is used of every type")]
                impl $name {
                    pub(crate) const fn new(value: $value) -> Self {
                        Self(real::$name::new(value))
                    }

                    methods!($value);

                    $(
                        #[track_caller]
                        pub(crate) fn $method(&self, operand: $value, ordering: Ordering) -> $value {
                            access();
                            self.0.$method(operand, ordering)
                        }
                    )*
                }
            )*
        };
    }

    atomics! {
        AtomicBool: bool { swap, }
        AtomicIsize: isize { fetch_sub, }
        AtomicU32: u32 { fetch_add, fetch_sub, }
        AtomicU64: u64 { fetch_add, fetch_and, fetch_max, fetch_or, }
        AtomicUsize: usize { fetch_add, fetch_sub, }
    }

    #[derive(Debug)]
    pub(crate) struct AtomicPtr<T>(real::AtomicPtr<T>);

    #[allow(dead_code, reason = "as above")]
    impl<T> AtomicPtr<T> {
        pub(crate) const fn new(value: *mut T) -> Self {
            Self(real::AtomicPtr::new(value))
        }

        methods!(*mut T);
    }
}

/// With the hook before what is done in the cell.
#[derive(Debug)]
pub(crate) struct UnsafeCell<T>(super::std::UnsafeCell<T>);

impl<T> UnsafeCell<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(super::std::UnsafeCell::new(value))
    }

    #[track_caller]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        access();
        self.0.with_mut(f)
    }
}

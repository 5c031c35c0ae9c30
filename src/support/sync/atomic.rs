//! Atomics with a hook before each access: loom's, to know each access in the sources (`loom/sites.rs`), or
//! std's, with a possible stop of the thread (`suspend.rs`).

#[cfg(latchwork_loom)]
use super::loom::{checked, site};
use super::maybe_const;
#[cfg(latchwork_suspend)]
use super::suspend::{checked, site};

pub(crate) use checked::Ordering;

macro_rules! methods {
    ($value:ty) => {
        fn word(&self) -> *const () {
            std::ptr::from_ref(self).cast()
        }

        #[track_caller]
        pub(crate) fn load(&self, ordering: Ordering) -> $value {
            let [ordering] = site(self.word(), "load", [ordering]);
            self.0.load(ordering)
        }

        #[track_caller]
        pub(crate) fn store(&self, value: $value, ordering: Ordering) {
            let [ordering] = site(self.word(), "store", [ordering]);
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
            let [success, failure] = site(self.word(), "compare_exchange", [success, failure]);
            self.0.compare_exchange(from, to, success, failure)
        }

        /// Never fails spuriously in a model.
        #[track_caller]
        pub(crate) fn compare_exchange_weak(
            &self,
            from: $value,
            to: $value,
            success: Ordering,
            failure: Ordering,
        ) -> Result<$value, $value> {
            self.compare_exchange(from, to, success, failure)
        }
    };
}

macro_rules! atomics {
    ($($name:ident: $value:ty { $($method:ident($operand:ty),)* })*) => {
        $(
            #[derive(Debug)]
            pub(crate) struct $name(checked::$name);

            #[allow(dead_code, reason = "not every method is used of every type")]
            impl $name {
                methods!($value);

                $(
                    #[track_caller]
                    pub(crate) fn $method(&self, operand: $operand, ordering: Ordering) -> $value {
                        let [ordering] = site(self.word(), stringify!($method), [ordering]);
                        self.0.$method(operand, ordering)
                    }
                )*
            }

            maybe_const! {
                impl $name {
                    #[track_caller]
                    pub(crate) fn new(value: $value) -> Self {
                        Self(checked::$name::new(value))
                    }
                }
            }

            impl Default for $name {
                #[track_caller]
                fn default() -> Self {
                    Self::new(<$value>::default())
                }
            }
        )*
    };
}

// Only methods in use: no model would run another.
atomics! {
    AtomicBool: bool { swap(bool), }
    AtomicIsize: isize { fetch_sub(isize), }
    AtomicU32: u32 { fetch_add(u32), fetch_sub(u32), swap(u32), }
    AtomicU64: u64 { fetch_add(u64), fetch_and(u64), fetch_max(u64), fetch_or(u64), }
    AtomicUsize: usize { fetch_add(usize), fetch_sub(usize), }
}

#[derive(Debug)]
pub(crate) struct AtomicPtr<T>(checked::AtomicPtr<T>);

#[allow(dead_code, reason = "as above")]
impl<T> AtomicPtr<T> {
    #[cfg(latchwork_loom)]
    #[track_caller]
    pub(crate) fn new(value: *mut T) -> Self {
        Self(checked::AtomicPtr::new(value))
    }

    #[cfg(latchwork_suspend)]
    pub(crate) const fn new(value: *mut T) -> Self {
        Self(checked::AtomicPtr::new(value))
    }

    methods!(*mut T);
}

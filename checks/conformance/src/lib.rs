//! The test suite for lock backends of [`latchwork`]: the contract of
//! [`Backend`](latchwork::backend::Backend), property by property.
//!
//! One line tests a backend of your own, in a test target or in a module of tests:
//!
//! ```
//! # use latchwork::local::Local;
//! # static STORE: std::sync::LazyLock<Local> = std::sync::LazyLock::new(Local::new);
//! latchwork_conformance::suite!(plain: || STORE.clone());
//! ```
//!
//! Each property becomes a `#[test]`, in a module for its kind of lock: `plain::lease_ends_by_itself`. The
//! expression is a [`Store`], evaluated in each test: a closure that makes one more backend over the same
//! store, or a value of your own type, which may also count subscriptions and choose the executor.
//!
//! # By mode
//!
//! | the backend supports | say | properties |
//! |---|---|---|
//! | plain locks | `plain` | the tables of `Backend`; the promises of every lock; those of plain locks |
//! | fair locks | `fair` | the same tables; the promises of every lock; the order of all clients |
//! | read-write locks | `read_write` | the sentences about them in `Backend`; both sides; the write side, as a fair lock |
//! | semaphores | `permits` | the sentences about them in `Backend`; the promises of every semaphore |
//!
//! `suite!(plain fair read_write permits: …)` runs all properties. A test of its own compares the list with
//! [`Backend::supports`](latchwork::backend::Backend::supports), so no mode goes untested by mistake.
//! [`part!`] makes the tests of one part alone; [`properties`] returns the properties as values, to run them
//! under a harness of your own, or over a backend that is broken on purpose.
//!
//! # A failure's message
//!
//! ```text
//! `release_by_another_id_finds_nothing` does not hold for the plain locks of `my::FileLocks`
//!   contract: A release, or a rollback, by an id that does not have the lock is answered by `NotHeld`,
//!             and changes nothing.
//!   seen:     assertion `left == right` failed: expected NotHeld for the release of another id's lease
//!   left: Released { receivers: 0 }
//!  right: NotHeld
//! ```
//!
//! # Clock and faults
//!
//! The clock is that of the backend's own [`Runtime`](latchwork::backend::Runtime), on any executor. With a
//! simulated clock the whole suite takes seconds ([`drive`]). On a real clock the slowest property takes some
//! 15 s, because positions and leases have to expire. A machine that stands still for seconds may fail a
//! property about time.
//!
//! The suite sends each command once and waits for its answer. To test that late, lost or doubled commands do
//! no harm, inject faults into the store's network.

pub mod commands;
mod fair;
mod intercept;
mod leases;
mod lists;
mod lock;
mod permits;
mod probe;
mod property;
mod read_write;
mod read_write_commands;
mod store;
mod tasks;

use latchwork::lock::Mode;

pub use self::intercept::{Intercept, Interceptor};
pub use self::property::{Part, Property, Violation};
pub use self::store::Store;
pub use self::tasks::drive;

/// The properties of a part.
pub fn properties(part: Part) -> Vec<Property> {
    let mut all = Vec::new();
    match part {
        Part::Plain => {
            __lock!(__table (all Mode::Plain));
            __plain!(__table (all Mode::Plain));
        }
        Part::Fair => {
            __lock!(__table (all Mode::Fair));
            __fair!(__table (all Mode::Fair));
        }
        Part::ReadWrite => {
            __read_write_commands!(__table (all Mode::Read));
            __read_write!(__table (all Mode::Read));
            __lock!(__table (all Mode::Write));
            __fair!(__table (all Mode::Write));
        }
        Part::Permits => {
            __permits!(__table (all Mode::Permits));
        }
    }
    all
}

/// Checks one property, as the tests of [`suite!`] do.
///
/// # Panics
///
/// If the property does not hold, with the text of the [`Violation`]; or if no property has this name and
/// mode.
#[doc(hidden)]
#[track_caller]
pub fn check<S: Store>(store: &S, mode: Mode, name: &str) {
    let of = |part: &Part| part.modes().contains(&mode);
    let part = Part::ALL.into_iter().find(of).expect("a mode is of a part");
    let named = |property: &Property| (property.name(), property.mode()) == (name, mode);
    let property = properties(part).into_iter().find(named).expect("the property is in a list");
    if let Err(violation) = property.check(store) {
        panic!("{violation}");
    }
}

/// Checks that a store supports exactly the locks that are tested.
#[doc(hidden)]
#[track_caller]
pub fn check_modes<S: Store>(store: &S, tested: &[Part]) {
    let supports = store.block_on(async {
        let backend = store.connect().await;
        Part::ALL.map(|part| {
            (part, part.modes().iter().all(|mode| latchwork::backend::Backend::supports(&backend, *mode)))
        })
    });
    for (part, supports) in supports {
        assert_eq!(
            supports,
            tested.contains(&part),
            "{part:?}: expected the supported parts to be the tested ones"
        );
    }
}

/// Makes a `#[test]` of each property of the named parts: one or more of `plain`, `fair`, `read_write`,
/// `permits`.
///
/// After the colon comes an expression of a type that implements [`Store`], evaluated in each test. See the
/// [page of the crate](crate).
#[macro_export]
macro_rules! suite {
    ($($part:ident)+ : $store:expr) => {
        $crate::__suite! { $($part)+ : ($store) }

        #[test]
        fn every_supported_mode_is_tested() {
            $crate::check_modes(&$store, &[$($crate::__part!($part)),+]);
        }
    };
}

/// Makes a `#[test]` of each property of one part, `plain`, `fair`, `read_write` or `permits`, in the current
/// module.
#[macro_export]
macro_rules! part {
    (plain: $store:expr) => {
        $crate::__lock! { __tests (($store) Plain) }
        $crate::__plain! { __tests (($store) Plain) }
    };
    (fair: $store:expr) => {
        $crate::__lock! { __tests (($store) Fair) }
        $crate::__fair! { __tests (($store) Fair) }
    };
    (permits: $store:expr) => {
        $crate::__permits! { __tests (($store) Permits) }
    };
    (read_write: $store:expr) => {
        $crate::__read_write_commands! { __tests (($store) Read) }
        $crate::__read_write! { __tests (($store) Read) }

        /// The write side of a read-write lock is a fair lock.
        mod write {
            #[allow(unused_imports, reason = "the store may be named by a path")]
            use super::*;

            $crate::__lock! { __tests (($store) Write) }
            $crate::__fair! { __tests (($store) Write) }
        }
    };
}

#[macro_export]
#[doc(hidden)]
macro_rules! __suite {
    ($($part:ident)+ : $store:tt) => {
        $(
            mod $part {
                #[allow(unused_imports, reason = "the store may be named by a path")]
                use super::*;

                $crate::part! { $part: $store }
            }
        )+
    };
}

#[macro_export]
#[doc(hidden)]
macro_rules! __part {
    (plain) => {
        $crate::Part::Plain
    };
    (fair) => {
        $crate::Part::Fair
    };
    (read_write) => {
        $crate::Part::ReadWrite
    };
    (permits) => {
        $crate::Part::Permits
    };
}

/// Expands a list into tests.
#[macro_export]
#[doc(hidden)]
macro_rules! __tests {
    (($store:tt $mode:ident) $module:ident $($(#[doc = $says:literal])+ $name:ident)+) => {
        $(
            $(#[doc = $says])+
            #[test]
            fn $name() {
                #[allow(unused_parens, reason = "they keep the expression together")]
                let store = $store;
                $crate::check(&store, $crate::__Mode::$mode, stringify!($name));
            }
        )+
    };
}

/// Expands a list into values.
#[macro_export]
#[doc(hidden)]
macro_rules! __table {
    (($all:ident $mode:expr) $module:ident $($(#[doc = $says:literal])+ $name:ident)+) => {
        $all.extend([$(Property {
            name: stringify!($name),
            mode: $mode,
            says: &[$($says),+],
            run: |subject| Box::pin($module::$name(subject)),
        }),+]);
    };
}

#[doc(hidden)]
pub use latchwork::lock::Mode as __Mode;

//! Shared code of the models. The README beside this crate has the table of models and the commands to run
//! them.
//!
//! This package is part of the workspace, and empty without `--cfg latchwork_loom`.
#![cfg(latchwork_loom)]

pub mod broken;

use std::env;
use std::pin::Pin;
use std::process::Command;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use latchwork::AsyncSemaphore;
use latchwork::fault;
pub use latchwork::fault::Fault;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread::JoinHandle;

/// Polls once. For models that end in *join, then assert*: `block_on` costs a hundred times more.
pub fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// True if the future is ready; drops its output.
pub fn is_ready<F: Future + Unpin>(future: &mut F) -> bool {
    poll_once(future).is_ready()
}

/// Runs `body` on a thread of the model.
pub fn spawn<T: 'static>(
    semaphore: &Arc<AsyncSemaphore>,
    body: impl FnOnce(&AsyncSemaphore) -> T + 'static,
) -> JoinHandle<T> {
    let semaphore = Arc::clone(semaphore);
    start(move || body(&semaphore))
}

/// Runs `body` on a thread of the model, without a semaphore.
///
/// Both threads begin with a step on one atomic, which makes loom run each of them first. loom by itself only
/// backtracks to conflicting steps, and for a write considers the last access alone: a thread that loads a
/// word before writing hides from loom that another has read the word before. In the executions where the
/// other thread reads later, loom sees the conflict.
pub fn start<T: 'static>(body: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    let line = Arc::new(AtomicUsize::new(0));
    let other = Arc::clone(&line);
    let thread = loom::thread::spawn(move || {
        // Ordering: Relaxed, the model's own step, which must not order anything.
        other.swap(1, Ordering::Relaxed);
        body()
    });
    // Ordering: as above.
    line.swap(2, Ordering::Relaxed);
    thread
}

/// A model, perhaps with fewer preemptions, and its mutants: each a fault, and a part of the failure.
#[macro_export]
macro_rules! model {
    ($(#[$doc:meta])* $name:ident $body:block $($mutants:tt)*) => {
        $crate::model! { $(#[$doc])* $name with 0 less $body $($mutants)* }
    };
    (
        $(#[$doc:meta])* $name:ident with $less:literal less $body:block
        $($mutant:ident: $fault:ident, $expected:literal;)*
    ) => {
        $(#[$doc])*
        mod $name {
            use super::*;

            fn model() {
                $crate::model_with_less($less, || $body);
            }

            #[test]
            fn holds() {
                model();
            }

            $(
                #[test]
                fn $mutant() {
                    let test = concat!(stringify!($name), "::", stringify!($mutant));
                    $crate::must_fail(test, $crate::Fault::$fault, $expected, model);
                }
            )*
        }
    };
}

/// Runs a model with `less` preemptions fewer than the bound, but at least one: for long models.
pub fn model_with_less(less: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.map(|bound| bound.saturating_sub(less).max(1));
    builder.check(move || {
        fault::begin_execution();
        body();
    });
}

/// Runs a model with a fault seeded into the real code, and checks that it fails with `expected` in its
/// output.
///
/// In a process of its own, because a failing model may abort the process: loom cannot always unwind.
pub fn must_fail(test: &str, seeded: Fault, expected: &str, model: impl Fn()) {
    const MUTANT: &str = "LATCHWORK_MUTANT";
    if env::var(MUTANT).is_ok_and(|mutant| mutant == test) {
        fault::seed(seeded);
        return model();
    }
    let mutant = Command::new(env::current_exe().expect("a test has a path"))
        .args([test, "--exact", "--nocapture"])
        .env(MUTANT, test)
        .output()
        .expect("a test can be run again");
    let said = String::from_utf8_lossy(&mutant.stderr);
    assert!(!mutant.status.success(), "{seeded:?} was not found: this model cannot fail");
    assert!(said.contains(expected), "{seeded:?} was found, but not by {expected:?}:\n{said}");
}

//! The published loop loses a wake-up, and the model checker finds it: the tool can fail.
#![cfg(latchwork_loom)]

use std::sync::Arc;

use loom::thread;
use loom_tests::broken::try_run::{Fault, Published};

/// One permit; its holder releases while a newcomer joins.
fn release_vs_acquire(fault: Fault) {
    loom::model(move || {
        let semaphore = Arc::new(Published::new(1, fault));
        semaphore.acquire();
        let newcomer = {
            let semaphore = Arc::clone(&semaphore);
            thread::spawn(move || semaphore.acquire())
        };
        semaphore.release();
        newcomer.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn published_loop_loses_a_wake_up() {
    release_vs_acquire(Fault::NoSecondLook);
}

#[test]
fn repaired_loop_does_not() {
    release_vs_acquire(Fault::None);
}

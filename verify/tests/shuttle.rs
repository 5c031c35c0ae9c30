//! Models that are too large for loom: thousands of random schedules of random scripts, and of turns at one
//! permit.
//!
//! Each ends with a count of permits, waiters and wakers; for each line that the answer hangs on there is a
//! mutant that must fail.
#![cfg(latchwork_shuttle)]

use std::env;
use std::process::Command;
use std::sync::Arc;

use fastrand::Rng;
use latchwork::AsyncSemaphore;
use latchwork::fault::{self, Fault};
use shuttle::future::block_on;
use shuttle::rand::RngCore;
use shuttle::scheduler::{PctScheduler, Scheduler, UrwRandomScheduler};
use shuttle::{Config, Runner, thread};
use verify::timed::{Part, Timed};
use verify::{MIXES, Round, seeded};

/// How many schedules of either kind each model runs under.
const ITERATIONS: &str = "SHUTTLE_ITERATIONS";

/// PCT is good at bugs that take so many events in one certain order.
const DEPTH: usize = 3;

/// Runs a model under schedules of either kind: few preemptions where they matter, and all interleavings
/// alike.
fn explore(model: fn()) {
    seeded::from_environment();
    let iterations = env::var(ITERATIONS).unwrap_or_else(|_| "2000".to_owned());
    let iterations = iterations.parse().expect("a number of iterations");
    explore_with(PctScheduler::new(DEPTH, iterations), model);
    explore_with(UrwRandomScheduler::new(iterations), model);
}

fn explore_with(scheduler: impl Scheduler + 'static, model: fn()) {
    let mut config = Config::new();
    // That every atomic is sequentially consistent here.
    config.silence_warnings = true;
    // AddressSanitizer puts room around everything on the stack.
    config.stack_size = 256 * 1024;
    Runner::new(scheduler, config).run(move || {
        fault::begin_execution();
        model();
    });
}

/// A round of one of the mixes.
fn round(mix: &str) {
    let mix = MIXES.iter().find(|of_all| of_all.name == mix).expect("there is such a mix");
    let mut rng = Rng::with_seed(shuttle::rand::thread_rng().next_u64());
    let (round, hands) = Round::new(mix, mix.threads, &mut rng);
    let play = |mut hand: verify::Hand| {
        thread::spawn(move || {
            hand.play();
            fault::end_thread();
            hand
        })
    };
    let threads: Vec<_> = hands.into_iter().map(play).collect();
    let hands = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    if let Err(wrong) = round.count(hands) {
        panic!("{wrong}");
    }
}

/// A round of which each call is timed.
fn histories() {
    let mut rng = Rng::with_seed(shuttle::rand::thread_rng().next_u64());
    let (timed, parts) = Timed::new(&mut rng);
    // std's, which is no step of the model.
    let clock = Arc::new(std::sync::atomic::AtomicU64::new(1));
    let play = |mut part: Part| {
        let clock = Arc::clone(&clock);
        thread::spawn(move || {
            // Ordering: Relaxed, on one real thread.
            part.play(&|| clock.fetch_add(1, std::sync::atomic::Ordering::Relaxed));
            fault::end_thread();
            part
        })
    };
    let threads: Vec<_> = parts.into_iter().map(play).collect();
    if let Err(wrong) = timed.judge(threads.into_iter().map(|thread| thread.join().unwrap()).collect()) {
        panic!("{wrong}");
    }
}

/// Two permits, four threads, four turns each: none sleeps for ever, and no more than two are inside.
fn turns() {
    const PERMITS: usize = 2;
    let semaphore = Arc::new(AsyncSemaphore::new(PERMITS));
    let inside = Arc::new(shuttle::sync::atomic::AtomicUsize::new(0));
    let take_turns = |thread: usize| {
        let (semaphore, inside) = (Arc::clone(&semaphore), Arc::clone(&inside));
        thread::spawn(move || {
            for turn in 0..4 {
                let weight = 1 + (thread + turn) % PERMITS;
                let permit = block_on(semaphore.acquire_weight(weight)).unwrap();
                // Ordering: they are all SeqCst here.
                let before = inside.fetch_add(weight, std::sync::atomic::Ordering::SeqCst);
                assert!(before + weight <= PERMITS, "too many inside");
                // Ordering: as above.
                inside.fetch_sub(weight, std::sync::atomic::Ordering::SeqCst);
                drop(permit);
            }
        })
    };
    for thread in [0, 1, 2, 3].map(take_turns) {
        thread.join().unwrap();
    }
    assert_eq!(semaphore.available_permits(), PERMITS);
}

/// Sees to it that a model fails with a fault seeded into the real code, saying `expected`. In a process of
/// its own, which is the test `holds` run once more.
fn must_fail(model: &str, seeded: Fault, expected: &str) {
    let mutant = Command::new(env::current_exe().expect("a test has a path"))
        .args([&format!("{model}::holds"), "--exact", "--nocapture"])
        .env(seeded::VARIABLE, format!("{seeded:?}"))
        // It ends with the first failure.
        .env(ITERATIONS, "200000")
        .output()
        .expect("a test can be run again");
    let said = String::from_utf8_lossy(&mutant.stderr);
    assert!(!mutant.status.success(), "{seeded:?} was not found: this model cannot fail");
    assert!(said.contains(expected), "{seeded:?} was found, but not by {expected:?}:\n{said}");
}

/// A model, and its mutants: which fault, and what the failure says.
macro_rules! model {
    ($name:ident, $model:expr; $($mutant:ident: $fault:ident, $expected:literal;)*) => {
        mod $name {
            use super::*;

            #[test]
            fn holds() {
                explore(|| $model);
            }

            $(
                #[test]
                fn $mutant() {
                    must_fail(stringify!($name), Fault::$fault, $expected);
                }
            )*
        }
    };
}

model! {
    release_vs_acquire, round("release_vs_acquire");
    fails_if_the_waiter_is_not_woken: GrantedNotWoken, "waker";
    fails_without_the_look: NoLook, "asleep";
}

model! {
    nobody_is_overtaken, round("nobody_is_overtaken");
    fails_without_the_look: NoLook, "asleep";
}

model! {
    wakers_change, round("wakers_change");
    fails_if_published_without_a_look: PublishWithoutLook, "permit";
}

model! {
    acquire_cancel_release, round("acquire_cancel_release");
    fails_without_the_look: NoLook, "asleep";
    fails_if_the_grant_dies_with_the_waiter: GrantDiesWithWaiter, "permits are free";
    fails_if_a_waker_outlives_its_wait: WakerOutlivesWait, "copies of wakers";
}

model! {
    set_capacity, round("set_capacity");
    fails_if_only_free_permits_are_taken_out: OnlyFreeReduced, "permits are free";
    fails_if_the_deficit_dies_with_the_waiter: DeficitDiesWithWaiter, "permits are free";
}

model! {
    close, round("close");
    fails_if_the_waiter_is_not_woken: GrantedNotWoken, "waker";
}

model! {
    // Its mutants need AddressSanitizer; `cargo xtask verify asan` runs them.
    many_give_up, round("many_give_up");
}

model! {
    histories, histories();
    fails_without_the_look: NoLook, "no order";
    fails_if_tries_do_not_settle: TryWithoutSettle, "no order";
    fails_if_the_credit_is_read_first: CreditReadBeforeEnd, "no order";
    fails_if_what_is_free_is_read_once: FreeReadOnce, "no order";
}

model! {
    turns, turns();
    fails_if_the_waiter_is_not_woken: GrantedNotWoken, "deadlock";
    fails_without_the_look: NoLook, "deadlock";
}

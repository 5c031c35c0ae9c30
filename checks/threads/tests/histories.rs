//! A sequential semaphore explains the calls of real threads. A part of `cargo xtask verify stress`.

#![cfg(not(latchwork_loom))]

#[test]
fn answers_of_three_threads_are_those_of_a_sequential_semaphore() {
    let mut rng = fastrand::Rng::new();
    for _ in 0..4 {
        if let Err(wrong) = threads::timed::batch(128, &mut rng) {
            panic!("{wrong}");
        }
    }
}

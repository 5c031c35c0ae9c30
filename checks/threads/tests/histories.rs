//! What real threads ask a semaphore, and are answered, is explained by a sequential one. A small part of
//! what `cargo xtask verify stress` does.

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

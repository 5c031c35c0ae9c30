//! Random scripts of one thread on `AsyncSemaphore` and on its specification (`fuzz/model`). After each
//! operation the answers, permits, wake-ups and kept wakers are compared, and a difference is shrunk. So the
//! other tests are about the rest: wakers that run code, threads, drains, panics and the largest numbers.

#[path = "../../fuzz/model/mod.rs"]
#[rustfmt::skip] // Formatted as the package `fuzz` is.
mod model;

use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

#[test]
fn semaphore_does_what_its_specification_does() {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[1; 32]);
    let config = Config { cases: 10_000, failure_persistence: None, ..Config::default() };
    let script = (any::<u8>(), proptest::collection::vec(any::<[u8; 4]>(), 0..60));
    let ran = TestRunner::new_with_rng(config, rng).run(&script, |(permits, ops)| {
        model::run(&model::Script::decode(permits, &ops));
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{error}"));
}

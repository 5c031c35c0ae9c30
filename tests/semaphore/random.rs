//! `AsyncSemaphore` does what a sequential model does, whatever is done with it on one thread.
//!
//! `PROPTEST_CASES` says how many scripts are tried. `fuzz/` looks further, by the same scripts.

use crate::model::{Script, run};
use proptest::array::uniform4;
use proptest::collection::vec;
use proptest::prelude::*;

fn script() -> impl Strategy<Value = Script> {
    (any::<u8>(), vec(uniform4(any::<u8>()), 0..200)).prop_map(|(permits, ops)| Script::decode(permits, &ops))
}

proptest! {
    // The shortest script that fails is printed; a file of seeds beside this one would say less.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn semaphore_does_what_the_model_does(script in script()) {
        run(&script);
    }
}

//! Looks for scripts on which `AsyncSemaphore` and its model differ, guided towards unreached code.

#![no_main]

#[path = "../model/mod.rs"]
mod model;

use libfuzzer_sys::arbitrary::{Arbitrary, Result, Unstructured};
use libfuzzer_sys::fuzz_target;
use model::{Script, run};

impl<'a> Arbitrary<'a> for Script {
    // Not derived: derived code takes lengths from the end and integers of many bytes; a further byte in the
    // middle would change all later operations. It would also need its own copy of their frequencies.
    fn arbitrary(bytes: &mut Unstructured<'a>) -> Result<Self> {
        Self::arbitrary_take_rest(Unstructured::new(bytes.bytes(bytes.len())?))
    }

    fn arbitrary_take_rest(bytes: Unstructured<'a>) -> Result<Self> {
        let (permits, ops) = bytes.take_rest().split_first().unwrap_or((&0, &[]));
        Ok(Self::decode(*permits, ops.as_chunks().0))
    }
}

fuzz_target!(|script: Script| run(&script));

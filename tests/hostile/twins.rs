//! Mutants of the targets, each with one defect that the driver has to find; else its silence proves nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::driver::attack;
use super::names;

fn must_find(target: &str, words: &[&str], twin: impl Fn(&[u8])) {
    let found = catch_unwind(AssertUnwindSafe(|| attack(target, words, twin))).is_err();
    assert!(found, "expected the seeded fault to be found in {target}");
}

#[test]
fn twin_that_closes_what_was_not_opened() {
    must_find("names", &names::WORDS, |input| {
        let opened = |open: usize, byte: &u8| match byte {
            b'{' => open + 1,
            b'}' => open - 1,
            _ => open,
        };
        let _ = input.iter().fold(0, opened);
    });
}

#[test]
fn twin_that_cuts_a_letter_in_two() {
    must_find("names", &names::WORDS, |input| {
        let text = String::from_utf8_lossy(input);
        let _ = &text[..text.len().min(512)];
    });
}

#[test]
fn twin_that_takes_any_digits_for_a_number() {
    must_find("ids", &[":18446744073709551616", ":1"], |input| {
        let text = String::from_utf8_lossy(input);
        let number = text.split(':').nth(1).unwrap_or_default();
        if !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()) {
            number.parse::<u64>().unwrap();
        }
    });
}

#[test]
fn twin_that_takes_a_nonce_to_be_as_long_as_its_own() {
    must_find("messages", &["granted:", ":"], |input| {
        if let Some(rest) = input.strip_prefix(b"granted:") {
            let at = rest.iter().position(|byte| *byte == b':').unwrap_or(rest.len());
            let _ = rest.get(at + 1..).map(|nonce| &nonce[..16]);
        }
    });
}

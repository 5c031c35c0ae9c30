use latchwork::lock::LockName;
use latchwork::{LockClient, NameError};

use super::driver::attack;

pub(crate) const WORDS: [&str; 16] = [
    "{",
    "}",
    "{}",
    "{42}",
    ":",
    "latchwork_",
    ":latchwork:",
    "redisson_lock_token",
    "redisson_lock_queue",
    "redisson_lock_timeout",
    "redisson_lock__channel",
    "redisson_rwlock",
    "redisson_unlock_latch",
    ":rwlock_timeout",
    "ö",
    "\0",
];

/// True if braces are balanced: only pairs, removed one by one.
fn is_balanced(name: &str) -> bool {
    let mut braces: String = name.chars().filter(|letter| "{}".contains(*letter)).collect();
    while braces.contains("{}") {
        braces = braces.replace("{}", "");
    }
    braces.is_empty()
}

/// A second implementation of the rules documented at `LockName`.
fn is_reserved(name: &str) -> bool {
    let redissons = WORDS.iter().filter(|word| word.starts_with("redisson_"));
    let is_redissons = redissons.into_iter().any(|key| name == *key || name.starts_with(&format!("{key}:")));
    is_redissons
        || name.starts_with("latchwork_")
        || name.contains(":latchwork:")
        || name.contains(":rwlock_timeout")
}

#[test]
fn hostile_texts_are_names_or_break_a_rule() {
    let client = LockClient::local();
    attack("names", &WORDS, |input| {
        let text = String::from_utf8_lossy(input);
        let name = LockName::new(&text);
        match &name {
            Ok(name) => {
                assert_eq!((name.as_str(), name.to_string()), (&*text, text.to_string()));
                assert!((1..=LockName::MAX_BYTES).contains(&text.len()));
                assert!(is_balanced(&text) && !is_reserved(&text));
            }
            Err(NameError::Empty) => assert!(text.is_empty()),
            Err(NameError::TooLong { bytes }) => {
                assert!(*bytes == text.len() && *bytes > LockName::MAX_BYTES);
            }
            Err(NameError::UnbalancedBraces) => assert!(!is_balanced(&text)),
            Err(NameError::Reserved { part }) => assert!(is_reserved(&text) && text.contains(part)),
            Err(other) => panic!("{other:?} of a name"),
        }
        assert_eq!(client.get_lock(&text).is_ok(), name.is_ok());
    });
}

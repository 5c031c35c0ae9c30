//! Errors of the Redis backend, as a user reads them.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fmt::Debug;

use latchwork::LockError;
use latchwork::redis::Error;

pub(crate) const PASSWORD: &str = "hunter2";

/// The whole text of an error, causes and `Debug` included. Asserts that no password is in the text.
#[track_caller]
pub(crate) fn text(error: &(dyn std::error::Error + 'static)) -> String {
    let (mut text, mut next) = (String::new(), Some(error));
    while let Some(error) = next {
        text += &format!("{error}\n{error:?}\n");
        next = error.source();
    }
    assert!(!text.contains(PASSWORD), "{text}");
    text
}

/// Asserts that no password is in the `Debug` text.
#[track_caller]
pub(crate) fn assert_silent(value: &(impl Debug + ?Sized)) {
    assert!(!format!("{value:?} {value:#?}").contains(PASSWORD), "{value:?}");
}

#[track_caller]
pub(crate) fn cause(error: &LockError) -> &Error {
    let source = error.backend_error().and_then(|error| error.downcast_ref());
    source.unwrap_or_else(|| panic!("not an error of the backend: {error:?}"))
}

//! Compiler flags in addition to the caller's.

use std::env::{self, VarError};

use anyhow::{Context, Result};

/// The caller's compiler flags and `more`, with the name of the variable for both.
///
/// Cargo reads only the first of the two variables. Flags in the other would be ignored, and without flags
/// there are no models: the run would be green and empty.
pub(crate) fn with(more: &[&str]) -> Result<(&'static str, String)> {
    for (variable, separator) in [("CARGO_ENCODED_RUSTFLAGS", "\x1f"), ("RUSTFLAGS", " ")] {
        let flags = match env::var(variable) {
            Ok(flags) => flags,
            Err(VarError::NotPresent) => continue,
            Err(error) => return Err(error).with_context(|| format!("cannot add to {variable}")),
        };
        let all = [&[flags.as_str()], more].concat().join(separator);
        return Ok((variable, all.trim_start_matches(separator).to_owned()));
    }
    Ok(("RUSTFLAGS", more.join(" ")))
}

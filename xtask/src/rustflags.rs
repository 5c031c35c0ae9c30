//! Compiler flags on top of our caller's.

use std::env::{self, VarError};

use anyhow::{Context, Result};

/// The compiler flags of our caller and `more`, with the variable to pass them in.
///
/// Cargo reads only the first of the two variables that is set. The flags in the other one would not arrive,
/// and without them there are no models: the run would be green and empty.
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

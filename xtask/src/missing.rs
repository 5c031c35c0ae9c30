//! [`Missing`]: a task or a part of one cannot be done here.

use std::fmt;

/// What is needed and is not installed by us. The process ends with 2.
#[derive(Debug)]
pub(crate) struct Missing(pub(crate) &'static str);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Missing {}

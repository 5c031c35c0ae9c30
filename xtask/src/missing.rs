//! [`Missing`]: a task, or a part of a task, cannot run here.

use std::fmt;

/// A needed program, not installed by xtask. The process exits with 2.
#[derive(Debug)]
pub(crate) struct Missing(pub(crate) &'static str);

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Missing {}

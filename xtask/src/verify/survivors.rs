//! A list of mutants that no check kills, each with a reason.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Names, and true if the name was looked up.
pub(super) struct Survivors(BTreeMap<String, bool>);

impl Survivors {
    /// Each name is on a line of its own, with the reason indented below; `#` begins a comment.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        let mut names = BTreeMap::new();
        let mut without_reason = Vec::new();
        for line in text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')) {
            if line.starts_with(' ') {
                without_reason.clear();
            } else {
                without_reason.push(line);
                names.insert(line.to_owned(), false);
            }
        }
        if !without_reason.is_empty() {
            bail!("{}: no reason for {}", path.display(), without_reason.join(", "));
        }
        Ok(Self(names))
    }

    pub(super) fn explain(&mut self, name: &str) -> bool {
        self.0.get_mut(name).map(|asked| *asked = true).is_some()
    }

    pub(super) fn unused(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, asked)| !**asked).map(|(name, _)| name.as_str())
    }
}

//! A list of mutants that nothing kills, with a reason each.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// Names, and whether they were asked for.
pub(super) struct Survivors(BTreeMap<String, bool>);

impl Survivors {
    /// A name on a line of its own, in which `*` stands for any text, and indented below it the reason; `#`
    /// begins a comment.
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
        if let Some(asked) = self.0.get_mut(name) {
            *asked = true;
            return true;
        }
        let mut found = self.0.iter_mut().filter(|(pattern, _)| matches(pattern, name));
        found.next().map(|(_, asked)| *asked = true).is_some()
    }

    pub(super) fn unused(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, asked)| !**asked).map(|(name, _)| name.as_str())
    }
}

/// Whether `name` is `pattern`, with any text for each `*`, of which there is one in each pattern at least.
fn matches(pattern: &str, name: &str) -> bool {
    let Some((begin, rest)) = pattern.split_once('*') else { return false };
    let Some(mut name) = name.strip_prefix(begin) else { return false };
    let mut parts: Vec<_> = rest.split('*').collect();
    let end = parts.pop().unwrap_or_default();
    for part in parts {
        let Some(at) = name.find(part) else { return false };
        name = &name[at + part.len()..];
    }
    name.ends_with(end)
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn star_in_a_name_stands_for_any_text() {
        let name = "src/lock/a.rs A::b: due <= now: <= -> < #2";
        for pattern in ["src/lock*: <= -> <*", "*", "src/lock/a.rs*#2", "src/*A::b*now*<= -> < #2"] {
            assert!(matches(pattern, name), "{pattern}");
        }
        for pattern in [name, "src/lock*: <= -> <", "src/local*", "src/lock*now*now*", "*: < -> <=*"] {
            assert!(!matches(pattern, name), "{pattern}");
        }
    }
}

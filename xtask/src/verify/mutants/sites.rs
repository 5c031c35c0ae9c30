//! Places of the sources with an atomic.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};

/// A call with an ordering.
#[derive(Clone, Debug)]
pub(super) struct Site {
    /// `FILE:LINE:COLUMN` of the method's name.
    pub(super) location: String,
    /// `FILE FUNCTION RECEIVER.METHOD`, which is stable when lines move, and a number if there are several.
    pub(super) name: String,
    method: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessKind {
    Load,
    Store,
    ReadModifyWrite,
}

impl Site {
    pub(super) fn kind(&self) -> AccessKind {
        match self.method.as_str() {
            "load" => AccessKind::Load,
            "store" => AccessKind::Store,
            _ => AccessKind::ReadModifyWrite,
        }
    }
}

pub(super) fn in_sources(root: &Path, folder: &str) -> Result<Vec<Site>> {
    let mut entries = fs::read_dir(root.join(folder))?
        .map(|entry| entry?.file_name().into_string().ok().context("a file's name is no text"))
        .collect::<Result<Vec<_>>>()?;
    entries.sort();
    let mut sites = Vec::new();
    for entry in entries {
        let path = format!("{folder}/{entry}");
        if entry.ends_with(".rs") {
            in_text(&path, &fs::read_to_string(root.join(&path))?, &mut sites);
        } else {
            sites.extend(in_sources(root, &path)?);
        }
    }
    Ok(sites)
}

fn in_text(path: &str, text: &str, sites: &mut Vec<Site>) {
    let mut function = "";
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    // No model runs the unit tests at a file's end.
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    for (index, line) in lines.iter().enumerate() {
        if let Some((before, after)) = line.split_once("fn ")
            && (before.trim().is_empty()
                || ["pub", "const", "unsafe"].iter().any(|word| before.trim().starts_with(word)))
        {
            function = after.split(['(', '<']).next().unwrap_or_default();
        }
        for (column, _) in line.match_indices('.') {
            let call = &line[column + 1..];
            let method: String = call.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !call[method.len()..].starts_with('(')
                || !names_ordering(&call[method.len()..], &lines[index + 1..])
            {
                continue;
            }
            let receiver: String = line[..column]
                .chars()
                .rev()
                .take_while(|c| c.is_alphanumeric() || "_.".contains(*c))
                .collect();
            let receiver: String = receiver.chars().rev().collect();
            let mut name = format!("{path} {function} {receiver}.{method}");
            let number = names.entry(name.clone()).or_default();
            *number += 1;
            if *number > 1 {
                name += &format!(" #{number}");
            }
            sites.push(Site { location: format!("{path}:{}:{}", index + 1, column + 2), name, method });
        }
    }
}

/// True if the arguments of a call that begins with `(` contain an ordering, not counting nested calls.
fn names_ordering(call: &str, more: &[&str]) -> bool {
    let mut depth = 0_usize;
    let mut arguments = String::new();
    for line in std::iter::once(&call).chain(more) {
        for c in line.chars() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ if depth == 1 => arguments.push(c),
                _ => {}
            }
            if depth == 0 {
                return arguments.contains("Ordering::");
            }
        }
    }
    false
}

/// For each place: its orderings in the models' runs, and the numbers and durations of those models.
#[derive(Debug, Default)]
pub(super) struct Executed(BTreeMap<String, (Vec<String>, BTreeMap<usize, Duration>)>);

impl Executed {
    /// Adds the output of `src/support/sync/loom/sites.rs`.
    pub(super) fn add(&mut self, model: usize, took: Duration, lines: &str) -> Result<()> {
        for line in lines.lines() {
            let mut words = line.split_whitespace();
            let (location, _method) = words.next().zip(words.next()).context("a line without a place")?;
            let (orderings, by) = self.0.entry(location.to_owned()).or_default();
            *orderings = words.map(str::to_owned).collect();
            by.insert(model, took);
        }
        Ok(())
    }

    pub(super) fn at(&self, location: &str) -> Option<(&[String], &BTreeMap<usize, Duration>)> {
        self.0.get(location).map(|(orderings, by)| (orderings.as_slice(), by))
    }
}

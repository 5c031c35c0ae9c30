//! Finds mutants that the compiler rejects.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use cargo_metadata::Message;
use cargo_metadata::diagnostic::{Diagnostic, DiagnosticLevel, DiagnosticSpan};

use crate::weave::Places;

/// The library as built for tests, and for the simulator.
const BUILDS: [(&str, &[&str]); 2] = [
    ("--cap-lints=allow", &["--profile=test", "--lib", "--features=cluster,sentinel,stream,tls,tracing"]),
    ("--cap-lints=allow --cfg latchwork_simulation", &["--release", "--lib", "--features=local,redis"]),
];

pub(crate) fn rejected(root: &Path, woven: &BTreeMap<String, Places>) -> Result<BTreeSet<u32>> {
    let mut rejected = BTreeSet::new();
    for (flags, arguments) in BUILDS {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["check", "--quiet", "--message-format=json", "--package=latchwork"])
            .args(arguments)
            .arg("--target-dir")
            .arg(root.join("target/checked"))
            .env("RUSTFLAGS", flags)
            .current_dir(root)
            .stdout(Stdio::piped())
            .spawn()?;
        let mut unexplained = None;
        for message in Message::parse_stream(BufReader::new(cargo.stdout.take().context("it is piped")?)) {
            let Message::CompilerMessage(message) = message? else { continue };
            let error = message.message;
            // The final message only counts errors.
            if error.level != DiagnosticLevel::Error || error.spans.is_empty() {
                continue;
            }
            let found = mutants(&error, woven);
            if found.is_empty() {
                unexplained = error.rendered;
            }
            rejected.extend(found);
        }
        let is_built = cargo.wait()?.success();
        ensure!(
            is_built || !rejected.is_empty(),
            "no mutant is the reason:\n{}",
            unexplained.unwrap_or_default()
        );
    }
    Ok(rejected)
}

/// Returns the innermost mutant around a place of the error, or else of the error's notes. Without such a
/// mutant, returns the mutants between the error's places, for example a `return` that kept a moved value
/// from use, or else the last mutant before.
fn mutants(error: &Diagnostic, woven: &BTreeMap<String, Places>) -> Vec<u32> {
    let mut spans: Vec<_> = error.spans.iter().collect();
    spans.sort_by_key(|span| !span.is_primary);
    let file = &spans[0].file_name;
    let spans: Vec<_> = spans.iter().filter(|span| span.file_name == *file).collect();
    let Some(places) = woven.get(file) else { return Vec::new() };
    let range = |span: &DiagnosticSpan| (span.byte_start as usize, span.byte_end as usize);
    let bytes = spans.iter().map(|span| range(span));
    let notes = error.children.iter().flat_map(|note| &note.spans).filter(|span| span.file_name == *file);
    let around = bytes.clone().chain(notes.map(range)).find_map(|(begin, end)| {
        let around = places.iter().filter(|(place, _)| place.start <= begin && end <= place.end);
        around.min_by_key(|(place, _)| place.len())
    });
    let first = bytes.clone().map(|(begin, _)| begin).min().unwrap_or_default();
    let last = bytes.map(|(_, end)| end).max().unwrap_or_default();
    let between = places.iter().filter(|(place, _)| first <= place.start && place.end <= last);
    let before = places.iter().filter(|(place, _)| place.end <= first).max_by_key(|(place, _)| place.end);
    let mut found: Vec<_> = around.into_iter().collect();
    if found.is_empty() {
        found.extend(between);
    }
    if found.is_empty() {
        found.extend(before);
    }
    found.into_iter().map(|(_, number)| *number).collect()
}

//! What the compiler does not take.

use std::collections::{BTreeMap, BTreeSet};
use std::io::BufReader;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use cargo_metadata::Message;
use cargo_metadata::diagnostic::{Diagnostic, DiagnosticLevel};

use crate::weave::Places;

/// The library as tests have it, and as the simulator has it.
const BUILDS: [(&str, &[&str]); 2] = [
    ("--cap-lints=allow", &["--profile=test", "--lib", "--features=cluster,sentinel,stream,tls,tracing"]),
    ("--cap-lints=allow --cfg latchwork_simulation", &["--release", "--lib", "--features=local,redis"]),
];

/// The mutants that have errors, or lie around some.
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
            // The last one only counts the others.
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

/// The innermost mutant around the error. If there is none, those between the places that it names, such as a
/// `return` without which a value is used after it was moved, or else the last one before them.
fn mutants(error: &Diagnostic, woven: &BTreeMap<String, Places>) -> Vec<u32> {
    let Some(primary) = error.spans.iter().find(|span| span.is_primary) else { return Vec::new() };
    let Some(places) = woven.get(&primary.file_name) else { return Vec::new() };
    let spans = || error.spans.iter().filter(|span| span.file_name == primary.file_name);
    let (begin, end) = (primary.byte_start as usize, primary.byte_end as usize);
    let around = places.iter().filter(|(place, _)| place.start <= begin && end <= place.end);
    if let Some((_, number)) = around.min_by_key(|(place, _)| place.len()) {
        return vec![*number];
    }
    let first = spans().map(|span| span.byte_start as usize).min().unwrap_or_default();
    let last = spans().map(|span| span.byte_end as usize).max().unwrap_or_default();
    let between = places.iter().filter(|(place, _)| first <= place.start && place.end <= last);
    let between: Vec<u32> = between.map(|(_, number)| *number).collect();
    if !between.is_empty() {
        return between;
    }
    let before = places.iter().filter(|(place, _)| place.end <= first).max_by_key(|(place, _)| place.end);
    before.map(|(_, number)| *number).into_iter().collect()
}

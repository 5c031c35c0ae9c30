//! Selects the mutant of this process; only used in the copy (`checks/mutants`).

use std::collections::HashMap;
use std::env;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Variable with the number of the selected mutant.
const MUTATION: &str = "LATCHWORK_MUTATION";
/// Variable with a file for the numbers of all mutants that this process reaches.
const REACHED: &str = "LATCHWORK_REACHED";

/// Replacements in scripts.
const SCRIPTS: &[(u32, &str)] = &[/* scripts */];

/// Limit above the number of mutants.
const MOST: usize = 1 << 16;

/// Mutants reached so far. Without a mutex, which another thread may hold when this process forks.
static REACHED_BEFORE: [AtomicBool; MOST] = [const { AtomicBool::new(false) }; MOST];

struct Process {
    mutation: u32,
    reached: Option<File>,
    /// Mutants of scripts, by the text that goes to the server.
    scripts: Mutex<HashMap<String, Vec<u32>>>,
}

fn process() -> &'static Process {
    static PROCESS: OnceLock<Process> = OnceLock::new();
    PROCESS.get_or_init(|| Process {
        mutation: env::var(MUTATION).map_or(0, |number| number.parse().expect("a number")),
        reached: env::var(REACHED)
            .ok()
            .map(|path| OpenOptions::new().create(true).append(true).open(path).expect("a file")),
        scripts: Mutex::default(),
    })
}

/// True if the mutant of this number is selected. Records that the process has reached the mutant.
pub fn on(number: u32) -> bool {
    let process = process();
    // Ordering: Relaxed, each flag is only counted.
    if let Some(mut file) = process.reached.as_ref()
        && !REACHED_BEFORE[number as usize].swap(true, Ordering::Relaxed)
    {
        // One write, since other processes append to the same file.
        file.write_all(format!("{number}\n").as_bytes()).expect("a file");
    }
    process.mutation == number
}

/// Removes the marks of mutants from a script: `\u{2}NUMBER:` before, and `\u{3}NUMBER:` behind each. Applies
/// the selected mutant.
pub(crate) fn script(text: &str) -> String {
    let process = process();
    let (mut clean, mut numbers, mut is_left_out) = (String::new(), Vec::new(), false);
    let mut rest = text;
    while let Some(at) = rest.find(['\u{2}', '\u{3}']) {
        if !is_left_out {
            clean += &rest[..at];
        }
        let (number, after) = rest[at + 1..].split_once(':').expect("a mark");
        let number: u32 = number.parse().expect("a number");
        if rest[at..].starts_with('\u{2}') {
            numbers.push(number);
        }
        if number == process.mutation {
            is_left_out = rest[at..].starts_with('\u{2}');
            if is_left_out {
                clean += SCRIPTS.iter().find(|(script, _)| *script == number).expect("its text").1;
            }
        }
        rest = after;
    }
    clean += rest;
    process.scripts.lock().unwrap_or_else(PoisonError::into_inner).insert(clean.clone(), numbers);
    clean
}

/// Records that a call of a script has reached all of its mutants.
pub(crate) fn called(text: &str) {
    let scripts = process().scripts.lock().unwrap_or_else(PoisonError::into_inner);
    if process().reached.is_some() {
        scripts[text].iter().for_each(|number| drop(on(*number)));
    }
}

/// Combines `script` and `called`, for tests that send scripts themselves.
pub fn script_called(text: &str) -> String {
    let text = script(text);
    called(&text);
    text
}

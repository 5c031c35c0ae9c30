//! Which mutant this process is; in the copy only (`checks/mutants`).

use std::collections::HashMap;
use std::env;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The number of the mutant, if it is one.
const MUTATION: &str = "LATCHWORK_MUTATION";
/// A file that gets the numbers of all mutants that this process would have come by.
const REACHED: &str = "LATCHWORK_REACHED";

/// What stands instead of parts of scripts.
const SCRIPTS: &[(u32, &str)] = &[/* scripts */];

/// More than there are mutants.
const MOST: usize = 1 << 16;

/// Which it has come by. In no mutex: a child may be forked while another thread of its parent has that.
static REACHED_BEFORE: [AtomicBool; MOST] = [const { AtomicBool::new(false) }; MOST];

struct Process {
    mutation: u32,
    reached: Option<File>,
    /// The mutants of scripts, by the text that goes to the server.
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

/// Whether this process is the mutant of this number, which it has come by now.
pub fn on(number: u32) -> bool {
    let process = process();
    // Ordering: Relaxed, each is only counted.
    if let Some(mut file) = process.reached.as_ref()
        && !REACHED_BEFORE[number as usize].swap(true, Ordering::Relaxed)
    {
        // In one piece, as others append as well.
        file.write_all(format!("{number}\n").as_bytes()).expect("a file");
    }
    process.mutation == number
}

/// The text of a script without the marks of its mutants: `\u{2}NUMBER:` before each, `\u{3}NUMBER:` behind.
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

/// A script is called: all of its mutants are come by.
pub(crate) fn called(text: &str) {
    let scripts = process().scripts.lock().unwrap_or_else(PoisonError::into_inner);
    if process().reached.is_some() {
        scripts[text].iter().for_each(|number| drop(on(*number)));
    }
}

/// Both, for tests that send scripts themselves.
pub fn script_called(text: &str) -> String {
    let text = script(text);
    called(&text);
    text
}

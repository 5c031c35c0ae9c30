//! [`Fault`]: a wrong line of the lock, only in `faults.txt`, and never in `src`.

use std::collections::BTreeMap;
use std::fmt::Write;

use anyhow::{Context, Result, bail, ensure};

/// The table: a part as `# part`, then each fault as `Name: a sentence`, with its lines indented below.
const TABLE: &str = include_str!("../faults.txt");

/// Placeholder for the test that this fault is seeded.
const SEEDED: &str = "FAULT";

/// The library's own list of faults, and the start of the list.
const LIST: (&str, &str) = ("src/support/fault.rs", "\nfaults! {\n");

/// The place that loads the text of a script.
const LOADED: (&str, &str) = ("src/redis/scripts.rs", "let text = without_comments(source);");

/// A fault, and the checks that have to find it.
#[derive(Debug)]
pub struct Fault {
    /// Heading in the table: `entry`, `second-guard`, `client`, `local` or `redis`.
    pub part: &'static str,
    /// Name in `latchwork::fault::Fault`, in a copy with faults.
    pub name: &'static str,
    /// The behaviour that is wrong.
    pub says: &'static str,
    /// Empty for a fault in the library itself, which loom's models need there.
    pub edits: Vec<Edit>,
    /// The test of the engine's model that fails with the fault, and words of the failure.
    pub model: Option<(&'static str, &'static str)>,
    /// The reason why no program of the simulator finds the fault.
    pub not_by_programs: Option<&'static str>,
}

/// A text in a file, and its replacement.
#[derive(Debug)]
pub struct Edit {
    /// Path relative to the workspace's root.
    pub file: &'static str,
    /// Matched regardless of white space, so that a new line width does no harm.
    pub text: String,
    /// Contains `FAULT` as the test that the fault is seeded.
    pub with: String,
}

/// Reads the table.
///
/// # Panics
///
/// Panics if a line is malformed.
#[must_use]
pub fn all() -> Vec<Fault> {
    read().expect("faults.txt is a table of faults")
}

fn read() -> Result<Vec<Fault>> {
    let (mut faults, mut part) = (Vec::<Fault>::new(), "");
    for line in TABLE.lines().filter(|line| !line.is_empty()) {
        if let Some(heading) = line.strip_prefix("# ") {
            part = heading;
            continue;
        }
        let Some(line) = line.strip_prefix("  ") else {
            let (name, says) = line.split_once(": ").with_context(|| format!("no fault: {line}"))?;
            let (edits, model, not_by_programs) = (Vec::new(), None, None);
            faults.push(Fault { part, name, says, edits, model, not_by_programs });
            continue;
        };
        let fault = faults.last_mut().with_context(|| format!("of no fault: {line}"))?;
        if let Some(found) = line.strip_prefix("model: ") {
            fault.model = Some(found.split_once(": ").with_context(|| format!("nothing is said: {line}"))?);
        } else if let Some(why) = line.strip_prefix("not by programs: ") {
            fault.not_by_programs = Some(why);
        } else if line.starts_with("src/") {
            fault.edits.push(Edit { file: line, text: String::new(), with: String::new() });
        } else {
            let edit = fault.edits.last_mut().with_context(|| format!("of no file: {line}"))?;
            match line.split_at_checked(2) {
                Some(("- ", line)) => writeln!(edit.text, "{line}")?,
                Some(("+ ", line)) => writeln!(edit.with, "{line}")?,
                _ => bail!("no line of a table: {line}"),
            }
        }
    }
    Ok(faults)
}

/// Adds each fault to the files of a copy, as a branch that `latchwork::fault::seed` selects.
///
/// # Errors
///
/// Fails if a file does not contain a fault's text exactly once: the code has changed, and the table has to
/// follow.
pub fn weave(files: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    let (mut names, mut scripts) = (String::new(), String::new());
    for Fault { name, says, edits, .. } in all().iter().filter(|fault| !fault.edits.is_empty()) {
        writeln!(names, "        /// {says}\n        {name},")?;
        for Edit { file, text, with } in edits {
            let source = text_of(files, file)?;
            let with = with.replace(SEEDED, &format!("crate::fault::fault!({name})"));
            let woven = replace_once(source, text, &with).with_context(|| {
                format!("checks/defects/faults.txt, {name}: {file} does not have this once: {text}")
            })?;
            if file.ends_with(".lua") {
                // A server needs one fixed text, so the fault is chosen when the text is loaded.
                ensure!(source.contains(text.trim()), "{name}: {file} has {text} with other white space");
                writeln!(scripts, "(crate::fault::fault!({name}), {:?}, {:?}),", text.trim(), with.trim())?;
            } else {
                files.insert((*file).to_owned(), woven.into_bytes());
            }
        }
    }
    let (list, begins) = LIST;
    let woven = format!("{begins}    /// Of checks/defects/faults.txt.\n    WOVEN {{\n{names}    }}\n");
    let library = replace_once(text_of(files, list)?, begins, &woven).context("no list of faults")?;
    files.insert(list.to_owned(), library.into_bytes());
    let (file, loaded) = LOADED;
    let woven = format!(
        "{loaded}
let seeded = [\n{scripts}].into_iter().filter(|(is_seeded, ..)| *is_seeded);
let text = seeded.fold(text, |text, (_, line, instead)| text.replace(line, instead));"
    );
    let woven =
        replace_once(text_of(files, file)?, loaded, &woven).context("no place where scripts are loaded")?;
    files.insert(file.to_owned(), woven.into_bytes());
    Ok(())
}

fn text_of<'a>(files: &'a BTreeMap<String, Vec<u8>>, file: &str) -> Result<&'a str> {
    let text = files.get(file).with_context(|| format!("there is no {file}"))?;
    std::str::from_utf8(text).with_context(|| format!("{file} is no text"))
}

/// Replaces `text` in `source`, ignoring white space. `None` unless `text` occurs exactly once.
fn replace_once(source: &str, text: &str, with: &str) -> Option<String> {
    let dense: Vec<(usize, char)> = source.char_indices().filter(|(_, it)| !it.is_whitespace()).collect();
    let text: Vec<char> = text.chars().filter(|it| !it.is_whitespace()).collect();
    let mut found = dense.windows(text.len()).filter(|window| window.iter().map(|(_, it)| it).eq(&text));
    let (Some([(begin, _), .., (last, end)]), None) = (found.next(), found.next()) else { return None };
    Some([&source[..*begin], with.trim_end(), &source[last + end.len_utf8()..]].concat())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::copy;

    #[test]
    fn each_fault_of_the_table_applies_to_the_code_as_it_is() -> Result<()> {
        weave(&mut copy::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))?)
    }

    #[test]
    fn text_is_replaced_across_line_ends_and_only_if_found_once() {
        assert_eq!(
            replace_once("if a\n    && b { c }", "if a && b {", "if a {"),
            Some("if a { c }".to_owned())
        );
        assert_eq!(replace_once("a(); a();", "a();", "b();"), None);
        assert_eq!(replace_once("a();", "b();", "c();"), None);
    }
}

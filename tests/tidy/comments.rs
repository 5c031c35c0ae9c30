//! Width of lines, and comments of orderings.

use crate::{code, lines, sources};

const FOLDERS: [&str; 8] = ["benches", "checks", "examples", "fuzz", "loom-tests", "src", "tests", "xtask"];

/// Returns a comment's text. A row of a table, which cannot be wrapped, is no comment here.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?.trim_start_matches(['/', '!']).trim();
    (!text.starts_with('|')).then_some(text)
}

/// rustfmt wraps no comments and breaks no strings; strings may be longer.
#[test]
fn lines_are_no_wider_than_rustfmt_makes_them() {
    for (place, line) in lines(&FOLDERS.map(sources).concat()) {
        let is_comment = line.trim_start().starts_with("//");
        let is_excepted = if is_comment { comment(line).is_none() } else { line.contains(['"', '\\']) };
        let width = line.chars().count();
        assert!(is_excepted || width <= 110, "{place}: {width} columns");
    }
}

/// Maximal distance in lines between an access and its comment above.
const COMMENT_WITHIN: usize = 8;

#[test]
fn every_ordering_says_why() {
    let orderings =
        ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"].map(|name| format!("Ordering::{name}"));
    for (path, text) in sources("src") {
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            if orderings.iter().any(|ordering| code(line).contains(ordering)) {
                let above = &lines[number.saturating_sub(COMMENT_WITHIN)..number];
                let said = above.iter().any(|line| line.trim_start().starts_with("// Ordering:"));
                assert!(
                    said,
                    "{}:{}: expected `// Ordering:` with the reason why the ordering suffices",
                    path.display(),
                    number + 1
                );
            }
        }
    }
}

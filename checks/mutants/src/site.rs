//! [`Site`]: a mutant without a number.

use tree_sitter::Node;

/// Placeholder for the test that the mutant is selected.
pub(crate) const ON: &str = "\0";

/// A place in a file, and one change there.
#[derive(Debug)]
pub(crate) struct Site {
    /// Byte offsets.
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) change: Change,
    /// Name of the place that survives moved lines.
    pub(crate) function: String,
    pub(crate) what: String,
}

#[derive(Debug)]
pub(crate) enum Change {
    /// Rust: texts to insert before and after the place.
    Around(String, String),
    /// Lua: replacement of the place.
    Instead(String),
}

impl Site {
    pub(crate) fn new(node: Node<'_>, change: Change, functions: &[String], what: String) -> Self {
        Self { start: node.start_byte(), end: node.end_byte(), change, function: functions.join("::"), what }
    }
}

/// Shortens a text to one line without the middle.
pub(crate) fn short(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let letters: Vec<char> = words.join(" ").chars().collect();
    if letters.len() <= 70 {
        return letters.into_iter().collect();
    }
    let ends = [&letters[..45], &['…'], &letters[letters.len() - 24..]];
    ends.into_iter().flatten().collect()
}

pub(crate) fn other_operator(operator: &str) -> Option<&'static str> {
    Some(match operator {
        "<" => "<=",
        "<=" => "<",
        ">" => ">=",
        ">=" => ">",
        "+" => "-",
        "-" => "+",
        "*" | "%" => "/",
        "/" => "*",
        "+=" => "-=",
        "-=" => "+=",
        "|" => "&",
        "&" => "|",
        "|=" => "&=",
        "&=" => "|=",
        "<<" => ">>",
        ">>" => "<<",
        _ => return None,
    })
}

/// The text of `node` with a part replaced.
pub(crate) fn with(text: &str, node: Node<'_>, part: Node<'_>, instead: &str) -> String {
    let (before, after) =
        (&text[node.start_byte()..part.start_byte()], &text[part.end_byte()..node.end_byte()]);
    format!("{before}{instead}{after}")
}

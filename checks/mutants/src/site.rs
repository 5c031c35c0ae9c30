//! [`Site`]: a mutant, before it has a number.

use tree_sitter::Node;

/// Stands in the text of a change for the question whether it is this mutant that runs.
pub(crate) const ON: &str = "\0";

/// A place of a file, and one change of it.
#[derive(Debug)]
pub(crate) struct Site {
    /// Bytes.
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) change: Change,
    /// Where it is, in a way that stays when lines move.
    pub(crate) function: String,
    pub(crate) what: String,
}

#[derive(Debug)]
pub(crate) enum Change {
    /// Rust: before the place and behind it.
    Around(String, String),
    /// Lua: what stands there instead.
    Instead(String),
}

impl Site {
    pub(crate) fn new(node: Node<'_>, change: Change, functions: &[String], what: String) -> Self {
        Self { start: node.start_byte(), end: node.end_byte(), change, function: functions.join("::"), what }
    }
}

/// A text on one line, and the middle of a long one left out.
pub(crate) fn short(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let letters: Vec<char> = words.join(" ").chars().collect();
    if letters.len() <= 70 {
        return letters.into_iter().collect();
    }
    let ends = [&letters[..45], &['…'], &letters[letters.len() - 24..]];
    ends.into_iter().flatten().collect()
}

/// An operator's neighbours.
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

/// `node` as its text with a part of it replaced.
pub(crate) fn with(text: &str, node: Node<'_>, part: Node<'_>, instead: &str) -> String {
    let (before, after) =
        (&text[node.start_byte()..part.start_byte()], &text[part.end_byte()..node.end_byte()]);
    format!("{before}{instead}{after}")
}

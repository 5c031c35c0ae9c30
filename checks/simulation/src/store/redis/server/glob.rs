//! Patterns of keys, channels and fields.

/// True if the text matches the pattern: `*`, `?`, `[a-z]`, `[^a]`, and `\` before one of these.
pub(super) fn matches(pattern: &[u8], text: &[u8]) -> bool {
    let Some((first, rest)) = pattern.split_first() else { return text.is_empty() };
    match first {
        b'*' => (0..=text.len()).any(|from| matches(rest, &text[from..])),
        b'?' => !text.is_empty() && matches(rest, &text[1..]),
        b'[' => {
            let (set, rest) = class(rest);
            !text.is_empty() && set(text[0]) && matches(rest, &text[1..])
        }
        b'\\' if !rest.is_empty() => text.first() == Some(&rest[0]) && matches(&rest[1..], &text[1..]),
        first => text.first() == Some(first) && matches(rest, &text[1..]),
    }
}

/// Parses a class up to the bracket. Returns its predicate, and the rest of the pattern.
fn class(pattern: &[u8]) -> (impl Fn(u8) -> bool, &[u8]) {
    let is_negated = pattern.first() == Some(&b'^');
    let mut at = usize::from(is_negated);
    let mut ranges = Vec::new();
    while at < pattern.len() && pattern[at] != b']' {
        if pattern[at] == b'\\' && at + 1 < pattern.len() {
            ranges.push((pattern[at + 1], pattern[at + 1]));
            at += 2;
        } else if at + 2 < pattern.len() && pattern[at + 1] == b'-' {
            let (one, other) = (pattern[at], pattern[at + 2]);
            ranges.push((one.min(other), one.max(other)));
            at += 3;
        } else {
            ranges.push((pattern[at], pattern[at]));
            at += 1;
        }
    }
    let set = move |byte| ranges.iter().any(|(from, to)| (*from..=*to).contains(&byte)) != is_negated;
    (set, pattern.get(at + 1..).unwrap_or_default())
}

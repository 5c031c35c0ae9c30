//! Rules for the declarations of the public API.

use std::collections::HashSet;
use std::{fmt, fs};

use crate::{lines, module, root, sources};

/// A public item: file, owning type if any, doc comment, and declaration without body.
struct Item {
    file: String,
    owner: Option<String>,
    comment: String,
    declared: String,
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Item { file, owner, declared, .. } = self;
        match owner {
            Some(owner) => write!(f, "{file}: {owner}: {declared}"),
            None => write!(f, "{file}: {declared}"),
        }
    }
}

/// Returns the type whose items follow, if `line` begins a block of items.
fn owner(line: &str) -> Option<&str> {
    let line = line.strip_prefix("pub ").unwrap_or(line);
    let rest = match line.strip_prefix("impl") {
        Some(rest) if rest.starts_with('<') => rest.split_once("> ")?.1,
        Some(rest) => rest.strip_prefix(' ')?,
        None => ["trait ", "struct "].iter().find_map(|kind| line.strip_prefix(kind))?,
    };
    rest.split([' ', '<', ':', '(', ';']).next()
}

/// Returns public items, and items of public traits. By `unreachable_pub`, users can name all or their parts.
fn public_items() -> Vec<Item> {
    let root = root("src");
    let mut items = Vec::new();
    for (path, text) in sources("src") {
        let file = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        let is_hidden = ["support/fault", "suspension", "support/sync", "support/runtime/s"]
            .iter()
            .any(|room| file.starts_with(room));
        let (mut comment, mut attributes) = (String::new(), String::new());
        let (mut within, mut is_trait): (Option<&str>, bool) = (None, false);
        let mut lines = text.split("#[cfg(test)]\nmod tests {").next().unwrap().lines();
        while let Some(raw) = lines.next() {
            let line = raw.trim();
            if let Some(said) = line.strip_prefix("///") {
                comment += said;
                comment.push('\n');
                continue;
            }
            if line.starts_with("#[") {
                attributes += line;
                continue;
            }
            if raw == "}" {
                (within, is_trait) = (None, false);
            }
            let unseen =
                ["doc(hidden)", "latchwork_simulation", "latchwork_loom", "cfg(test)", "cfg(doctest)"];
            let is_method = is_trait && (line.starts_with("fn ") || line.starts_with("async fn "));
            if (line.starts_with("pub ") || is_method)
                && !is_hidden
                && !unseen.iter().any(|unseen| attributes.contains(unseen))
            {
                let mut declared = line.to_owned();
                // A field ends with its line, an import with a semicolon, and other items before their body.
                let is_open = |text: &str| match text.starts_with("pub use") {
                    true => !text.contains(';'),
                    false => !text.contains(['{', ';']) && !text.ends_with(','),
                };
                while is_open(&declared) || declared.ends_with(',') && declared.contains("fn ") {
                    let Some(next) = lines.next() else { break };
                    declared.push(' ');
                    declared += next.trim();
                }
                if !declared.starts_with("pub use") {
                    declared.truncate(declared.find(['{', ';']).unwrap_or(declared.len()));
                }
                items.push(Item {
                    file: file.clone(),
                    owner: within.map(str::to_owned),
                    comment: comment.clone(),
                    declared: declared.trim().into(),
                });
            }
            if let Some(owner) = owner(raw).filter(|_| raw.ends_with('{')) {
                (within, is_trait) = (Some(owner), raw.starts_with("pub trait "));
            }
            comment.clear();
            attributes.clear();
        }
    }
    assert!(items.len() > 400, "expected more than 400 items, and found {}", items.len());
    items
}

/// Returns the traits that public types implement, derives included.
fn implementations() -> Vec<String> {
    let name = |item: &Item| {
        let kinds = ["struct", "enum"].map(|kind| format!("pub {kind} "));
        let rest = kinds.iter().find_map(|kind| item.declared.strip_prefix(kind.as_str()))?;
        rest.split([' ', '<', '(', ':']).next().map(str::to_owned)
    };
    let public: HashSet<String> = public_items().iter().filter_map(name).collect();
    let mut found = Vec::new();
    for (path, text) in sources("src") {
        let file = path.strip_prefix(root("src")).unwrap().to_string_lossy().into_owned();
        let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
        let (mut derived, mut is_hidden) = (String::new(), false);
        for line in text.lines() {
            if let Some(traits) = line.strip_prefix("#[derive(").and_then(|rest| rest.strip_suffix(")]")) {
                derived = traits.to_owned();
            } else if line.starts_with("#[") {
                is_hidden |= line.contains("latchwork_simulation");
            } else if let Some(of) = owner(line).filter(|_| line.starts_with("pub ")).or(enumeration(line)) {
                if public.contains(of) && !derived.is_empty() {
                    found.push(format!("{file}: {of}: {derived}"));
                }
                derived.clear();
            } else if line.starts_with("impl") && line.contains(" for ") && !is_hidden {
                let header = line.trim_end_matches([' ', '{', '}']);
                let of = header.split_once(" for ").expect("the header names a type").1;
                if public.contains(of.split(['<', ' ']).next().unwrap()) {
                    found.push(format!("{file}: {header}"));
                }
            }
            if !line.starts_with("#[") {
                is_hidden = false;
            }
        }
    }
    assert!(found.len() > 100, "expected more than 100 implementations, and found {}", found.len());
    found
}

fn enumeration(line: &str) -> Option<&str> {
    line.strip_prefix("pub enum ")?.split([' ', '<']).next()
}

/// A fallible function documents its errors, and a future its cancel safety.
#[test]
fn public_functions_say_their_errors_and_their_cancel_safety() {
    for item in public_items() {
        let Item { comment, declared, .. } = &item;
        if !declared.contains("fn ") || declared.contains("impl Fn(") {
            continue;
        }
        let returned = declared.split_once(") ->").map_or("", |(_, returned)| returned);
        let fails = returned.contains("Result<");
        assert!(!fails || comment.contains("# Errors"), "{item}: expected a section `# Errors`");
        let is_awaited = declared.contains("async fn") || returned.contains("impl Future");
        assert!(
            !is_awaited || comment.contains("# Cancel safety"),
            "{item}: expected a section `# Cancel safety`"
        );
    }
}

#[test]
fn public_types_have_examples() {
    let is_type = |item: &Item| {
        ["struct", "enum", "trait"].iter().any(|kind| item.declared.starts_with(&format!("pub {kind} ")))
    };
    let bare: Vec<String> = public_items()
        .into_iter()
        .filter(|item| is_type(item) && !item.comment.contains("# Examples"))
        .map(|item| item.to_string())
        .collect();
    assert!(bare.is_empty(), "expected `# Examples` of each item, and these have none: {bare:#?}");
}

/// Returns parts that are public with their type: variants, and constants and types of traits.
fn parts_of_public_types() -> Vec<String> {
    let mut parts = Vec::new();
    for (_, text) in sources("src") {
        let mut of = None;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("pub enum ").or(line.strip_prefix("pub trait ")) {
                of = rest.split([' ', ':', '<']).next();
            } else if line == "}" {
                of = None;
            } else if let (Some(name), Some(part)) = (of, line.strip_prefix("    ")) {
                let is_item = ["const ", "type "].iter().any(|kind| part.starts_with(kind));
                if is_item || part.starts_with(|letter: char| letter.is_ascii_uppercase()) {
                    parts.push(format!("{name}: {}", part.trim_end_matches([' ', '{', ',', ';', '('])));
                }
            }
        }
    }
    assert!(parts.len() > 100, "expected more than 100 parts, and found {}", parts.len());
    parts
}

/// The last reviewed public API. Each change must appear in a review and in CHANGELOG.md.
#[test]
fn public_api_is_that_of_the_snapshot() {
    let mut lines: Vec<String> = public_items().iter().map(Item::to_string).collect();
    lines.extend(parts_of_public_types());
    lines.extend(implementations());
    lines.sort();
    let now = lines.join("\n") + "\n";
    let snapshot = root("tests/tidy/api.txt");
    if std::env::var_os("LATCHWORK_BLESS").is_some() {
        fs::write(&snapshot, &now).unwrap();
    }
    let before = fs::read_to_string(&snapshot).unwrap();
    let (now, before): (HashSet<&str>, HashSet<&str>) = (now.lines().collect(), before.lines().collect());
    let (new, gone): (Vec<_>, Vec<_>) =
        (now.difference(&before).collect(), before.difference(&now).collect());
    assert!(
        new.is_empty() && gone.is_empty(),
        "new: {new:#?}, gone: {gone:#?}; tell it in CHANGELOG.md, and run LATCHWORK_BLESS=1 cargo test --test tidy"
    );
}

#[test]
fn no_redis_type_in_a_public_signature() {
    let foreign = [
        "::redis::",
        "RedisError",
        "Cmd",
        "Client",
        "MultiplexedConnection",
        "PushInfo",
        "RedisResult",
        "rustls::",
    ];
    for (place, line) in lines(&module("redis")) {
        let found =
            foreign.into_iter().find(|name| line.trim_start().starts_with("pub ") && line.contains(name));
        assert_eq!(
            found, None,
            "{place}: {line}: expected no type of the redis crate, whose next release would break this API"
        );
    }
}

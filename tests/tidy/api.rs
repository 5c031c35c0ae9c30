//! The public API, as its declarations say it.

use std::collections::HashSet;
use std::fs;

use crate::{lines, module, root, sources};

/// A public item: where it is, what is said of it, and how it is declared, without its body.
struct Item {
    file: String,
    comment: String,
    declared: String,
}

/// The items of `src` that are public. By `unreachable_pub`, each can be named by a user, as a whole or by
/// its fields and methods.
fn public_items() -> Vec<Item> {
    let root = root("src");
    let mut items = Vec::new();
    for (path, text) in sources("src") {
        let file = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        let is_hidden =
            ["fault", "suspension", "sync", "redis/connection/s"].iter().any(|room| file.starts_with(room));
        let (mut comment, mut attributes) = (String::new(), String::new());
        let mut lines = text.split("#[cfg(test)]\nmod tests {").next().unwrap().lines().map(str::trim);
        while let Some(line) = lines.next() {
            if let Some(said) = line.strip_prefix("///") {
                comment += said;
                comment.push('\n');
                continue;
            }
            if line.starts_with("#[") {
                attributes += line;
                continue;
            }
            let unseen =
                ["doc(hidden)", "latchwork_simulation", "latchwork_loom", "cfg(test)", "cfg(doctest)"];
            if line.starts_with("pub ")
                && !is_hidden
                && !unseen.iter().any(|unseen| attributes.contains(unseen))
            {
                let mut declared = line.to_owned();
                // A field ends with its line, an import with its semicolon, all else before its body.
                let is_open = |text: &str| match text.starts_with("pub use") {
                    true => !text.contains(';'),
                    false => !text.contains(['{', ';']) && !text.ends_with(','),
                };
                while is_open(&declared) || declared.ends_with(',') && declared.contains("fn ") {
                    let Some(next) = lines.next() else { break };
                    declared.push(' ');
                    declared += next;
                }
                if !declared.starts_with("pub use") {
                    declared.truncate(declared.find(['{', ';']).unwrap_or(declared.len()));
                }
                items.push(Item {
                    file: file.clone(),
                    comment: comment.clone(),
                    declared: declared.trim().into(),
                });
            }
            comment.clear();
            attributes.clear();
        }
    }
    assert!(items.len() > 400, "{} items are not all", items.len());
    items
}

/// A function that may fail says how, and one that is awaited says what it means to stop.
#[test]
fn public_functions_say_their_errors_and_their_cancel_safety() {
    for Item { file, comment, declared } in public_items() {
        if !declared.contains("fn ") || declared.contains("impl Fn(") {
            continue;
        }
        let returned = declared.split_once(") ->").map_or("", |(_, returned)| returned);
        let fails = returned.contains("Result<");
        assert!(!fails || comment.contains("# Errors"), "{file}: {declared}: no `# Errors`");
        let is_awaited = declared.contains("async fn") || returned.contains("impl Future");
        assert!(
            !is_awaited || comment.contains("# Cancel safety"),
            "{file}: {declared}: no `# Cancel safety`"
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
        .map(|item| format!("{}: {}", item.file, item.declared))
        .collect();
    assert!(bare.is_empty(), "no `# Examples`: {bare:#?}");
}

/// What is public with its type, without saying so: variants of enums, and items of traits.
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
                let is_item = ["fn ", "const ", "type "].iter().any(|kind| part.starts_with(kind));
                if is_item || part.starts_with(|letter: char| letter.is_ascii_uppercase()) {
                    parts.push(format!("{name}: {}", part.trim_end_matches([' ', '{', ',', ';', '('])));
                }
            }
        }
    }
    assert!(parts.len() > 100, "{} parts are not all", parts.len());
    parts
}

/// The public API as it was looked at last. A change of it is to be seen in a review, and in CHANGELOG.md.
#[test]
fn public_api_is_that_of_the_snapshot() {
    let mut lines: Vec<String> =
        public_items().into_iter().map(|item| format!("{}: {}", item.file, item.declared)).collect();
    lines.extend(parts_of_public_types());
    lines.sort();
    let now = lines.join("\n") + "\n";
    let snapshot = root("api.txt");
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
        assert_eq!(found, None, "{place}: {line}: a release of the redis crate would break ours");
    }
}

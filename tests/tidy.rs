//! The walls of the house, as far as a text search can see them.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                if !path.ends_with("target") {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                files.push((path, text));
            }
        }
    }
    assert!(!files.is_empty(), "nothing to look at in {folder}");
    files
}

/// Panics if a file under `folder` has one of `words` in its code. Comments may say what they like.
fn assert_absent(folder: &str, but: &str, words: &[&str], why: &str) {
    for (path, text) in sources(folder) {
        if !but.is_empty() && path.ends_with(but) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for word in words {
                assert!(!code.contains(word), "{}:{}: {word}: {why}", path.display(), number + 1);
            }
        }
    }
}

/// The folders of this repository that have Rust in them.
const ROOMS: [&str; 10] = [
    "benches",
    "conformance",
    "examples",
    "fuzz",
    "loom-tests",
    "src",
    "testkit",
    "tests",
    "verify",
    "xtask",
];

/// A line of a comment, and no table, which cannot be wrapped.
fn comment(line: &str) -> Option<&str> {
    let text = line.trim_start().strip_prefix("//")?.trim_start_matches(['/', '!']).trim();
    (!text.starts_with('|')).then_some(text)
}

/// rustfmt wraps no comments. Nor does it break strings; those may be longer.
#[test]
fn lines_are_no_wider_than_rustfmt_makes_them() {
    for (path, text) in ROOMS.iter().flat_map(|room| sources(room)) {
        for (number, line) in text.lines().enumerate() {
            let is_comment = line.trim_start().starts_with("//");
            let is_excepted = if is_comment { comment(line).is_none() } else { line.contains(['"', '\\']) };
            let width = line.chars().count();
            assert!(is_excepted || width <= 110, "{}:{}: {width} columns", path.display(), number + 1);
        }
    }
}

/// What acts is a task, a thread, a waiter, the holder, the caller, the server: something in the code.
#[test]
fn comments_name_what_acts() {
    let vague = ["who", "whoever", "whom", "somebody", "nobody"];
    for (path, text) in ROOMS.iter().flat_map(|room| sources(room)) {
        for (number, line) in text.lines().enumerate() {
            let words = comment(line).unwrap_or_default().split(|letter: char| !letter.is_alphanumeric());
            let found = words.map(str::to_lowercase).find(|word| vague.contains(&&**word));
            assert_eq!(found, None, "{}:{}: which task, thread or process?", path.display(), number + 1);
        }
    }
}

#[test]
fn only_sync_names_atomics_and_model_checkers() {
    let words = [
        "sync::atomic",
        "loom::",
        "shuttle::",
        "crossbeam_epoch::",
        "UnsafeCell::new",
        "parking_lot::",
        "crossbeam_queue::",
        "event_listener::",
    ];
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for (path, text) in sources("src") {
        if path == root.join("src/sync.rs") || path.starts_with(root.join("src/sync")) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let code = code.replace("crate::sync::atomic", "");
            for word in words {
                let imports = ["use crate::sync::UnsafeCell;", "use crate::sync::{Canary, UnsafeCell};"];
                let own = word == "UnsafeCell::new" && imports.iter().any(|import| text.contains(import));
                assert!(
                    !code.contains(word) || own,
                    "{}:{}: {word} is invisible to model checkers",
                    path.display(),
                    number + 1
                );
            }
        }
    }
}

#[test]
fn redis_uses_public_items_only() {
    // `crate::sync` is the shim; all else must be there for another crate, too.
    let public = [
        "crate::fault::fault",
        "crate::sync::Mutex",
        "crate::sync::atomic::",
        "crate::lock::{",
        "crate::lock::LeaseId;",
        "crate::registry::Registry",
        "crate::runtime::Runtime",
    ];
    for (path, text) in sources("src/redis") {
        for line in text.lines().filter(|line| line.contains("crate::")) {
            let named = public.iter().any(|item| line.contains(item)) || line.contains("crate::transport::");
            assert!(named, "{}: {line}: write src/redis as if it were another crate", path.display());
        }
    }
}

#[test]
fn arrows_point_down() {
    let up = "an arrow that points up";
    assert_absent(
        "src/semaphore",
        "",
        &["crate::latch", "crate::registry", "crate::lock", "crate::striped"],
        up,
    );
    assert_absent(
        "src/lock_entry",
        "",
        &["crate::registry", "crate::channel_entry", "crate::lock::", "crate::local", "crate::redis"],
        up,
    );
    assert_absent(
        "src/channel_entry",
        "",
        &["crate::registry", "crate::lock_entry", "crate::lock::", "crate::local", "crate::redis"],
        up,
    );
    // The convenience constructor `LockClient::local` is the one exception.
    assert_absent("src/lock", "src/lock/client.rs", &["crate::local", "crate::redis"], up);
    assert_absent("src/local", "", &["crate::redis"], up);
    assert_absent("src", "", &["crate::blocking"], up);
    for file in [
        "src/latch.rs",
        "src/striped.rs",
        "src/registry.rs",
        "src/lock_entry.rs",
        "src/channel_entry.rs",
        "src/transport.rs",
    ] {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        for word in ["crate::lock::", "crate::local", "crate::redis"] {
            assert!(
                !text.lines().any(|line| !line.trim_start().starts_with("//") && line.contains(word)),
                "{file}: {word}: {up}"
            );
        }
    }
}

#[test]
fn no_redis_type_in_a_public_signature() {
    for (path, text) in sources("src/redis").into_iter().chain([(
        PathBuf::from("src/redis.rs"),
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/redis.rs")).unwrap(),
    )]) {
        for line in text.lines().filter(|line| line.trim_start().starts_with("pub ")) {
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
            for name in foreign {
                assert!(
                    !line.contains(name),
                    "{}: {line}: a release of the redis crate would break ours",
                    path.display()
                );
            }
        }
    }
}

/// How far above an access its comment may begin.
const COMMENT_WITHIN: usize = 8;

#[test]
fn every_ordering_says_why() {
    let orderings =
        ["Relaxed", "Acquire", "Release", "AcqRel", "SeqCst"].map(|name| format!("Ordering::{name}"));
    for (path, text) in sources("src") {
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if orderings.iter().any(|ordering| code.contains(ordering)) {
                let above = &lines[number.saturating_sub(COMMENT_WITHIN)..number];
                let said = above.iter().any(|line| line.trim_start().starts_with("// Ordering:"));
                assert!(said, "{}:{}: no `// Ordering:` says why that suffices", path.display(), number + 1);
            }
        }
    }
}

/// The files of `src/lock` import each other in one direction only. What is in a folder is a part of the file
/// of its name.
#[test]
fn lock_has_no_import_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lock");
    let mut imports: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in sources("src/lock") {
        let inside = path.strip_prefix(&root).unwrap().with_extension("");
        let room = inside.iter().next().unwrap().to_string_lossy().into_owned();
        let up = "super::".repeat(inside.iter().count());
        let named =
            |line: &str| line.strip_prefix(&format!("use {up}"))?.split(':').next().map(str::to_owned);
        // An import for documentation is none.
        let lines: Vec<&str> = text.lines().collect();
        let real = |at: &usize| *at == 0 || lines[at - 1] != "#[cfg(doc)]";
        let own = (0..lines.len()).filter(real).filter_map(|at| named(lines[at]));
        imports.entry(room).or_default().extend(own);
    }
    // A file that imports nothing that is left can be taken away.
    while !imports.is_empty() {
        let left: Vec<String> = imports.keys().cloned().collect();
        imports.retain(|_, own| own.iter().any(|name| left.contains(name)));
        assert!(imports.len() < left.len(), "a circle among {imports:#?}");
    }
}

/// The files of `src/redis` import each other in one direction only, folders included: what is in a folder is
/// for the file of its name, and knows nothing of that.
#[test]
fn redis_has_no_import_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let of = |path: &Path| -> Vec<String> {
        let inside = path.strip_prefix(&root).unwrap().with_extension("");
        inside.iter().map(|part| part.to_string_lossy().into_owned()).collect()
    };
    let files: Vec<(Vec<String>, String)> = sources("src/redis")
        .into_iter()
        .chain([(root.join("redis.rs"), fs::read_to_string(root.join("redis.rs")).unwrap())])
        .map(|(path, text)| (of(&path), text.split("#[cfg(test)]").next().unwrap().to_owned()))
        .collect();
    let modules: Vec<Vec<String>> = files.iter().map(|(module, _)| module.clone()).collect();
    let mut imports: Vec<(Vec<String>, Vec<Vec<String>>)> = Vec::new();
    for (module, text) in &files {
        // A file knows what is in its folder.
        let inside = |other: &&Vec<String>| other.split_last().is_some_and(|(_, folder)| folder == module);
        let mut own: Vec<Vec<String>> = modules.iter().filter(inside).cloned().collect();
        for import in text
            .split("\nuse ")
            .chain(text.split("\npub use "))
            .chain(text.split("\npub(crate) use "))
            .skip(1)
        {
            let import = import.split(';').next().unwrap();
            if !import.starts_with("super::") && !import.starts_with("self::") {
                continue;
            }
            let mut at = module.clone();
            for part in import.split("::") {
                match part {
                    "self" => {}
                    "super" => _ = at.pop(),
                    // The rest is an item, or a list of them.
                    name => {
                        at.push(name.to_owned());
                        if !modules.contains(&at) {
                            at.pop();
                            break;
                        }
                    }
                }
            }
            // `use super::{a, b}` would hide which files are meant.
            assert!(modules.contains(&at), "{module:?}: {import}: write the module's name before the braces");
            own.push(at);
        }
        imports.push((module.clone(), own));
    }
    // A file that imports nothing that is left can be taken away.
    while !imports.is_empty() {
        let left: Vec<Vec<String>> = imports.iter().map(|(module, _)| module.clone()).collect();
        imports.retain(|(module, own)| own.iter().any(|other| other != module && left.contains(other)));
        assert!(imports.len() < left.len(), "a circle among {imports:#?}");
    }
    // And the rooms, from the ground up.
    for (room, above) in [
        (
            "connection",
            &[
                "super::topology",
                "super::pubsub",
                "super::scripts",
                "super::keys",
                "super::backend",
                "super::builder",
            ][..],
        ),
        ("topology", &["super::pubsub", "super::scripts", "super::backend", "super::builder"]),
        ("pubsub", &["super::scripts", "super::backend", "super::builder"]),
    ] {
        assert_absent(
            &format!("src/redis/{room}"),
            "topology/cluster/slot.rs",
            above,
            "an arrow that points up",
        );
    }
}

/// Cluster, Sentinel and TLS are built in or not in one place each: where their folder is mounted, and where
/// the builder offers them.
#[test]
fn features_end_at_their_folder() {
    for (path, text) in sources("src/redis") {
        let may = ["builder.rs", "topology.rs", "tls.rs", "url.rs", "error.rs"]
            .iter()
            .any(|file| path.ends_with(file));
        assert!(may || !text.contains("feature = "), "{}: a feature is looked at", path.display());
    }
}

fn page(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// The texts between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Tests and models, or files of them, that a page names stay there under that name.
#[test]
fn guarantees_name_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources: Vec<_> =
        ["src", "tests", "conformance/src", "loom-tests", "verify"].into_iter().flat_map(sources).collect();
    let identifier = |text: &str| -> String {
        text.chars().take_while(|next| next.is_ascii_alphanumeric() || *next == '_').collect()
    };
    // A test or a clause of a suite is a function, a model is an entry of the macro that makes it one.
    let mut defined = HashSet::new();
    for line in sources.iter().flat_map(|(_, text)| text.lines().map(str::trim_start)) {
        defined.extend(line.split("fn ").skip(1).map(identifier));
        if line.ends_with('{') {
            defined.insert(identifier(line));
        }
    }
    let (mut rows, text) = (0, page("docs/guarantees.md"));
    for row in text.lines().filter(|line| line.starts_with("| ")) {
        let (guarantee, tests) = row.trim_matches(['|', ' ']).rsplit_once(" | ").unwrap();
        if tests == "checked by" {
            continue;
        }
        rows += 1;
        let named = quoted(tests);
        assert!(!named.is_empty() || tests == "the quickstart", "nothing checks: {guarantee}");
        for name in named.into_iter().filter(|name| !name.starts_with("cargo ")) {
            let is_there = if name.contains('/') { root.join(name).exists() } else { defined.contains(name) };
            assert!(is_there, "{name} is not there, which is to check: {guarantee}");
        }
    }
    assert!(rows > 70, "{rows} rows are not the whole page");
}

/// A reader has some minutes, and looks at a table that fits the screen.
#[test]
fn readme_is_short() {
    let text = page("README.md");
    let words = text.split_whitespace().count();
    assert!(words <= 1_600, "README.md has {words} words: move some to docs/");
    let mut rows = 0;
    for line in text.lines() {
        // The head and the line under it are none.
        rows = if line.starts_with('|') { rows + 1 } else { 0 };
        assert!(rows <= 22, "README.md has a table of more than 20 rows: {line}");
    }
}

#[test]
fn pages_link_to_what_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut pages: Vec<PathBuf> =
        fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path()).collect();
    // Beside pages there are folders of pictures.
    pages.retain(|page| page.extension().is_some_and(|extension| extension == "md"));
    pages.extend(["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(|page| root.join(page)));
    for page in pages {
        let text = fs::read_to_string(&page).unwrap();
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            if link.starts_with("http") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {link} leads nowhere", page.display());
            if !heading.is_empty() {
                let text = fs::read_to_string(&target).unwrap();
                let slug = |line: &str| line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
                let is_there = text.lines().any(|line| line.starts_with('#') && slug(line) == heading);
                assert!(is_there, "{}: {link} leads to no heading", page.display());
            }
        }
    }
}

/// The page for operators and the one for programmers tell the same keys, channels and rights.
#[test]
fn operators_are_told_the_keys_and_rights_of_the_module() {
    let module = page("src/redis.rs");
    let operators = page("docs/redis.md");
    for (from, to) in [("//! # On the wire", "//! # Where to look"), ("//! # Rights", "//! # What is not")] {
        let section =
            module.split(from).nth(1).and_then(|rest| rest.split(to).next()).expect("another heading");
        let fenced = section.split("```").nth(1).unwrap_or_default();
        let rules = fenced.lines().skip(1).map(|line| line.trim_start_matches("//!").trim());
        let rest = section.replace(fenced, "").replace("```", "");
        for told in
            rules.chain(quoted(&rest)).filter(|told| told.starts_with(['+', '~', '-']) || told.contains(':'))
        {
            assert!(operators.contains(told), "docs/redis.md does not tell {told:?}, and src/redis.rs does");
        }
    }
}

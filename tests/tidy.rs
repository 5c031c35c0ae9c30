//! The walls of the house, as far as a text search can see them.

use std::collections::{BTreeMap, BTreeSet, HashSet};
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
    // `crate::sync` is the shim, and `crate::foreign` the one rule for panics of foreign code; all else must
    // be there for another crate, too.
    let public = [
        "crate::fault::fault",
        "crate::foreign::",
        "crate::sync::Mutex",
        "crate::sync::atomic::",
        "crate::lock::{",
        "crate::lock::LeaseId;",
        "crate::lock::NameError;",
        "crate::registry::Registry",
        "crate::runtime::Runtime",
        "crate::backend::",
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

/// A file of a crate: its path as a module, and its text.
type Module = (Vec<String>, String);

/// All files of the crate whose root is in `folder`.
fn modules(folder: &str) -> Vec<Module> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let of = |path: PathBuf| -> Vec<String> {
        let inside = path.strip_prefix(&root).unwrap().with_extension("");
        let parts = inside.iter().map(|part| part.to_string_lossy().into_owned());
        parts.filter(|part| !["lib", "main", "mod"].contains(&&**part)).collect()
    };
    sources(folder).into_iter().map(|(path, text)| (of(path), text)).collect()
}

/// What a file imports, as far as it is a module of its crate: the paths in its `use`s, braces resolved. One
/// for documentation is none.
fn imports(module: &[String], text: &str) -> Vec<Vec<String>> {
    fn expand(at: Vec<String>, tree: &str, found: &mut Vec<Vec<String>>) {
        let (path, list) = tree.split_once('{').unwrap_or((tree, ""));
        let at = path.split("::").map(str::trim).filter(|part| !part.is_empty()).fold(at, |mut at, part| {
            match part {
                "self" => {}
                "super" => _ = at.pop(),
                part => at.push(part.split(' ').next().unwrap().to_owned()),
            }
            at
        });
        let (mut depth, mut item) = (0, String::new());
        for letter in list.chars() {
            depth += i32::from(letter == '{') - i32::from(letter == '}');
            if depth < 0 || depth == 0 && letter == ',' {
                expand(at.clone(), &std::mem::take(&mut item), found);
            } else {
                item.push(letter);
            }
        }
        found.push(at);
    }
    let mut found = Vec::new();
    // Tests, which stand at the end, are read as their file is.
    for (start, _) in text.match_indices("use ") {
        let line = text[..start].rsplit('\n').next().unwrap();
        let is_import = matches!(line, "" | "pub " | "pub(crate) " | "pub(super) ");
        if !is_import || text[..start - line.len()].ends_with("#[cfg(doc)]\n") {
            continue;
        }
        let tree = text[start + 4..].split(';').next().unwrap();
        match tree.split("::").next().unwrap() {
            "crate" => expand(Vec::new(), &tree[7..], &mut found),
            "self" | "super" => expand(module.to_vec(), tree, &mut found),
            _ => {}
        }
    }
    found
}

/// The files of a folder import each other in one direction only. What is in a folder is a part of the file
/// of its name, and counts with it.
#[test]
fn no_folder_has_an_import_circle() {
    let binaries =
        ["interop", "long_run", "model", "stress", "suspension"].map(|name| format!("verify/src/bin/{name}"));
    let crates = ["src", "conformance/src", "testkit/src", "xtask/src"].map(str::to_owned);
    for folder in crates.into_iter().chain(binaries) {
        let modules = modules(&folder);
        let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (module, text) in &modules {
            for import in imports(module, text) {
                // Up to the first part that is no file, which is an item.
                let file = (0..=import.len()).rev().map(|len| &import[..len]);
                let Some(to) = file.into_iter().find(|to| modules.iter().any(|(other, _)| other == to))
                else {
                    continue;
                };
                let shared = module.iter().zip(to).take_while(|(here, there)| here == there).count();
                if shared < module.len() && shared < to.len() {
                    let (here, there) = (module[..=shared].join("::"), to[..=shared].join("::"));
                    rooms.entry(here).or_default().insert(there);
                }
            }
        }
        // A file that imports nothing that is left can be taken away, or that nothing left imports.
        while !rooms.is_empty() {
            let left = rooms.clone();
            rooms.retain(|room, own| {
                own.retain(|to| left.contains_key(to));
                !own.is_empty() && left.values().any(|of| of.contains(room))
            });
            assert!(rooms.len() < left.len(), "{folder}: a circle among {rooms:#?}");
        }
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

/// The names of all tests, clauses and models of the workspace, and of other functions.
fn functions() -> HashSet<String> {
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
    defined
}

/// Tests and models, or files of them, that a page names stay there under that name.
#[test]
fn guarantees_name_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let defined = functions();
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

/// In the other pages tests stand among options, metrics and keys: what is as long as a sentence is a test.
#[test]
fn pages_name_tests_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let defined = functions();
    let mut tests = 0;
    for entry in fs::read_dir(root.join("docs")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        // The odd parts are fenced code.
        for name in text.split("```").step_by(2).flat_map(quoted) {
            let is_name = name.chars().all(|letter| letter == '_' || letter.is_alphanumeric());
            let is_test = is_name && name.matches('_').count() >= 3;
            let is_file = name.starts_with("tests/") || name.starts_with("conformance/");
            let is_there =
                if is_file { root.join(name).exists() } else { !is_test || defined.contains(name) };
            assert!(is_there, "{}: there is no {name}", path.display());
            tests += usize::from(is_test);
        }
    }
    assert!(tests > 100, "{tests} tests are not all that the pages name");
}

/// An answer is found in a minute. Longer are those with one row for each property, figure or proof.
#[test]
fn pages_are_short() {
    for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs")).unwrap() {
        let path = entry.unwrap().path();
        let is_register =
            ["guarantees.md", "benchmarks.md", "proof.md"].iter().any(|page| path.ends_with(page));
        let words = fs::read_to_string(&path).unwrap().split_whitespace().count();
        assert!(is_register || words <= 1_600, "{} has {words} words", path.display());
    }
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
    pages.extend(
        ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md"]
            .map(|page| root.join(page)),
    );
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
                // As on the usual hosts: punctuation goes, spaces become hyphens.
                let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
                let slug = |line: &str| {
                    let title = line.trim_start_matches('#').trim().to_lowercase();
                    title.chars().filter(kept).collect::<String>().replace(' ', "-")
                };
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

/// The rows of the tables in docs/options.md, by the option in their first column.
fn options() -> BTreeMap<String, Vec<String>> {
    let text = page("docs/options.md");
    let cells = |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(cells).map(|row: Vec<String>| (row[0].trim_matches('`').to_owned(), row)).collect()
}

/// What `Debug` shows as `field` of a struct: `Some("30s")` of `watchdog_timeout: 30s,`.
fn shown<'a>(debug: &'a str, field: &str) -> Option<&'a str> {
    let at = debug.find(&format!(" {field}: "))? + field.len() + 3;
    debug[at..].split([',', ' ']).next()
}

/// Panics if a row tells another default than `debug` shows. `field` is what the code calls the option.
fn assert_default(option: &str, field: &str, debug: &str) {
    let told = options().get(option).unwrap_or_else(|| panic!("docs/options.md has no {option}"))[1].clone();
    let told = if told == "none" { "None".to_owned() } else { told.replace(' ', "") };
    assert_eq!(Some(&*told), shown(debug, field), "docs/options.md tells another default of {option}");
}

/// The methods of a builder: what takes it by value and returns it.
fn builder_methods(path: &str) -> Vec<String> {
    let text = page(path);
    let methods = text.lines().filter(|line| line.contains("pub fn ") && line.contains("(mut self"));
    methods
        .map(|line| line.split("pub fn ").nth(1).unwrap().split(['(', '<']).next().unwrap().into())
        .collect()
}

/// What a page lists of a source file is complete: the methods to implement, the events to look up.
#[test]
fn pages_list_all_methods_of_a_backend_and_all_warnings() {
    let source = page("src/lock/backend.rs");
    let methods = source.split("pub trait Backend").nth(1).unwrap().lines();
    let methods: Vec<&str> = methods
        .filter_map(|line| line.strip_prefix("    fn "))
        .map(|line| line.split(['(', '<']).next().unwrap())
        .collect();
    assert!(methods.len() > 12, "{methods:?} are not all");
    let checklist = page("docs/own-backend.md");
    for method in methods {
        assert!(checklist.contains(&format!("| `{method}` |")), "docs/own-backend.md does not list {method}");
    }
    let troubles = page("docs/troubleshooting.md");
    let mut warnings = 0;
    for row in page("src/lock.rs").lines().filter(|line| line.starts_with("//! | WARN |")) {
        let event = quoted(row)[0];
        assert!(
            troubles.contains(&format!("| `{event}`")),
            "docs/troubleshooting.md does not explain {event}"
        );
        warnings += 1;
    }
    assert!(warnings > 8, "{warnings} are not all");
}

/// Compiled with the defaults themselves: a default that is changed in one place only fails here.
#[test]
fn options_table_tells_the_defaults_of_the_code() {
    let client = format!("{:?}", latchwork::LockOptions::default());
    for option in ["watchdog_timeout", "max_hold", "tenure", "unpolled_limit", "label"] {
        assert_default(option, option, &client);
    }
    let longest = format!("{} bytes", latchwork::LockOptions::MAX_LABEL_BYTES);
    assert!(options()["label"][2].starts_with(&longest), "docs/options.md tells another limit of label");
    let stripes = latchwork::striped::StripedSemaphores::new().len();
    assert!(page("docs/options.md").contains(&format!("`StripedSemaphores::new` | {stripes} |")));
    // Of both builders, whichever features are on.
    for path in ["src/lock/options.rs", "src/redis/builder.rs"] {
        let methods = builder_methods(path);
        assert!(methods.len() > 5, "{path}: {methods:?} are not all options");
        for method in &methods {
            assert!(options().contains_key(method), "docs/options.md has no row for {method} of {path}");
        }
    }
}

#[cfg(feature = "redis")]
#[test]
fn options_table_tells_the_defaults_of_the_redis_builder() {
    let redis = format!("{:?}", latchwork::redis::Redis::builder());
    for option in ["connect_timeout", "response_timeout", "heartbeat", "keepalive", "linger"] {
        assert_default(option, option.trim_end_matches("_timeout"), &redis);
    }
    #[cfg(feature = "cluster")]
    {
        let sharded = format!("{:?}", latchwork::redis::ShardedMessages::default());
        assert_eq!(options()["sharded_messages"][1], sharded);
    }
}

/// A public item: where it is, what is said of it, and how it is declared, without its body.
struct Item {
    file: String,
    comment: String,
    declared: String,
}

/// The items of `src` that are public. By `unreachable_pub`, each can be named by a user, as a whole or by
/// its fields and methods.
fn public_items() -> Vec<Item> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
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
    let snapshot = Path::new(env!("CARGO_MANIFEST_DIR")).join("api.txt");
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

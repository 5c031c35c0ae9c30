//! Compares the pages with the code.

use std::collections::HashSet;
use std::fs;
use std::path::PathBuf;

use crate::{page, quoted, root, sources};

fn docs() -> Vec<(PathBuf, String)> {
    let paths = fs::read_dir(root("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = paths.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    pages.map(|path| (path.clone(), fs::read_to_string(path).unwrap())).collect()
}

fn functions() -> HashSet<String> {
    let sources: Vec<_> = ["src", "tests", "loom-tests", "checks"].into_iter().flat_map(sources).collect();
    let identifier = |text: &str| -> String {
        text.chars().take_while(|next| next.is_ascii_alphanumeric() || *next == '_').collect()
    };
    // Tests and clauses are functions; models are entries of a macro.
    let mut defined = HashSet::new();
    for line in sources.iter().flat_map(|(_, text)| text.lines().map(str::trim_start)) {
        defined.extend(line.split("fn ").skip(1).map(identifier));
        if line.ends_with('{') {
            defined.insert(identifier(line));
        }
    }
    defined
}

/// Tests, models and files named by the page must exist.
#[test]
fn guarantees_name_tests_that_exist() {
    let defined = functions();
    let (mut rows, text) = (0, page("docs/guarantees.md"));
    for row in text.lines().filter(|line| line.starts_with("| ")) {
        let (guarantee, tests) = row.trim_matches(['|', ' ']).rsplit_once(" | ").unwrap();
        if tests == "checked by" {
            continue;
        }
        rows += 1;
        let named = quoted(tests);
        assert!(
            !named.is_empty() || tests == "the quickstart",
            "expected a check of the guarantee: {guarantee}"
        );
        for name in named.into_iter().filter(|name| !name.starts_with("cargo ")) {
            let is_there = if name.contains('/') { root(name).exists() } else { defined.contains(name) };
            assert!(is_there, "expected a test called {name}, the check of the guarantee: {guarantee}");
        }
    }
    assert!(rows > 70, "expected more than 70 rows in the page, and found {rows}");
}

/// Other pages also name options, metrics and keys; only names as long as a sentence are tests.
#[test]
fn pages_name_tests_that_exist() {
    let defined = functions();
    let mut tests = 0;
    for (path, text) in docs() {
        // Odd parts are fenced code.
        for name in text.split("```").step_by(2).flat_map(quoted) {
            let is_name = name.chars().all(|letter| letter == '_' || letter.is_alphanumeric());
            let is_test = is_name && name.matches('_').count() >= 3;
            let is_file = name.starts_with("tests/") || name.starts_with("checks/");
            let is_there = if is_file { root(name).exists() } else { !is_test || defined.contains(name) };
            assert!(is_there, "{}: expected a test called {name}", path.display());
            tests += usize::from(is_test);
        }
    }
    assert!(tests > 100, "expected more than 100 tests in the pages, and found {tests}");
}

/// An answer is found in a minute. Exceptions have one row for each property, figure or proof.
#[test]
fn pages_are_short() {
    for (path, text) in docs() {
        let registers = ["guarantees.md", "benchmarks.md", "benchmarks-tables.md", "proof.md"];
        let is_register = registers.iter().any(|page| path.ends_with(page));
        let words = text.split_whitespace().count();
        assert!(
            is_register || words <= 1_600,
            "{}: expected 1600 words at most, and found {words}",
            path.display()
        );
    }
}

/// A reader has some minutes, and a table must fit the screen.
#[test]
fn readme_is_short() {
    let text = page("README.md");
    let words = text.split_whitespace().count();
    assert!(words <= 1_600, "README.md: expected 1600 words at most, and found {words}: move some to docs/");
    let mut rows = 0;
    for line in text.lines() {
        // The head and the separator do not count.
        rows = if line.starts_with('|') { rows + 1 } else { 0 };
        assert!(rows <= 22, "README.md: expected tables of 20 rows at most, and this one has more: {line}");
    }
}

#[test]
fn pages_link_to_what_is_there() {
    let others = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md"];
    for (page, text) in docs().into_iter().chain(others.map(|path| (root(path), page(path)))) {
        let links = text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap());
        let attributes = ["src=\"", "srcset=\""].into_iter().flat_map(|name| text.split(name).skip(1));
        let pictures = attributes.map(|rest| rest.split('"').next().unwrap());
        for link in links.chain(pictures) {
            if link.starts_with("http") {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: expected a file at the link {link}", page.display());
            if !heading.is_empty() {
                let text = fs::read_to_string(&target).unwrap();
                // The usual hosts' rule: punctuation goes, spaces become hyphens.
                let kept = |letter: &char| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_');
                let slug = |line: &str| {
                    let title = line.trim_start_matches('#').trim().to_lowercase();
                    title.chars().filter(kept).collect::<String>().replace(' ', "-")
                };
                let is_there = text.lines().any(|line| line.starts_with('#') && slug(line) == heading);
                assert!(is_there, "{}: expected a heading at the link {link}", page.display());
            }
        }
    }
}

/// Operators' and programmers' pages agree on keys, channels and rights.
#[test]
fn operators_are_told_the_keys_and_rights_of_the_module() {
    let module = page("src/redis.rs");
    let operators = page("docs/redis.md");
    for (from, to) in [("//! # On the wire", "//! # Connections"), ("//! # Rights", "//! # What is not")] {
        let section =
            module.split(from).nth(1).and_then(|rest| rest.split(to).next()).expect("another heading");
        let fenced = section.split("```").nth(1).unwrap_or_default();
        let rules = fenced.lines().skip(1).map(|line| line.trim_start_matches("//!").trim());
        let rest = section.replace(fenced, "").replace("```", "");
        for told in
            rules.chain(quoted(&rest)).filter(|told| told.starts_with(['+', '~', '-']) || told.contains(':'))
        {
            assert!(operators.contains(told), "expected {told:?} in docs/redis.md as in src/redis.rs");
        }
    }
}

/// Pages list every method to implement and every event to look up.
#[test]
fn pages_list_all_methods_of_a_backend_and_all_warnings() {
    let source = page("src/lock/backend.rs");
    let methods = source.split("pub trait Backend").nth(1).unwrap().lines();
    let methods: Vec<&str> = methods
        .filter_map(|line| line.strip_prefix("    fn "))
        .map(|line| line.split(['(', '<']).next().unwrap())
        .collect();
    assert!(methods.len() > 12, "expected more than 12 methods, and found {methods:?}");
    let checklist = page("docs/own-backend.md");
    for method in methods {
        assert!(checklist.contains(&format!("| `{method}` |")), "expected {method} in docs/own-backend.md");
    }
    let troubles = page("docs/troubleshooting.md");
    let mut warnings = 0;
    for row in page("src/lock.rs").lines().filter(|line| line.starts_with("//! | WARN |")) {
        let event = quoted(row)[0];
        assert!(troubles.contains(&format!("| `{event}`")), "expected {event} in docs/troubleshooting.md");
        warnings += 1;
    }
    assert!(warnings > 8, "expected more than 8 warnings, and found {warnings}");
}

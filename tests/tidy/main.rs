//! Rules of this repository that a text search can check.

mod api;
mod circles;
mod comments;
mod imports;
mod options;
mod pages;

use std::fs;
use std::path::{Path, PathBuf};

fn root(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn page(path: &str) -> String {
    fs::read_to_string(root(path)).unwrap()
}

/// Returns the Rust files in `folder`, subfolders included.
fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut folders = vec![root(folder)];
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
    assert!(!files.is_empty(), "expected files in {folder}, and found none");
    files
}

/// Returns a module of `src`: its file, and the files in the folder of the same name.
fn module(name: &str) -> Vec<(PathBuf, String)> {
    let file = format!("src/{name}.rs");
    let folder = format!("src/{name}");
    let inside = if root(&folder).exists() { sources(&folder) } else { Vec::new() };
    [(root(&file), page(&file))].into_iter().chain(inside).collect()
}

fn lines(files: &[(PathBuf, String)]) -> impl Iterator<Item = (String, &str)> {
    files.iter().flat_map(|(path, text)| {
        let place = move |number: usize| format!("{}:{}", path.display(), number + 1);
        text.lines().enumerate().map(move |(number, line)| (place(number), line))
    })
}

/// Returns a line without its comment.
fn code(line: &str) -> &str {
    line.split("//").next().unwrap_or_default()
}

/// Returns the texts between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

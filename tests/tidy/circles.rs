//! Files of a folder import each other in one direction only.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::{root, sources};

type Module = Vec<String>;

/// Returns all modules of the crate rooted in `folder`, with text. Binaries are crates of their own.
fn modules(folder: &str) -> BTreeMap<Module, String> {
    let files = sources(folder).into_iter().map(|(path, text)| {
        let inside = path.strip_prefix(root(folder)).unwrap().with_extension("");
        let parts = inside.iter().map(|part| part.to_string_lossy().into_owned());
        (parts.filter(|part| !["lib", "main", "mod"].contains(&&**part)).collect::<Module>(), text)
    });
    files.filter(|(module, _)| module.first().is_none_or(|part| part != "bin")).collect()
}

/// Returns the paths in the file's `use` items, braces resolved, without imports for documentation.
fn imports(module: &[String], text: &str) -> Vec<Module> {
    fn expand(at: Module, tree: &str, found: &mut Vec<Module>) {
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
    // Imports of tests are indented.
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

fn arrows(folder: &str) -> Vec<(Module, Module)> {
    let modules = modules(folder);
    let mut arrows = Vec::new();
    for (module, text) in &modules {
        for import in imports(module, text) {
            // Up to the first part that is no file, an item.
            let files = (0..=import.len()).rev().map(|len| &import[..len]);
            let to = files.into_iter().find(|to| modules.contains_key(*to));
            arrows.extend(to.map(|to| (module.clone(), to.to_vec())));
        }
    }
    arrows
}

fn assert_no_circle(folder: &str, arrows: impl IntoIterator<Item = (Module, Module)>) {
    let mut rooms: BTreeMap<Module, BTreeSet<Module>> = BTreeMap::new();
    for (here, there) in arrows {
        rooms.entry(here).or_default().insert(there);
    }
    // Remove rooms without imports from remaining rooms, and rooms that no remaining room imports.
    while !rooms.is_empty() {
        let left = rooms.clone();
        rooms.retain(|room, own| {
            own.retain(|to| left.contains_key(to));
            !own.is_empty() && left.values().any(|of| of.contains(room))
        });
        assert!(rooms.len() < left.len(), "{folder}: expected no circle, and found one among {rooms:#?}");
    }
}

/// A folder belongs to the file of its name, and counts with that file.
#[test]
fn no_folder_has_an_import_circle() {
    let crates = ["benches/src", "src", "xtask/src"];
    let folders_in = |folder: &str, source: &str| -> Vec<String> {
        let entries = fs::read_dir(root(folder)).unwrap().map(|entry| entry.unwrap());
        let folders = entries.filter(|entry| entry.path().is_dir());
        folders
            .map(|entry| format!("{folder}/{}{source}", entry.file_name().display()))
            .filter(|folder| root(folder).is_dir())
            .collect()
    };
    let binaries = folders_in("checks/threads/src/bin", "");
    let packages = [folders_in("examples", "/src"), folders_in("checks", "/src"), binaries].concat();
    for folder in crates.map(str::to_owned).into_iter().chain(packages) {
        let beside = arrows(&folder).into_iter().filter_map(|(here, there)| {
            let shared = here.iter().zip(&there).take_while(|(here, there)| here == there).count();
            let is_beside = shared < here.len() && shared < there.len();
            is_beside.then(|| (here[..=shared].to_vec(), there[..=shared].to_vec()))
        });
        assert_no_circle(&folder, beside);
    }
}

/// A file may know the files of its folder, but not the reverse.
#[test]
fn redis_has_no_import_circle() {
    let is_redis = |module: &Module| module.first().is_some_and(|part| part == "redis");
    let imports = arrows("src").into_iter().filter(|(here, there)| is_redis(here) && is_redis(there));
    let files = modules("src").into_keys().filter(|module| is_redis(module) && module.len() > 1);
    let owned = files.map(|module| (module[..module.len() - 1].to_vec(), module));
    assert_no_circle("src/redis", imports.chain(owned).filter(|(here, there)| here != there));
}

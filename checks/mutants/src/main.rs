//! `lock-mutants FROM TO`: copies the workspace FROM to TO. In the copy, each mutant of the lock is a branch
//! that an environment variable selects (`switch.rs`), so one build holds all mutants, except for those that
//! fail to compile. `cargo xtask verify lock-mutants` runs this program, and then the mutants.
//!
//! Beside TO, writes `mutants.tsv`: for each mutant its number, the file's hash, and the name.

mod compile;
mod lua;
mod rust;
mod site;
mod weave;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use defects::copy;

use crate::site::{Change, Site};

/// Modules to mutate, with the modules in their folders.
const MODULES: [&str; 4] = ["src/lock_entry", "src/local", "src/lock", "src/redis"];

/// Source of the copy's module that selects the mutant.
const SWITCH: &str = include_str!("switch.rs");

/// Hooks for mutants of scripts: a file, a text in the file, and its replacement.
const SCRIPTS: [(&str, &str, &str); 3] = [
    (
        "src/redis/scripts.rs",
        "let text = without_comments(source);",
        "let text = crate::mutants::script(&without_comments(source));",
    ),
    (
        "src/redis/scripts.rs",
        "(&self.sha1, &self.text)",
        "crate::mutants::called(&self.text); (&self.sha1, &self.text)",
    ),
    // For scripts sent by tests themselves.
    (
        "tests/redis/scripts/refusals.rs",
        r#"cmd("EVAL").arg(text)"#,
        r#"cmd("EVAL").arg(latchwork::mutants::script_called(&text))"#,
    ),
];

fn main() -> Result<()> {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let [from, to] = &arguments[..] else { anyhow::bail!("lock-mutants FROM TO") };
    fs::create_dir_all(to)?;
    let to = &to.canonicalize()?;
    let mut sources = Sources::read(from)?;
    let total = sources.mutants.len();
    let left_out = to.with_file_name("left-out.txt");
    let mut rejected: BTreeSet<String> =
        fs::read_to_string(&left_out).unwrap_or_default().lines().map(str::to_owned).collect();
    loop {
        sources.mutants.retain(|_, (name, ..)| !rejected.contains(name));
        let woven = sources.write(to)?;
        let more = compile::rejected(to, &woven)?;
        if more.is_empty() {
            break;
        }
        eprintln!("{} mutants do not compile", more.len());
        rejected.extend(more.iter().map(|number| sources.mutants[number].0.clone()));
        fs::write(&left_out, rejected.iter().flat_map(|name| [name, "\n"]).collect::<String>())?;
    }
    let line = |(number, (name, file, _)): (&u32, &(String, String, Site))| {
        format!("{number}\t{:016x}\t{name}\n", hash(&sources.texts[file]))
    };
    fs::write(to.with_file_name("mutants.tsv"), sources.mutants.iter().map(line).collect::<String>())?;
    let left = sources.mutants.len();
    println!("{total} mutants, {} of which do not compile; {left} are left", total - left);
    Ok(())
}

fn hash(text: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

struct Sources {
    /// By path from the root.
    texts: BTreeMap<String, Vec<u8>>,
    /// Name, file and place, by number.
    mutants: BTreeMap<u32, (String, String, Site)>,
}

impl Sources {
    fn read(root: &Path) -> Result<Self> {
        let texts = copy::read(root)?;
        let (mut found, mut of_tests) = (Vec::new(), Vec::new());
        for (path, text) in texts.iter().filter(|(path, _)| is_mutated(path)) {
            let text = std::str::from_utf8(text).with_context(|| format!("{path} is no text"))?;
            let sites = if path.ends_with(".lua") {
                lua::sites(text)
            } else {
                let (sites, modules) = rust::sites(text);
                let folder = path.strip_suffix(".rs").unwrap_or_default();
                of_tests.extend(modules.into_iter().map(|module| format!("{folder}/{module}")));
                sites
            };
            found.extend(sites.into_iter().map(|site| (path.clone(), site)));
        }
        let is_of_tests = |path: &str| of_tests.iter().any(|module| is_in(module, path));
        let mut times: HashMap<String, usize> = HashMap::new();
        let named = found.into_iter().filter(|(path, _)| !is_of_tests(path)).map(|(path, site)| {
            let mut name = format!("{path} {}: {}", site.function, site.what);
            let times = times.entry(name.clone()).or_default();
            *times += 1;
            if *times > 1 {
                name += &format!(" #{times}");
            }
            (name, path, site)
        });
        let mutants = (1..).zip(named).collect();
        Ok(Self { texts, mutants })
    }

    fn write(&self, to: &Path) -> Result<BTreeMap<String, weave::Places>> {
        let mut woven = BTreeMap::new();
        let mut files = self.texts.clone();
        for (path, text) in self.texts.iter().filter(|(path, _)| is_mutated(path)) {
            let own = self.mutants.iter().filter(|(_, (_, file, _))| file == path);
            let sites: Vec<_> = own.map(|(number, (_, _, site))| (*number, site)).collect();
            let (text, places) = weave::weave(std::str::from_utf8(text)?, &sites);
            files.insert(path.clone(), text.into_bytes());
            woven.insert(path.clone(), places);
        }
        hook_scripts(&mut files)?;
        let scripts = self.mutants.iter().filter_map(|(number, (_, _, site))| match &site.change {
            Change::Instead(text) => Some(format!("    ({number}, {text:?}),\n")),
            Change::Around(..) => None,
        });
        let switch = SWITCH.replace("&[/* scripts */]", &format!("&[\n{}]", scripts.collect::<String>()));
        files.insert("src/mutants.rs".to_owned(), switch.into_bytes());
        let library = files.get_mut("src/lib.rs").context("there is no library")?;
        library.extend_from_slice(b"\n#[doc(hidden)]\npub mod mutants;\n");
        // Some mutants look odd without being wrong.
        library.splice(..0, *b"#![allow(warnings, arithmetic_overflow, unconditional_panic)]\n");
        copy::write(to, &files)?;
        Ok(woven)
    }
}

/// Inserts the hooks for mutants of scripts into the library.
fn hook_scripts(files: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    for (path, here, instead) in SCRIPTS {
        let file = files.get_mut(path).with_context(|| format!("there is no {path}"))?;
        let text = std::str::from_utf8(file)?;
        ensure!(text.matches(here).count() == 1, "{path} has not one {here:?}");
        *file = text.replace(here, instead).into_bytes();
    }
    Ok(())
}

fn is_mutated(path: &str) -> bool {
    (path.ends_with(".rs") || path.ends_with(".lua")) && MODULES.iter().any(|module| is_in(module, path))
}

fn is_in(module: &str, path: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.starts_with('/') || rest == ".rs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_called_where_the_copy_hooks_them() -> Result<()> {
        let mut sources = Sources::read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))?;
        hook_scripts(&mut sources.texts)
    }
}

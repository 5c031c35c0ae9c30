//! Programs that readers copy, each alone in an empty package outside the workspace, with the dependencies
//! that the program's own page adds.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use latchwork_testkit::RedisServer;
use xshell::{Shell, cmd};

use crate::steps::Steps;
use crate::workspace::Workspace;

/// Checks the recipes, runs the README's programs, and checks the words of compile errors.
pub(crate) fn run(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let recipes = workspace.root().join("examples/recipes");
    steps.run("each recipe alone", || {
        for file in rust_files(&recipes.join("src/bin"))? {
            let program = Program::read(&file)?;
            ensure!(program.dependencies.contains("latchwork"), "{file:?} does not say what to `cargo add`");
            program.cargo(workspace, &["check"])?;
        }
        Ok(())
    })?;
    steps.run("programs of README.md", || {
        let page = fs::read_to_string(workspace.root().join("README.md"))?;
        let blocks = blocks(&page);
        let of = |language: &'static str| {
            blocks.iter().filter(move |block| block.0 == language).map(|block| block.1)
        };
        // Each program is followed by its output, and the first also by its line for Redis.
        let programs: Vec<&str> = of("rust").filter(|code| code.contains("fn main()")).collect();
        let outputs: Vec<&str> = of("text").collect();
        ensure!(programs.len() == outputs.len(), "expected an output for each program");
        let (lock, over_redis) = (programs[0], of("rust,ignore").next().context("no line for Redis")?);
        let in_memory =
            lock.lines().find(|line| line.contains("LockClient::local()")).context("no client")?;
        let server = RedisServer::try_start()?;
        let lock_over_redis = lock.replace(in_memory, over_redis).replace("redis://127.0.0.1", &server.url());
        let programs = programs.iter().map(|code| (*code).to_owned()).chain([lock_over_redis]);
        for (at, (code, shown)) in programs.zip(outputs.iter().chain(&outputs[..1])).enumerate() {
            let program = Program { name: format!("readme_{at}"), code, dependencies: dependencies(&page)? };
            let said = program.cargo(workspace, &["run"])?;
            ensure!(said.trim() == shown.trim(), "README.md shows another output than program {at}:\n{said}");
        }
        Ok(())
    })?;
    steps.run("compile errors", || {
        for file in rust_files(&recipes.join("wrong"))? {
            let program = Program::read(&file)?;
            let said = match program.cargo(workspace, &["check"]) {
                Ok(_) => anyhow::bail!("{file:?} compiles"),
                Err(error) => format!("{error:#}"),
            };
            for line in program.code.lines().filter_map(|line| line.trim().strip_prefix("//~ ")) {
                ensure!(said.contains(line), "{file:?}: expected {line:?} in\n{said}");
            }
        }
        Ok(())
    })
}

struct Program {
    name: String,
    code: String,
    /// Lines of TOML.
    dependencies: String,
}

impl Program {
    fn read(file: &Path) -> Result<Program> {
        let name = file.file_stem().context("no name")?.to_string_lossy().into_owned();
        let code = fs::read_to_string(file).with_context(|| format!("cannot read {file:?}"))?;
        let dependencies = dependencies(&code)?;
        Ok(Program { name, code, dependencies })
    }

    /// Runs a command of cargo on the program as a package; returns its standard output, or an error with the
    /// compiler's words.
    fn cargo(&self, workspace: &Workspace, args: &[&str]) -> Result<String> {
        let Program { name, code, dependencies } = self;
        let all = workspace.target_dir().join("alone");
        let package = all.join(name);
        let shell = Shell::new()?;
        shell.create_dir(&package)?;
        shell.change_dir(&package);
        shell.write_file("src/main.rs", code)?;
        // This crate instead of a published one.
        let ours = format!("latchwork = {{ path = {:?}", workspace.root());
        let dependencies = dependencies.replace("latchwork = { version = \"*\"", &ours);
        let manifest = format!(
            "[package]\nname = \"{name}\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n{dependencies}"
        );
        shell.write_file("Cargo.toml", manifest)?;
        // The versions of the workspace, without a look into the registry where none is missing.
        shell.copy_file(workspace.root().join("Cargo.lock"), "Cargo.lock")?;
        let (cargo, target) = (&workspace.cargo, all.join("target"));
        let command = cmd!(shell, "{cargo} {args...} --quiet --target-dir {target}").quiet().ignore_status();
        let output = command.output()?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        ensure!(output.status.success(), "{name} alone:\n{}", text(&output.stderr));
        Ok(text(&output.stdout))
    }
}

/// Translates each `cargo add name --features a,b` of a text to a line of a manifest.
fn dependencies(text: &str) -> Result<String> {
    let mut all = BTreeMap::<&str, Vec<&str>>::new();
    for command in text.split("cargo add ").skip(1) {
        let command = command.split(['\n', '`']).next().unwrap_or_default();
        let mut words = command.split(" && ").next().unwrap_or_default().split_whitespace();
        let name = words.find(|word| *word != "--path").context("`cargo add` without a name")?;
        let name = name.trim_start_matches("../");
        let features = words.skip_while(|word| *word != "--features").nth(1).unwrap_or_default();
        all.entry(name).or_default().extend(features.split(',').filter(|feature| !feature.is_empty()));
    }
    let line = |(name, features)| format!("{name} = {{ version = \"*\", features = {features:?} }}\n");
    Ok(all.into_iter().map(line).collect())
}

/// Returns the fenced blocks of a page, each with its language.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    page.split("```").skip(1).step_by(2).filter_map(|block| block.split_once('\n')).collect()
}

fn rust_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {folder:?}"))?;
    let mut files = entries.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::{blocks, dependencies};

    #[test]
    fn commands_become_lines_of_a_manifest() {
        let text = "//! cargo add a --features b,c\ncargo add d && cargo add e --features full\n\
                    `cargo add --path ../d --features f`";
        let lines = [
            "a = { version = \"*\", features = [\"b\", \"c\"] }",
            "d = { version = \"*\", features = [\"f\"] }",
            "e = { version = \"*\", features = [\"full\"] }",
        ];
        assert_eq!(dependencies(text).unwrap().lines().collect::<Vec<_>>(), lines);
    }

    #[test]
    fn blocks_have_their_languages() {
        let page = "text\n```rust\nfn main() {}\n```\nmore\n```text\nhello\n```\n";
        assert_eq!(blocks(page), [("rust", "fn main() {}\n"), ("text", "hello\n")]);
    }
}

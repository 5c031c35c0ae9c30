//! The test binaries: built by cargo, but run by xtask, side by side.

use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use cargo_metadata::{Message, TargetKind};

#[derive(Debug)]
pub(crate) struct Binary {
    /// The target, and its package if that is not the workspace's root package.
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// The package's folder, in which cargo would run the tests.
    folder: PathBuf,
}

impl Binary {
    /// A binary without tests, to run in `folder`.
    pub(crate) fn new(name: &str, path: PathBuf, folder: &Path) -> Self {
        Self { name: name.to_owned(), path, folder: folder.to_owned() }
    }

    /// The command to run it, with the harness's arguments.
    pub(crate) fn command(&self, args: &[String]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(args).current_dir(&self.folder).env("CARGO_MANIFEST_DIR", &self.folder);
        command
    }
}

/// Builds by cargo's `command`, in the workspace at `root`, and returns the tests. Prints cargo's messages.
pub(crate) fn build(mut command: Command, root: &Path) -> Result<Vec<Binary>> {
    command.args(["--message-format", "json-render-diagnostics"]).stdout(Stdio::piped());
    let mut cargo = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
    let output = BufReader::new(cargo.stdout.take().context("its output is piped")?);
    let mut binaries = Vec::new();
    for message in Message::parse_stream(output) {
        let Message::CompilerArtifact(artifact) = message.context("cannot read what cargo says")? else {
            continue;
        };
        let Some(path) = artifact.executable.filter(|_| artifact.profile.test) else { continue };
        let folder = artifact.manifest_path.parent().context("a manifest is in a folder")?;
        let target = &artifact.target;
        let name = match target.kind.first() {
            Some(TargetKind::Test) if folder.as_std_path() == root => target.name.clone(),
            Some(TargetKind::Test) => {
                format!("{} of {}", target.name, folder.file_name().unwrap_or_default())
            }
            _ => format!("unit tests of {}", target.name),
        };
        binaries.push(Binary { name, path: path.into(), folder: folder.into() });
    }
    ensure!(cargo.wait()?.success(), "the build failed");
    Ok(binaries)
}

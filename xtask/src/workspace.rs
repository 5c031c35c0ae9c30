//! The repository's location, and commands to run there.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use cargo_metadata::{Metadata, MetadataCommand, Package};
use xshell::Shell;

/// Features that are not for users of the library: `default` only names others, `loom` is for our models.
const NOT_PUBLIC: [&str; 2] = ["default", "loom"];

pub(crate) struct Workspace {
    /// Runs commands in the workspace's root, whatever the current directory was.
    pub(crate) shell: Shell,
    /// The cargo that runs xtask: every step uses the same toolchain.
    pub(crate) cargo: OsString,
    root: PathBuf,
}

impl Workspace {
    pub(crate) fn open() -> Result<Workspace> {
        let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
        Self::at(xtask.parent().context("xtask lies in the root directory, not in a workspace")?.to_owned())
    }

    pub(crate) fn at(root: PathBuf) -> Result<Workspace> {
        let shell = Shell::new().context("cannot find out the current directory")?;
        shell.change_dir(&root);
        Ok(Workspace { shell, cargo: env::var_os("CARGO").unwrap_or_else(|| "cargo".into()), root })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn target_dir(&self) -> PathBuf {
        self.root.join(env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
    }

    pub(crate) fn metadata(&self) -> Result<Metadata> {
        MetadataCommand::new()
            .cargo_path(&self.cargo)
            .current_dir(&self.root)
            .exec()
            .context("cannot read the workspace's metadata")
    }
}

pub(crate) fn library(metadata: &Metadata) -> Result<&Package> {
    metadata.root_package().context("the workspace's root has no package")
}

/// The library's features for users.
pub(crate) fn public_features(library: &Package) -> Vec<&str> {
    library.features.keys().map(String::as_str).filter(|feature| !NOT_PUBLIC.contains(feature)).collect()
}

//! [`Build`]: a package of `checks`, compiled for one tool.

use anyhow::{Context, Result};
use xshell::{Cmd, cmd};

use crate::rustflags;
use crate::workspace::Workspace;

#[derive(Clone, Copy)]
pub(crate) struct Build {
    /// The cfg for the library's substitutes.
    pub(crate) cfg: &'static str,
    /// A sanitizer, if any.
    pub(crate) sanitizer: Option<&'static str>,
    /// A directory of its own below cargo's, because the flags apply to every crate: switching in the usual
    /// directory would rebuild everything.
    pub(crate) target_dir: &'static str,
}

impl Build {
    /// cargo's `subcommand` on the package, with these settings, and optimised for long checks.
    pub(crate) fn cargo<'a>(
        &self,
        workspace: &'a Workspace,
        subcommand: &str,
        package: &str,
    ) -> Result<Cmd<'a>> {
        Ok(self.unoptimised(workspace, subcommand, package)?.arg("--release"))
    }

    pub(crate) fn unoptimised<'a>(
        &self,
        workspace: &'a Workspace,
        subcommand: &str,
        package: &str,
    ) -> Result<Cmd<'a>> {
        let Workspace { shell, cargo, .. } = workspace;
        let target_dir = workspace.target_dir().join(self.target_dir);
        let mut flags = vec!["--cfg", self.cfg];
        let sanitizer = self.sanitizer.map(|sanitizer| format!("-Zsanitizer={sanitizer}"));
        if let Some(sanitizer) = &sanitizer {
            // Without the second flag, std would have to be built with the sanitizer, too.
            flags.extend([sanitizer, "-Cunsafe-allow-abi-mismatch=sanitizer"]);
        }
        let (variable, flags) = rustflags::with(&flags)?;
        let mut command = cmd!(shell, "{cargo} {subcommand} --package {package} --target-dir {target_dir}")
            .env(variable, flags)
            // Further checks.
            .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true");
        if self.sanitizer.is_some() {
            command = command
                // Naming the target keeps the sanitizer out of build scripts and macros.
                .args(["--target", &host(workspace)?])
                // Sanitizers are unstable.
                .env("RUSTC_BOOTSTRAP", "1")
                // Line numbers in the reports.
                .env("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only");
        }
        Ok(command)
    }
}

/// The target of this machine.
pub(super) fn host(workspace: &Workspace) -> Result<String> {
    let Workspace { shell, cargo, .. } = workspace;
    let version = cmd!(shell, "{cargo} -vV").quiet().read()?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    Ok(host.context("cargo does not say what it runs on")?.to_owned())
}

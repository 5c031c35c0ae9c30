//! Installs packages with the system's package manager.

use std::env;
use std::fs::File;
use std::io::{self, IsTerminal};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use xshell::{Cmd, Shell, cmd};

/// A package, with its name in each package manager.
pub(crate) struct SystemPackage {
    pub(crate) apt: &'static str,
    /// `None` if Homebrew has no such package.
    pub(crate) brew: Option<&'static str>,
    /// The user's alternative, as the end of a sentence.
    pub(crate) otherwise: String,
}

impl SystemPackage {
    /// Installs the package unless `is_there`.
    pub(crate) fn install(&self, shell: &Shell, is_there: impl Fn() -> bool) -> Result<()> {
        // Package managers do not wait for each other. Two runs of xtask, even of different checkouts, meet
        // at the directory for temporary files: locking it leaves no file, and hinders no other use.
        let meeting_point = env::temp_dir();
        let lock = File::open(&meeting_point)
            .and_then(|dir| flock(&dir, FlockOperation::LockExclusive).map(|()| dir).map_err(io::Error::from))
            .with_context(|| format!("cannot lock {} to install {}", meeting_point.display(), self.apt))?;
        // The previous run may have installed the package.
        let result = if is_there() { Ok(()) } else { self.install_with_package_manager(shell) };
        drop(lock);
        result
    }

    fn install_with_package_manager(&self, shell: &Shell) -> Result<()> {
        let Self { apt, brew, otherwise } = self;
        match brew {
            Some(brew) if cfg!(target_os = "macos") && succeeds(shell, "brew") => {
                cmd!(shell, "brew install {brew}").run()?;
            }
            _ if succeeds(shell, "apt-get") => {
                // An outdated package list may still suffice, so only the installation has to succeed.
                if let Err(error) = apt_get(shell).arg("update").run() {
                    eprintln!("warning: {error}");
                }
                // The option waits for another apt-get, such as the system's own updates.
                apt_get(shell)
                    .args([
                        "install",
                        "--yes",
                        "--no-install-recommends",
                        "-o",
                        "DPkg::Lock::Timeout=300",
                        apt,
                    ])
                    .run()
                    .with_context(|| format!("cannot install {apt} (do it yourself, or {otherwise})"))?;
            }
            _ => bail!(
                "{apt} is not installed, and there is no package manager here that I know: install it yourself, \
                 or {otherwise}"
            ),
        }
        Ok(())
    }
}

/// True if the program exists and runs.
pub(crate) fn succeeds(shell: &Shell, program: &str) -> bool {
    cmd!(shell, "{program} --version").quiet().ignore_stdout().ignore_stderr().run().is_ok()
}

/// apt-get as root, without questions.
fn apt_get(shell: &Shell) -> Cmd<'_> {
    let env = if geteuid().is_root() {
        cmd!(shell, "env")
    } else if io::stdin().is_terminal() {
        cmd!(shell, "sudo env")
    } else {
        // There is no terminal to type a password at: fail instead of waiting for one.
        cmd!(shell, "sudo -n env")
    };
    // Set on sudo's far side, because sudo clears the environment.
    env.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"])
}

//! Installing what the system's package manager has.

use std::env;
use std::fs::File;
use std::io::{self, IsTerminal};

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use xshell::{Cmd, Shell, cmd};

/// A package, under the names that package managers know it by.
pub(crate) struct SystemPackage {
    pub(crate) apt: &'static str,
    /// `None` where there is none.
    pub(crate) brew: Option<&'static str>,
    /// What else our user can do, as the end of a sentence.
    pub(crate) otherwise: String,
}

impl SystemPackage {
    /// Installs the package unless `is_there`.
    pub(crate) fn install(&self, shell: &Shell, is_there: impl Fn() -> bool) -> Result<()> {
        // Package managers do not wait for each other. Two of us, from different checkouts even, meet at the
        // directory for temporary files: locking it leaves no file behind, and hinders no other use of it.
        let meeting_point = env::temp_dir();
        let lock = File::open(&meeting_point)
            .and_then(|dir| flock(&dir, FlockOperation::LockExclusive).map(|()| dir).map_err(io::Error::from))
            .with_context(|| format!("cannot lock {} to install {}", meeting_point.display(), self.apt))?;
        // The one before us may just have done it.
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
                // A package list that is old in part may still know it, so only the installation has to
                // succeed.
                if let Err(error) = apt_get(shell).arg("update").run() {
                    eprintln!("warning: {error}");
                }
                // The option waits for an apt-get that is not ours, such as the system's own updates.
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

/// Whether there is such a program, and it runs.
pub(crate) fn succeeds(shell: &Shell, program: &str) -> bool {
    cmd!(shell, "{program} --version").quiet().ignore_stdout().ignore_stderr().run().is_ok()
}

/// apt-get as root, asking no questions.
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

//! Makes sure that there is a Redis server to test against.

use std::env;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use latchwork_testkit::{NotFound, SERVER_VARIABLE, find_server};
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use xshell::{Cmd, Shell, cmd};

/// The server's path, after installing one with the system's package manager if there is none. Commands that run in
/// `shell` from now on find the same server.
pub(crate) fn ensure(shell: &Shell) -> Result<PathBuf> {
    let server = match find_server() {
        Err(NotFound::NotInstalled) => {
            install(shell)?;
            find_server().context("the installation went well, yet")?
        }
        found => found?,
    };
    eprintln!("using {}", server.display());
    shell.set_var(SERVER_VARIABLE, &server);
    Ok(server)
}

fn install(shell: &Shell) -> Result<()> {
    // Package managers do not wait for each other. Two of us, from different checkouts even, meet at the directory for
    // temporary files: locking it leaves no file behind, and keeps nobody from using it.
    let meeting_point = env::temp_dir();
    let lock = File::open(&meeting_point)
        .and_then(|dir| flock(&dir, FlockOperation::LockExclusive).map(|()| dir).map_err(io::Error::from))
        .with_context(|| format!("cannot lock {} to install a Redis server", meeting_point.display()))?;
    // The one before us may just have done it.
    let result = if find_server().is_ok() { Ok(()) } else { install_with_package_manager(shell) };
    drop(lock);
    result
}

fn install_with_package_manager(shell: &Shell) -> Result<()> {
    if cfg!(target_os = "macos") && succeeds(shell, "brew") {
        cmd!(shell, "brew install redis").run()?;
    } else if succeeds(shell, "apt-get") {
        // A package list that is old in part may still know a server, so only the installation has to succeed.
        if let Err(error) = apt_get(shell).arg("update").run() {
            eprintln!("warning: {error}");
        }
        // The option waits for an apt-get that is not ours, such as the system's own updates.
        apt_get(shell)
            .args(["install", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", "redis-server"])
            .run()
            .with_context(|| {
                format!("cannot install redis-server (do it yourself, or set {SERVER_VARIABLE} to the path of one)")
            })?;
    } else {
        bail!(
            "neither redis-server nor valkey-server is on PATH, and there is no package manager here that I know: \
             install the package `redis` or `valkey`, or set {SERVER_VARIABLE} to the path of a server"
        );
    }
    Ok(())
}

fn succeeds(shell: &Shell, program: &str) -> bool {
    cmd!(shell, "{program} --version").quiet().ignore_stdout().ignore_stderr().run().is_ok()
}

/// apt-get as root, asking no questions.
fn apt_get(shell: &Shell) -> Cmd<'_> {
    let env = if geteuid().is_root() {
        cmd!(shell, "env")
    } else if io::stdin().is_terminal() {
        cmd!(shell, "sudo env")
    } else {
        // Nobody is there to type a password: fail instead of waiting for one.
        cmd!(shell, "sudo -n env")
    };
    // Set on sudo's far side, because sudo clears the environment.
    env.args(["DEBIAN_FRONTEND=noninteractive", "apt-get"])
}

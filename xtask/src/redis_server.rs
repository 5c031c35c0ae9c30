//! Makes sure that a Redis server is installed for the tests.

use std::path::PathBuf;

use anyhow::{Context, Result};
use latchwork_testkit::{NotFound, SERVER_VARIABLE, find_server};
use xshell::Shell;

use crate::system_package::SystemPackage;

/// The server's path, after installing one if there is none. Later commands in `shell` find it, too.
pub(crate) fn ensure(shell: &Shell) -> Result<PathBuf> {
    let server = match find_server() {
        Err(NotFound::NotInstalled) => {
            let package = SystemPackage {
                apt: "redis-server",
                brew: Some("redis"),
                otherwise: format!("install Valkey, or set {SERVER_VARIABLE} to the path of a server"),
            };
            package.install(shell, || find_server().is_ok())?;
            find_server().context("the installation went well, yet")?
        }
        found => found?,
    };
    eprintln!("using {}", server.display());
    shell.set_var(SERVER_VARIABLE, &server);
    Ok(server)
}

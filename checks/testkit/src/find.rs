//! The choice of the server to run.

use std::env;
use std::path::PathBuf;
use std::process::Command;

/// The environment variable that names the server to run.
pub const SERVER_VARIABLE: &str = "REDIS_SERVER";

/// Why no server was found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// [`SERVER_VARIABLE`] is not set, and no server is installed.
    #[error(
        "neither redis-server nor valkey-server is on PATH: run `cargo xtask test`, which installs one, \
         or set {SERVER_VARIABLE} to the path of one"
    )]
    NotInstalled,

    /// [`SERVER_VARIABLE`] names a file that cannot be run.
    #[error("{SERVER_VARIABLE} is set to {}, which is not a program that can be run", .0.display())]
    NotRunnable(PathBuf),
}

/// True if the server to run is older than 7.0, and does not know the settings of 7.0.
#[must_use]
pub fn is_older_than_7() -> bool {
    let version = find_server().ok().and_then(|server| Command::new(server).arg("--version").output().ok());
    version.is_some_and(|version| String::from_utf8_lossy(&version.stdout).contains("v=6."))
}

/// The server to run: the program that [`SERVER_VARIABLE`] names, or else `redis-server` or `valkey-server`
/// from `PATH`. [`NotFound`] says in one sentence how to fix it. A variable that names no program is an error
/// and never falls back to `PATH`: the tests would then pass against the wrong server.
pub fn find_server() -> Result<PathBuf, NotFound> {
    if let Some(chosen) = env::var_os(SERVER_VARIABLE).filter(|value| !value.is_empty()) {
        return which::which(&chosen).map_err(|_| NotFound::NotRunnable(chosen.into()));
    }
    ["redis-server", "valkey-server"]
        .into_iter()
        .find_map(|name| which::which(name).ok())
        .ok_or(NotFound::NotInstalled)
}

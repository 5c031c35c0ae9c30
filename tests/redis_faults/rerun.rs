//! Runs one test of this binary in another process.

use std::env;
use std::process::Command;

/// The command for the test `name` of `module` (a `module_path!()`), and no other test.
pub(crate) fn command(module: &str, name: &str) -> Command {
    let (_crate_name, module) = module.split_once("::").expect("a test of a module");
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", &format!("{module}::{name}"), "--nocapture"]);
    command
}

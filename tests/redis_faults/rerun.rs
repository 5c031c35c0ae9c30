//! This test binary, run once more for one test.

use std::env;
use std::process::Command;

/// A process that runs the test `name` of `module`, which is a `module_path!()`, and no other.
pub(crate) fn command(module: &str, name: &str) -> Command {
    let (_crate_name, module) = module.split_once("::").expect("a test of a module");
    let mut command = Command::new(env::current_exe().unwrap());
    command.args(["--exact", &format!("{module}::{name}"), "--nocapture"]);
    command
}

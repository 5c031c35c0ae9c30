//! Runs each recipe as documented. The recipes prove themselves by assertions.

mod drain_on_sigterm;
mod leader;
mod one_process;
mod support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::LazyLock;

use latchwork_testkit::RedisServer;

use self::support::Process;

/// The server of the recipes without a file of their own here.
static SERVER: LazyLock<RedisServer> = LazyLock::new(RedisServer::start);

macro_rules! recipes {
    ($($name:ident)+) => {
        const NAMES: &[&str] = &[$(stringify!($name)),+];

        $(
            #[test]
            fn $name() {
                let recipe = env!(concat!("CARGO_BIN_EXE_", stringify!($name)));
                let mut command = Command::new(recipe);
                assert!(Process::start(command.env("REDIS_URL", SERVER.url())).wait().success());
            }
        )+
    };
}

recipes! {
    axum_lock_per_user
    cache_refresh
    fencing_sqlite
    job_queue
    limit_over_a_fleet
    memory_or_redis
    once_per_period
    one_process
    prometheus
    select_lost
    threads
    tokio_drop_in
    tower_limit
    tracing_a_wait
    two_accounts
}

/// `leader` ends only on a signal, and has a test of its own.
#[test]
fn each_recipe_is_run_and_listed() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let list = fs::read_to_string(package.join("../README.md")).unwrap();
    for file in fs::read_dir(package.join("src/bin")).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(
            NAMES.contains(&name) || package.join(format!("tests/recipes/{name}.rs")).exists(),
            "expected a test of {name}"
        );
        assert!(
            list.contains(&format!("](recipes/src/bin/{name}.rs)")),
            "expected {name} in examples/README.md"
        );
    }
}

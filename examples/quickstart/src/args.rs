//! The command line.

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, value_parser};

use crate::plan::Plan;

/// Count to 20000 with 64 tasks on 4 named locks, and check that no increment is lost
///
/// Each lock protects a plain number. A task acquires its lock, reads the number, lets other tasks run,
/// writes the number plus one, and releases the lock. Two holders at once would overwrite each other's
/// increments, and would meet inside.
///
/// Without --redis all of this happens in one process, without a server. With --redis the locks and the
/// numbers are on a Redis server, and the tasks are divided among child processes.
#[derive(Debug, Parser)]
#[command(name = "quickstart", verbatim_doc_comment, after_long_help = AFTER_HELP)]
pub(crate) struct Args {
    /// Number of tasks; task T works on lock T modulo LOCKS
    #[arg(long, value_name = "TASKS", default_value_t = 64, value_parser = value_parser!(u32).range(1..=10_000))]
    tasks: u32,

    /// Number of locks, each with a number of its own
    #[arg(long, value_name = "LOCKS", default_value_t = 4, value_parser = value_parser!(u32).range(1..=1_000))]
    locks: u32,

    /// Number of increments of all tasks together
    #[arg(
        long, value_name = "INCREMENTS", default_value_t = 20_000,
        value_parser = value_parser!(u64).range(1..=1_000_000_000)
    )]
    increments: u64,

    /// Keep the locks and the numbers on the Redis server at URL; needs a build with `--features redis`
    ///
    /// `redis://[user:password@]host[:port][/database]`; Redis 6.0 or newer. All keys begin with
    /// `latchwork-quickstart:` and a unique run id, and are deleted at the end.
    #[arg(long, value_name = "URL", verbatim_doc_comment)]
    pub(crate) redis: Option<String>,

    /// Number of child processes that share the tasks; only with --redis
    #[arg(
        long, value_name = "PROCESSES", default_value_t = 1,
        value_parser = value_parser!(u32).range(1..=64)
    )]
    pub(crate) processes: u32,

    /// Run as a child process, with an assignment from stdin
    #[arg(long, hide = true, exclusive = true)]
    pub(crate) child: bool,
}

pub(crate) const OVER_REDIS: &str =
    "cargo run --release -p quickstart --features redis -- --redis redis://127.0.0.1 --processes 3";

const AFTER_HELP: &str = "\
The table has one row per lock:
  acquisitions   how often the lock was taken
  hand-off       the time from just before a release until the next holder had the lock, if that task waited
                 already: median and 99th percentile, apart for previous holders of the same process and of
                 another one. Over Redis a hand-off includes the round trip that stores the time
  wakes useful   messages that woke a task which then got the lock
  wakes spurious messages that woke a task which then found that another had been faster

The last lines say how many increments were expected and counted, how often a holder found another one
inside, and what to try next.

Exit code: 0 if all increments are there and no two holders met, 1 if not or if something failed on the way,
2 if the flags make no sense, Redis cannot be reached or this build has none.

Example:
  cargo run --release -p quickstart --features redis -- --redis redis://127.0.0.1:6379 --processes 3";

impl Args {
    /// Parses the command line. Exits on a mistake.
    pub(crate) fn parse_and_check() -> Self {
        let args = Self::parse();
        if cfg!(not(feature = "redis")) && (args.redis.is_some() || args.child) {
            let message =
                "this build has no Redis; build it with `--features redis`, as in the example of --help";
            Self::command().error(ErrorKind::ValueValidation, message).exit();
        }
        if args.processes > 1 && args.redis.is_none() {
            let message = format!(
                "{} processes need a Redis server for their locks; start one (`redis-server`), and run\n  {OVER_REDIS}",
                args.processes
            );
            Self::command().error(ErrorKind::MissingRequiredArgument, message).exit();
        }
        if args.processes > args.tasks {
            let message = format!(
                "{} processes are too many for {} tasks; give each at least one",
                args.processes, args.tasks
            );
            Self::command().error(ErrorKind::ValueValidation, message).exit();
        }
        args
    }

    pub(crate) fn plan(&self) -> Plan {
        Plan { tasks: self.tasks, locks: self.locks, increments: self.increments }
    }
}

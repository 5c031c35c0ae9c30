//! The Lua scripts, one file each, and how they are called.

mod reply;

use ::redis::Cmd;

pub(super) use self::reply::Reply;

pub(super) struct Scripts {
    pub(super) acquire: Script,
    pub(super) release: Script,
    pub(super) holder: Script,
    pub(super) force_release: Script,
    pub(super) renew: Script,
    pub(super) fair: QueueScripts,
    pub(super) write: QueueScripts,
    pub(super) read_acquire: Script,
    pub(super) read_release: Script,
    pub(super) read_write_holders: Script,
}

/// For who wants a lock for itself alone, and waits in a queue.
pub(super) struct QueueScripts {
    pub(super) acquire: Script,
    pub(super) release: Script,
    pub(super) force_release: Script,
}

/// A script of a kind of locks that has a queue: what is common to all of them, and what the kind does differently, stand in front.
macro_rules! of_kind {
    ($kind:literal, $file:literal) => {
        Script::new(concat!(include_str!("scripts/queue.lua"), include_str!($kind), include_str!($file)))
    };
}

macro_rules! queue_scripts {
    ($kind:literal) => {
        QueueScripts {
            acquire: of_kind!($kind, "scripts/queue_acquire.lua"),
            release: of_kind!($kind, "scripts/queue_release.lua"),
            force_release: of_kind!($kind, "scripts/queue_force_release.lua"),
        }
    };
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self {
            acquire: Script::new(include_str!("scripts/acquire.lua")),
            release: Script::new(include_str!("scripts/release.lua")),
            holder: Script::new(include_str!("scripts/holder.lua")),
            force_release: Script::new(include_str!("scripts/force_release.lua")),
            renew: Script::new(include_str!("scripts/renew.lua")),
            fair: queue_scripts!("scripts/fair.lua"),
            write: queue_scripts!("scripts/read_write.lua"),
            read_acquire: of_kind!("scripts/read_write.lua", "scripts/read_acquire.lua"),
            read_release: of_kind!("scripts/read_write.lua", "scripts/read_release.lua"),
            read_write_holders: of_kind!("scripts/read_write.lua", "scripts/read_write_holders.lua"),
        }
    }
}

pub(super) struct Script {
    text: &'static str,
    sha1: String,
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, sha1: ::redis::Script::new(text).get_hash().to_owned() }
    }

    /// By hash: all that a server which knows the script needs.
    pub(super) fn evalsha(&self, keys: &[&str], args: &[&str]) -> Cmd {
        command("EVALSHA", &self.sha1, keys, args)
    }

    /// In full, for a server that does not know the script. It answers as the other would have, and knows it from then on.
    pub(super) fn eval(&self, keys: &[&str], args: &[&str]) -> Cmd {
        command("EVAL", self.text, keys, args)
    }
}

fn command(name: &str, script: &str, keys: &[&str], args: &[&str]) -> Cmd {
    let bytes: usize = keys.iter().chain(args).map(|word| word.len()).sum();
    // The number of the keys is short.
    let mut command = Cmd::with_capacity(3 + keys.len() + args.len(), name.len() + script.len() + 4 + bytes);
    command.arg(name).arg(script).arg(keys.len()).arg(keys).arg(args);
    command
}

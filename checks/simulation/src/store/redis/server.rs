//! [`Server`]: a small Redis in memory, with only the commands that the lock's scripts and the adapter use.
//!
//! The server answers like a real one of [`VERSION`], to the letter of the errors, and is checked against
//! one. Choices that a real server leaves open, such as the order of a large hash, follow a rule here: equal
//! calls have equal replies. The caller passes the time, which stands still during a call. Expired keys are
//! removed at the next look.

mod command;
mod connections;
mod data;
mod glob;
mod hash;
mod number;
mod reply;
mod script;
mod sorted_set;
#[cfg(test)]
mod tests;
mod users;

use std::sync::{Arc, Mutex, MutexGuard};

use self::command::{Call, Command, Misuse};
use self::connections::Connections;
pub(crate) use self::data::{Content, Data, Key};
pub(crate) use self::reply::{Effects, Push, Reply};
use self::script::Scripts;
use self::users::Users;

/// The server's time, in microseconds since the epoch.
pub(crate) type Micros = u64;

pub(crate) const VERSION: &str = "7.0.15";

pub(crate) struct Server {
    core: Arc<Mutex<Core>>,
    scripts: Scripts,
}

/// The condition of a server, for all of its connections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Condition {
    #[default]
    Sound,
    /// Refuses commands that may need memory.
    OutOfMemory,
    /// Refuses writes, as a replica does.
    ReadOnly,
}

/// The part of the server that a running script shares.
struct Core {
    data: Data,
    connections: Connections,
    users: Users,
    condition: Condition,
    now: Micros,
    effects: Effects,
    script: Running,
    commands: u64,
    /// Number of replicas that have all of the data.
    replicas: i64,
}

#[derive(Default)]
struct Running {
    user: Arc<str>,
    /// True once the script has called a command that writes.
    has_written: bool,
}

impl Server {
    pub(crate) fn new() -> Self {
        let core = Core {
            data: Data::default(),
            connections: Connections::default(),
            users: Users::default(),
            condition: Condition::default(),
            now: 0,
            effects: Effects::default(),
            script: Running::default(),
            commands: 0,
            replicas: 0,
        };
        let core = Arc::new(Mutex::new(core));
        Self { scripts: Scripts::new(&core), core }
    }

    /// Denies all users the right to end other connections.
    pub(crate) fn refuse_kill(&mut self) {
        lock(&self.core).users.set("default", &[b"-client|kill"]).expect("this is a rule");
    }

    pub(crate) fn connect(&mut self) -> u64 {
        let mut core = lock(&self.core);
        let user = core.users.at_first();
        core.connections.add(user)
    }

    pub(crate) fn disconnect(&mut self, connection: u64) {
        lock(&self.core).connections.remove(connection);
    }

    /// Runs one command of a connection. Commands over an ended connection have no effect.
    pub(crate) fn call(&mut self, connection: u64, now: Micros, words: &[Vec<u8>]) -> Effects {
        let mut core = lock(&self.core);
        if !core.connections.has(connection) || words.is_empty() {
            return Effects::default();
        }
        core.now = now;
        core.commands += 1;
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let reply = match core.admit(connection, &words) {
            Ok(command) if command.is_script() => {
                drop(core);
                let reply = self.run_script(connection, &words);
                core = lock(&self.core);
                Some(reply)
            }
            Ok(command) => core.run(command, connection, &words),
            Err(refusal) => Some(Reply::Error(refusal)),
        };
        let mut effects = std::mem::take(&mut core.effects);
        effects.reply = reply.map(|reply| match reply {
            // An error fits on one line.
            Reply::Error(text) => Reply::Error(text.replace(['\r', '\n'], " ")),
            reply => reply,
        });
        effects
    }

    /// Drops all data and scripts, like a restart. Connections stay until [ended](Self::disconnect).
    pub(crate) fn forget(&mut self) {
        lock(&self.core).data = Data::default();
        self.scripts.forget();
    }

    pub(crate) fn snapshot(&self) -> Data {
        lock(&self.core).data.clone()
    }

    pub(crate) fn restore(&mut self, data: Data) {
        lock(&self.core).data = data;
    }

    /// Evicts the key, as if memory were short. False if there is no such key.
    pub(crate) fn evict(&mut self, key: &[u8]) -> bool {
        lock(&self.core).data.evict(key)
    }

    pub(crate) fn set_condition(&mut self, condition: Condition) {
        lock(&self.core).condition = condition;
    }

    pub(crate) fn set_replicas(&mut self, count: i64) {
        lock(&self.core).replicas = count;
    }

    /// Returns the live keys, sorted by name.
    pub(crate) fn keys(&self, now: Micros) -> Vec<Key> {
        lock(&self.core).data.list(now)
    }

    pub(crate) fn channels(&self) -> Vec<String> {
        lock(&self.core).connections.channels()
    }

    pub(crate) fn subscriptions(&self) -> usize {
        lock(&self.core).connections.subscriptions()
    }

    pub(crate) fn subscriptions_of(&self, connection: u64) -> usize {
        lock(&self.core).connections.subscriptions_of(connection)
    }

    /// Number of commands run or refused. A script counts as one.
    pub(crate) fn commands(&self) -> u64 {
        lock(&self.core).commands
    }

    fn run_script(&mut self, connection: u64, words: &[&[u8]]) -> Reply {
        match words[0].to_ascii_lowercase().as_slice() {
            b"script" => self.scripts.administer(words),
            name => self.scripts.evaluate(&self.core, connection, name == b"evalsha", words),
        }
        .unwrap_or_else(Reply::Error)
    }
}

impl Core {
    fn admit(&self, connection: u64, words: &[&[u8]]) -> Result<&'static Command, String> {
        let command = Command::named(words[0]).ok_or_else(|| command::unknown(words))?;
        command.check(words).map_err(|misuse| command.explain(misuse, words))?;
        match self.connections.user(connection) {
            Some(user) => self.users.admit(&user, command, words).map_err(|denied| denied.to_connection())?,
            None if !command.needs_no_user() => return Err("NOAUTH Authentication required.".to_owned()),
            None => {}
        }
        match self.condition {
            Condition::OutOfMemory if command.needs_memory() => Err(OUT_OF_MEMORY.to_owned()),
            Condition::ReadOnly if command.writes() => Err(READ_ONLY.to_owned()),
            _ => Ok(command),
        }
    }

    fn run(&mut self, command: &'static Command, connection: u64, words: &[&[u8]]) -> Option<Reply> {
        let is_resp3 = self.connections.is_resp3(connection);
        let mut call = Call { core: self, connection: Some(connection), is_resp3 };
        match command.run(&mut call, words) {
            Ok(reply) => (!command.is_answered_by_pushes()).then_some(reply),
            Err(error) => Some(Reply::Error(error)),
        }
    }

    /// Runs a command of a script. Errors have the form that scripts see.
    fn run_in_script(&mut self, words: &[&[u8]]) -> Result<Reply, String> {
        const UNKNOWN: &str = "ERR Unknown Redis command called from script";
        let command = Command::named(words[0]).ok_or(UNKNOWN)?;
        command.check(words).map_err(|misuse| match misuse {
            Misuse::Unknown => UNKNOWN,
            Misuse::WrongNumber | Misuse::WrongNumberOfPart => {
                "ERR Wrong number of args calling Redis command from script"
            }
        })?;
        if command.is_not_for_scripts() {
            return Err("ERR This Redis command is not allowed from script".to_owned());
        }
        self.users.admit(&self.script.user, command, words).map_err(|denied| denied.to_script())?;
        if command.writes() {
            if self.condition == Condition::ReadOnly {
                return Err(READ_ONLY.to_owned());
            }
            // Earlier writes cannot be undone, so only the first write of a script is refused.
            let is_first = !std::mem::replace(&mut self.script.has_written, true);
            if is_first && self.condition == Condition::OutOfMemory && command.needs_memory() {
                self.script.has_written = false;
                return Err(OUT_OF_MEMORY.to_owned());
            }
        }
        command.run(&mut Call { core: self, connection: None, is_resp3: false }, words)
    }
}

const OUT_OF_MEMORY: &str = "OOM command not allowed when used memory > 'maxmemory'.";
const READ_ONLY: &str = "READONLY You can't write against a read only replica.";

fn lock(core: &Mutex<Core>) -> MutexGuard<'_, Core> {
    core.lock().expect("no command panics")
}

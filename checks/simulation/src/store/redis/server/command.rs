//! The commands: their properties, and the functions that run them.

mod connection;
mod hashes;
mod keys;
mod lists;
mod messages;
mod sorted_sets;
mod strings;

use super::data::{Data, Typed};
use super::{Core, Micros, Reply, number};

pub(super) type Answer = Result<Reply, String>;

pub(super) struct Command {
    name: &'static str,
    /// Number of words including the name; if negative, the minimum.
    arity: i32,
    traits: u8,
    touches: Touches,
    runs: fn(&mut Call<'_>, &[&[u8]]) -> Answer,
}

const WRITES: u8 = 1;
const GROWS: u8 = 2;
/// Works without data, and so while the server loads.
const LOADING: u8 = 4;
const NOT_IN_SCRIPTS: u8 = 8;
/// Runs or manages scripts.
const SCRIPT: u8 = 16;
/// Allowed without a user.
const ANYBODY: u8 = 32;
/// Answers with pushes only.
const PUSHES: u8 = 64;
/// Selects a subcommand by the first argument.
const CONTAINER: u8 = 128;

/// The arguments that are keys or channels.
#[derive(Clone, Copy)]
enum Touches {
    Nothing,
    FirstKey,
    TwoKeys,
    AllKeys,
    /// As many as the second argument says.
    CountedKeys,
    FirstChannel,
    AllChannels,
}

pub(super) enum Touched<'a> {
    Nothing,
    Keys(&'a [&'a [u8]]),
    Channels(&'a [&'a [u8]]),
}

pub(super) struct Call<'a> {
    pub(super) core: &'a mut Core,
    /// `None` in scripts.
    pub(super) connection: Option<u64>,
    pub(super) is_resp3: bool,
}

const fn command(
    name: &'static str,
    arity: i32,
    traits: u8,
    touches: Touches,
    runs: fn(&mut Call<'_>, &[&[u8]]) -> Answer,
) -> Command {
    Command { name, arity, traits, touches, runs }
}

/// Sorted by name.
static COMMANDS: &[Command] = {
    use Touches::{AllChannels, AllKeys, CountedKeys, FirstChannel, FirstKey, Nothing, TwoKeys};
    &[
        command("acl", -2, NOT_IN_SCRIPTS | LOADING | CONTAINER, Nothing, connection::acl),
        command("auth", -2, NOT_IN_SCRIPTS | LOADING | ANYBODY, Nothing, connection::auth),
        command("client", -2, NOT_IN_SCRIPTS | LOADING | CONTAINER, Nothing, connection::client),
        command("dbsize", 1, 0, Nothing, keys::dbsize),
        command("del", -2, WRITES, AllKeys, keys::del),
        command("echo", 2, LOADING, Nothing, connection::echo),
        command("eval", -3, NOT_IN_SCRIPTS | SCRIPT, CountedKeys, by_interpreter),
        command("evalsha", -3, NOT_IN_SCRIPTS | SCRIPT, CountedKeys, by_interpreter),
        command("exists", -2, 0, AllKeys, keys::exists),
        command("flushall", -1, WRITES, Nothing, keys::flushall),
        command("get", 2, 0, FirstKey, strings::get),
        command("hdel", -3, WRITES, FirstKey, hashes::hdel),
        command("hello", -1, NOT_IN_SCRIPTS | LOADING | ANYBODY, Nothing, connection::hello),
        command("hexists", 3, 0, FirstKey, hashes::hexists),
        command("hget", 3, 0, FirstKey, hashes::hget),
        command("hgetall", 2, 0, FirstKey, hashes::hgetall),
        command("hkeys", 2, 0, FirstKey, hashes::hkeys),
        command("hlen", 2, 0, FirstKey, hashes::hlen),
        command("hmget", -3, 0, FirstKey, hashes::hmget),
        command("hscan", -3, 0, FirstKey, hashes::hscan),
        command("hset", -4, WRITES | GROWS, FirstKey, hashes::hset),
        command("incrby", 3, WRITES | GROWS, FirstKey, strings::incrby),
        command("lindex", 3, 0, FirstKey, lists::lindex),
        command("llen", 2, 0, FirstKey, lists::llen),
        command("lpush", -3, WRITES | GROWS, FirstKey, lists::lpush),
        command("lrange", 4, 0, FirstKey, lists::lrange),
        command("persist", 2, WRITES, FirstKey, keys::persist),
        command("pexpire", -3, WRITES, FirstKey, keys::pexpire),
        command("ping", -1, 0, Nothing, connection::ping),
        command("pttl", 2, 0, FirstKey, keys::pttl),
        command("publish", 3, LOADING, FirstChannel, messages::publish),
        command("pubsub", -2, LOADING | CONTAINER, Nothing, messages::pubsub),
        command("rename", 3, WRITES, TwoKeys, keys::rename),
        command("rpush", -3, WRITES | GROWS, FirstKey, lists::rpush),
        command("script", -2, NOT_IN_SCRIPTS | SCRIPT | CONTAINER, Nothing, by_interpreter),
        command("select", 2, LOADING, Nothing, connection::select),
        command("set", -3, WRITES | GROWS, FirstKey, strings::set),
        command("spublish", 3, LOADING, FirstChannel, messages::spublish),
        command("ssubscribe", -2, NOT_IN_SCRIPTS | LOADING | PUSHES, AllChannels, messages::ssubscribe),
        command("subscribe", -2, NOT_IN_SCRIPTS | LOADING | PUSHES, AllChannels, messages::subscribe),
        command("sunsubscribe", -1, NOT_IN_SCRIPTS | LOADING | PUSHES, Nothing, messages::sunsubscribe),
        command("time", 1, LOADING, Nothing, connection::time),
        command("type", 2, 0, FirstKey, keys::type_of),
        command("unsubscribe", -1, NOT_IN_SCRIPTS | LOADING | PUSHES, Nothing, messages::unsubscribe),
        command("wait", 3, NOT_IN_SCRIPTS, Nothing, connection::wait),
        command("zadd", -4, WRITES | GROWS, FirstKey, sorted_sets::zadd),
        command("zcard", 2, 0, FirstKey, sorted_sets::zcard),
        command("zpopmin", -2, WRITES, FirstKey, sorted_sets::zpopmin),
        command("zrange", -4, 0, FirstKey, sorted_sets::zrange),
        command("zrank", -3, 0, FirstKey, sorted_sets::zrank),
        command("zrem", -3, WRITES, FirstKey, sorted_sets::zrem),
        command("zscore", 3, 0, FirstKey, sorted_sets::zscore),
    ]
};

/// Subcommands of containers, with their arities.
static PARTS: &[(&str, i32)] = &[
    ("acl|setuser", -3),
    ("acl|whoami", 2),
    ("client|getname", 2),
    ("client|id", 2),
    ("client|info", 2),
    ("client|kill", -3),
    ("client|setname", 3),
    ("pubsub|numsub", -2),
    ("pubsub|shardnumsub", -2),
    ("script|exists", -3),
    ("script|flush", -2),
    ("script|load", 3),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misuse {
    Unknown,
    WrongNumber,
    WrongNumberOfPart,
}

fn fits(arity: i32, words: &[&[u8]]) -> bool {
    let (count, least) = (words.len(), arity.unsigned_abs() as usize);
    if arity < 0 { count >= least } else { count == least }
}

const LONGEST_NAME: usize = 12;

impl Command {
    pub(super) fn named(name: &[u8]) -> Option<&'static Self> {
        let mut lower = [0; LONGEST_NAME];
        let lower = lower.get_mut(..name.len())?;
        lower.copy_from_slice(name);
        lower.make_ascii_lowercase();
        let at = COMMANDS.binary_search_by(|command| command.name.as_bytes().cmp(lower)).ok()?;
        Some(&COMMANDS[at])
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    /// The name, with the subcommand of a container.
    pub(super) fn full_name(&self, words: &[&[u8]]) -> String {
        match words.get(1) {
            Some(first) if self.has(CONTAINER) => {
                format!("{}|{}", self.name, String::from_utf8_lossy(first).to_ascii_lowercase())
            }
            _ => self.name.to_owned(),
        }
    }

    fn has(&self, one: u8) -> bool {
        self.traits & one != 0
    }

    pub(super) fn writes(&self) -> bool {
        self.has(WRITES)
    }

    pub(super) fn needs_memory(&self) -> bool {
        self.has(GROWS)
    }

    pub(super) fn needs_no_user(&self) -> bool {
        self.has(ANYBODY)
    }

    pub(super) fn is_script(&self) -> bool {
        self.has(SCRIPT)
    }

    pub(super) fn is_not_for_scripts(&self) -> bool {
        self.has(NOT_IN_SCRIPTS)
    }

    pub(super) fn is_answered_by_pushes(&self) -> bool {
        self.has(PUSHES)
    }

    /// Checks the number of words, and the subcommand of a container.
    pub(super) fn check(&self, words: &[&[u8]]) -> Result<(), Misuse> {
        if !fits(self.arity, words) {
            return Err(Misuse::WrongNumber);
        }
        if self.has(CONTAINER) {
            let part = PARTS.iter().find(|(name, _)| *name == self.full_name(words));
            let (_, arity) = part.ok_or(Misuse::Unknown)?;
            if !fits(*arity, words) {
                return Err(Misuse::WrongNumberOfPart);
            }
        }
        Ok(())
    }

    pub(super) fn explain(&self, misuse: Misuse, words: &[&[u8]]) -> String {
        match misuse {
            Misuse::WrongNumber => wrong_number(self.name),
            Misuse::WrongNumberOfPart => wrong_number(&self.full_name(words)),
            Misuse::Unknown => {
                let (name, part) = (self.name.to_ascii_uppercase(), String::from_utf8_lossy(words[1]));
                format!("ERR unknown subcommand '{part}'. Try {name} HELP.")
            }
        }
    }

    pub(super) fn touched<'a>(&self, words: &'a [&'a [u8]]) -> Touched<'a> {
        let words = &words[1.min(words.len())..];
        let first = |count: usize| &words[..count.min(words.len())];
        match self.touches {
            Touches::Nothing => Touched::Nothing,
            Touches::FirstKey => Touched::Keys(first(1)),
            Touches::TwoKeys => Touched::Keys(first(2)),
            Touches::AllKeys => Touched::Keys(words),
            Touches::CountedKeys => {
                let count = words.get(1).and_then(|count| number::integer(count).ok());
                let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or_default();
                // With too large a count, no key is known, and the command itself reports an error.
                Touched::Keys(words.get(2..).and_then(|words| words.get(..count)).unwrap_or_default())
            }
            Touches::FirstChannel => Touched::Channels(first(1)),
            Touches::AllChannels => Touched::Channels(words),
        }
    }

    pub(super) fn run(&self, call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
        (self.runs)(call, words)
    }
}

impl Call<'_> {
    fn now(&self) -> Micros {
        self.core.now
    }

    fn get<T: Typed>(&mut self, key: &[u8]) -> Result<Option<&mut T>, String> {
        self.core.data.get(key, self.core.now)
    }

    /// See [`Data::change`].
    fn change<T: Typed, R>(&mut self, key: &[u8], change: impl FnOnce(&mut T) -> R) -> Result<R, String> {
        self.core.data.change(key, self.core.now, change)
    }

    fn data(&mut self) -> &mut Data {
        &mut self.core.data
    }

    fn caller(&self) -> u64 {
        self.connection.expect("no script may call it")
    }
}

fn by_interpreter(_: &mut Call<'_>, _: &[&[u8]]) -> Answer {
    unreachable!("the interpreter runs it")
}

/// The word as a C string, which ends at the first NUL.
fn c_text(word: &[u8]) -> String {
    let end = word.iter().position(|byte| *byte == 0).unwrap_or(word.len());
    String::from_utf8_lossy(&word[..end]).into_owned()
}

pub(super) fn unknown(words: &[&[u8]]) -> String {
    let name = c_text(words[0]);
    let args: String = words[1..].iter().map(|word| format!("'{}' ", c_text(word))).collect();
    format!("ERR unknown command '{name}', with args beginning with: {args}")
}

fn wrong_number(name: &str) -> String {
    format!("ERR wrong number of arguments for '{name}' command")
}

fn syntax_error() -> String {
    "ERR syntax error".to_owned()
}

/// The range of indices from `first` to `last`, where negative numbers count from the end.
fn range(first: i64, last: i64, len: usize) -> std::ops::Range<usize> {
    let len = i64::try_from(len).expect("the number fits");
    let from_start = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    let first = from_start(first).max(0);
    let end = from_start(last).saturating_add(1).min(len);
    if first >= end { 0..0 } else { first as usize..end as usize }
}

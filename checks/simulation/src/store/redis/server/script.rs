//! [`Scripts`]: Lua, as a server provides it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value};

use super::command::{Command, Misuse};
use super::number::{self, general};
use super::reply::Reply;
use super::{Core, Running, lock};

pub(super) struct Scripts {
    lua: Lua,
    /// Runs a script: see `prelude.lua`.
    run: Function,
    known: BTreeMap<String, Function>,
}

/// Panic message for errors of the interpreter itself, which are not simulated.
const SOUND: &str = "the interpreter has memory";

impl Scripts {
    pub(super) fn new(core: &Arc<Mutex<Core>>) -> Self {
        let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
        let lua = Lua::new_with(libraries, LuaOptions::new()).expect(SOUND);
        let run = prelude(&lua, core).expect("the prelude is right");
        Self { lua, run, known: BTreeMap::new() }
    }

    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    pub(super) fn administer(&mut self, words: &[&[u8]]) -> Result<Reply, String> {
        match (words[1].to_ascii_lowercase().as_slice(), words) {
            (b"load", [_, _, text]) => Ok(Reply::bulk(self.learn(text)?)),
            (b"flush", [_, _, mode, rest @ ..])
                if !rest.is_empty()
                    || !mode.eq_ignore_ascii_case(b"sync") && !mode.eq_ignore_ascii_case(b"async") =>
            {
                Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".to_owned())
            }
            (b"flush", _) => {
                self.forget();
                Ok(Reply::ok())
            }
            (b"exists", [_, _, hashes @ ..]) => {
                let known = |hash: &&[u8]| i64::from(self.known.contains_key(&lower(hash)));
                Ok(Reply::Array(hashes.iter().map(|hash| Reply::Int(known(hash))).collect()))
            }
            _ => unreachable!("it was checked"),
        }
    }

    pub(super) fn evaluate(
        &mut self,
        core: &Mutex<Core>,
        connection: u64,
        is_by_hash: bool,
        words: &[&[u8]],
    ) -> Result<Reply, String> {
        // The length of the hash is checked before all other arguments.
        if is_by_hash && words[1].len() != HASH_LEN {
            return Err(NO_SCRIPT.to_owned());
        }
        let keys = number::integer(words[2])?;
        if keys > words.len() as i64 - 3 {
            return Err("ERR Number of keys can't be greater than number of args".to_owned());
        }
        let keys = usize::try_from(keys).map_err(|_| "ERR Number of keys can't be negative")?;
        let hash = if is_by_hash { lower(words[1]) } else { self.learn(words[1])? };
        let script = self.known.get(&hash).ok_or(NO_SCRIPT)?;
        {
            let mut core = lock(core);
            let user = core.connections.user(connection).unwrap_or_default();
            core.script = Running { user, has_written: false };
        }
        let (keys, args) = words[3..].split_at(keys);
        self.run(script, keys, args).map_err(|failure| failure.explain(&hash))
    }

    /// Compiles and stores a script. Returns its hash.
    fn learn(&mut self, text: &[u8]) -> Result<String, String> {
        let text = String::from_utf8_lossy(text);
        let hash = sha1(&text);
        if !self.known.contains_key(&hash) {
            let chunk = self.lua.load(&*text).set_name("@user_script").set_mode(mlua::ChunkMode::Text);
            let script = chunk.into_function().map_err(|error| {
                let mlua::Error::SyntaxError { message, .. } = error else { panic!("{SOUND}: {error}") };
                format!("ERR Error compiling script (new function): {message}")
            })?;
            self.known.insert(hash.clone(), script);
        }
        Ok(hash)
    }

    fn run(&self, script: &Function, keys: &[&[u8]], args: &[&[u8]]) -> Result<Reply, Failure> {
        let [keys, args] = [keys, args].map(|words| self.texts(words).expect(SOUND));
        let (has_ended, result): (bool, Value) = match self.run.call((script, keys, args)) {
            Ok(result) => result,
            Err(error) => panic!("a script fails by an error of its own: {error}"),
        };
        if has_ended { Ok(to_reply(&result).expect(SOUND)) } else { Err(Failure::of(&result).expect(SOUND)) }
    }

    fn texts(&self, words: &[&[u8]]) -> mlua::Result<Table> {
        let table = self.lua.create_table_with_capacity(words.len(), 0)?;
        for word in words {
            table.raw_push(self.lua.create_string(word)?)?;
        }
        Ok(table)
    }
}

const HASH_LEN: usize = 40;

const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";

struct Failure {
    text: String,
    /// Source and line of the error.
    origin: Option<(String, i64)>,
}

impl Failure {
    fn of(error: &Value) -> mlua::Result<Self> {
        let Value::Table(error) = error else { panic!("an error is a table, and not {error:?}") };
        let text: mlua::String = error.raw_get("err")?;
        let source: Option<String> = error.raw_get("source")?;
        let origin = source.map(|source| Ok::<_, mlua::Error>((source, error.raw_get("line")?)));
        Ok(Self { text: one_line(&text.as_bytes()), origin: origin.transpose()? })
    }

    fn explain(&self, hash: &str) -> String {
        match &self.origin {
            Some((source, line)) => format!("{} script: {hash}, on {source}:{line}.", self.text),
            None => format!("{} script: {hash}", self.text),
        }
    }
}

fn prelude(lua: &Lua, core: &Arc<Mutex<Core>>) -> mlua::Result<Function> {
    let for_run = Arc::clone(core);
    let run = lua.create_function(move |lua, words: MultiValue| {
        match texts(&words).and_then(|words| lock(&for_run).run_in_script(&words.slices())) {
            Ok(reply) => Ok((false, to_lua(lua, reply)?)),
            Err(error) => Ok((true, error_table(lua, &error)?)),
        }
    })?;
    let for_rights = Arc::clone(core);
    let may_run = lua.create_function(move |lua, words: MultiValue| {
        match texts(&words).and_then(|words| may_run(&lock(&for_rights), &words.slices())) {
            Ok(may) => Ok((false, Value::Boolean(may))),
            Err(error) => Ok((true, error_table(lua, &error)?)),
        }
    })?;
    let sha1hex = lua.create_function(|_, text: mlua::String| Ok(sha1(&text.to_string_lossy())))?;
    let origin = lua.create_function(|lua, level: usize| {
        let found = lua.inspect_stack(level, |it| {
            let source = it.source();
            let line = it.current_line().map_or(-1, |line| i64::try_from(line).unwrap_or(-1));
            (source.source.map(|it| it.into_owned()), line, source.what.to_owned())
        });
        Ok(found.map_or((None, None, None), |(source, line, what)| (source, Some(line), Some(what))))
    })?;
    let chunk = lua.load(include_str!("prelude.lua")).set_name("@redis");
    chunk.call((run, may_run, sha1hex, origin))
}

fn may_run(core: &Core, words: &[&[u8]]) -> Result<bool, String> {
    let command = Command::named(words[0]).filter(|command| command.check(words) != Err(Misuse::Unknown));
    let command = command.ok_or("ERR Invalid command passed to redis.acl_check_cmd()")?;
    Ok(core.users.admit(&core.script.user, command, words).is_ok())
}

/// The words of a command, concatenated.
#[derive(Default)]
struct Words {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Words {
    fn slices(&self) -> Vec<&[u8]> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begins, ends)| &self.bytes[begins..*ends]).collect()
    }
}

fn texts(values: &MultiValue) -> Result<Words, String> {
    if values.is_empty() {
        return Err("ERR Please specify at least one argument for this redis lib call".to_owned());
    }
    let mut words = Words::default();
    for value in values {
        match value {
            Value::String(text) => words.bytes.extend_from_slice(&text.as_bytes()),
            Value::Integer(number) => words.bytes.extend_from_slice(general(*number as f64).as_bytes()),
            Value::Number(number) => words.bytes.extend_from_slice(general(*number).as_bytes()),
            _ => {
                return Err("ERR Lua redis lib command arguments must be strings or integers".to_owned());
            }
        }
        words.ends.push(words.bytes.len());
    }
    Ok(words)
}

fn error_table(lua: &Lua, text: &str) -> mlua::Result<Value> {
    named(lua, "err", text)
}

fn named(lua: &Lua, name: &str, text: &str) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, text)?;
    Ok(Value::Table(table))
}

/// Converts a reply to the form that scripts see, which is RESP2.
fn to_lua(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
    Ok(match reply {
        Reply::Nil => Value::Boolean(false),
        Reply::Bool(is) => Value::Integer(i64::from(is)),
        Reply::Status(text) => named(lua, "ok", &text)?,
        Reply::Error(text) => error_table(lua, &text)?,
        Reply::Int(number) => Value::Number(number as f64),
        Reply::Double(number) => Value::String(lua.create_string(general(number))?),
        Reply::Bulk(text) => Value::String(lua.create_string(text)?),
        Reply::Array(all) => sequence(lua, all.into_iter())?,
        Reply::Map(pairs) => sequence(lua, pairs.into_iter().flat_map(|(key, value)| [key, value]))?,
    })
}

fn sequence(lua: &Lua, replies: impl Iterator<Item = Reply>) -> mlua::Result<Value> {
    let table = lua.create_table_with_capacity(replies.size_hint().0, 0)?;
    for reply in replies {
        table.raw_push(to_lua(lua, reply)?)?;
    }
    Ok(Value::Table(table))
}

fn to_reply(value: &Value) -> mlua::Result<Reply> {
    Ok(match value {
        Value::String(text) => Reply::bulk(text.as_bytes()),
        Value::Integer(number) => Reply::Int(*number),
        Value::Number(number) => Reply::Int(truncated(*number)),
        Value::Boolean(true) => Reply::Int(1),
        Value::Table(table) => table_to_reply(table)?,
        _ => Reply::Nil,
    })
}

fn table_to_reply(table: &Table) -> mlua::Result<Reply> {
    if let Value::String(text) = table.raw_get("err")? {
        return Ok(Reply::Error(one_line(&text.as_bytes())));
    }
    if let Value::String(text) = table.raw_get("ok")? {
        return Ok(Reply::Status(one_line(&text.as_bytes())));
    }
    let mut all = Vec::new();
    loop {
        match table.raw_get(all.len() + 1)? {
            // The first nil ends an array.
            Value::Nil => return Ok(Reply::Array(all)),
            value => all.push(to_reply(&value)?),
        }
    }
}

/// Truncates like a C cast on servers' hardware.
fn truncated(number: f64) -> i64 {
    const LIMIT: f64 = 9_223_372_036_854_775_808.0;
    if (-LIMIT..LIMIT).contains(&number) { number as i64 } else { i64::MIN }
}

/// Statuses and errors fit on one line.
fn one_line(text: &[u8]) -> String {
    String::from_utf8_lossy(text).replace(['\r', '\n'], " ")
}

fn sha1(text: &str) -> String {
    ::redis::Script::new(text).get_hash().to_owned()
}

fn lower(text: &[u8]) -> String {
    String::from_utf8_lossy(text).to_ascii_lowercase()
}

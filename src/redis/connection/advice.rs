//! Advice on a server's refusal: its cause and remedy.

use ::redis::{Arg, Cmd, ErrorKind as Kind, RedisError};

/// Advice by the first word of the reply.
const BY_CODE: &[(&str, &str)] = &[
    ("READONLY", "it is a replica, which takes no writes; connect to its master"),
    ("MASTERDOWN", "it is a replica that has lost its master; connect to the master"),
    ("LOADING", "it is still loading its data; try again in a moment"),
    ("OOM", "it has no memory left; raise its maxmemory, or give the locks a server of their own"),
    ("NOPERM", NO_PERMISSION),
    ("NOAUTH", "it wants a password; write it into the URL, or give it to the builder"),
    ("WRONGPASS", "the user or the password is wrong"),
    ("WRONGTYPE", FOREIGN),
    ("NOCOUNTER", NO_COUNTER),
    ("MISCONF", "it cannot save its data and takes no writes until it can; see its log"),
    ("NOREPLICAS", "it has too few replicas to take writes; see its min-replicas-to-write"),
    ("BUSY", "a script has kept it busy for too long; end that one with SCRIPT KILL"),
    ("MOVED", "it is a node of a Cluster that does not serve this key; write redis-cluster:// into the URL"),
    ("TRYAGAIN", "the slot of these keys is moving to another node; try again in a moment"),
    ("CROSSSLOT", "it is a node of a Cluster, and the keys lie in different slots of it"),
    ("CLUSTERDOWN", "it is a node of a Cluster that is down"),
];

/// Advice by a phrase, for replies that begin with `ERR`. Phrases differ inside scripts and by version.
const BY_PHRASE: &[(&str, &str)] = &[
    ("max number of clients reached", "it has as many clients as it takes; raise its maxclients"),
    ("unknown command", UNKNOWN_COMMAND),
    ("Unknown Redis command", UNKNOWN_COMMAND),
    // Valkey.
    ("Unknown command called", UNKNOWN_COMMAND),
    ("DB index is out of range", "it has no database of that number; see its setting `databases`"),
    ("no permissions to run the", NO_PERMISSION),
    ("The user executing the script can't", NO_PERMISSION),
    ("ACL failure in script", NO_PERMISSION),
    ("Invalid command passed to redis.acl_check_cmd", UNKNOWN_COMMAND),
    ("value is not an integer", NO_COUNTER),
    ("would overflow", NO_COUNTER),
];

/// The commands of the greeting, as servers name them in refusals.
const GREETING: &str =
    "hello auth select ping role client|setname client|setinfo client|info client|kill client|id";

/// For an error that a script, or INCRBY in a script, has raised.
const NO_COUNTER: &str = "that key is to count the lock's fencing tokens, and holds no count; delete it, or \
                          set it to a number above all tokens that were given out";
const FOREIGN: &str = "what is kept there is no part of a lock; use another name, or delete the key";
const NO_PERMISSION: &str =
    "the user has no permission; let an ACL rule allow the command, the key and the channel";
const NOT_REDIS: &str =
    "what answers there is no Redis server; see whether host, port and scheme are the right ones";
const UNKNOWN_COMMAND: &str =
    "it does not know a command that locks need; it was renamed, or the server is too old";

/// Returns the advice; if there is none, refers to the reply.
pub(super) fn what_to_do(error: &RedisError) -> &'static str {
    advice(error).unwrap_or("its reply says why")
}

pub(super) fn advice(error: &RedisError) -> Option<&'static str> {
    match error.kind() {
        Kind::RESP3NotSupported => return Some(UNKNOWN_COMMAND),
        Kind::Parse => return Some(NOT_REDIS),
        _ => {}
    }
    let detail = error.detail().unwrap_or_default();
    let code = error.code().unwrap_or_default();
    let by_code = BY_CODE.iter().find(|(word, _)| *word == code);
    let by_phrase = || BY_PHRASE.iter().find(|(phrase, _)| detail.contains(phrase));
    let by_word = || BY_CODE.iter().find(|(word, _)| said_in_script(error, word));
    by_code.or_else(by_phrase).or_else(by_word).map(|(_, advice)| *advice)
}

/// Rewords a refusal of the greeting, in which the server's words may repeat the password.
pub(super) fn of_greeting(error: RedisError) -> RedisError {
    // Errors that hold no word of a Redis server.
    if matches!(error.kind(), Kind::Io | Kind::Parse | Kind::RESP3NotSupported) {
        return error;
    }
    let (code, detail) = (error.code().unwrap_or_default(), error.detail().unwrap_or_default());
    // Of the reply, only a known command's name is quoted.
    let refused = GREETING.split(' ').find(|name| detail.contains(&format!("to run the '{name}'")));
    if let Some(name) = refused {
        let detail = format!("the user has no permissions to run the '{name}' command");
        return ::redis::make_extension_error("NOPERM".to_owned(), Some(detail));
    }
    let known = BY_CODE.iter().find(|(word, _)| *word == code).copied();
    let phrase =
        BY_PHRASE.iter().find(|(phrase, _)| detail.contains(phrase)).map(|(phrase, _)| ("ERR", *phrase));
    let (code, detail) = known.or(phrase).unwrap_or(("ERR", "it refused the greeting"));
    ::redis::make_extension_error(code.to_owned(), Some(detail.to_owned()))
}

/// True if a script met the error `word`, which before 7.0 stands in the middle of the reply.
pub(crate) fn said_in_script(error: &RedisError, word: &str) -> bool {
    error.detail().is_some_and(|detail| detail.split(' ').any(|said| said.trim_start_matches('-') == word))
}

/// Returns the command's name and first key.
pub(crate) fn quote(command: &Cmd) -> String {
    let mut words = command.args_iter().map(|arg| match arg {
        Arg::Simple(word) => String::from_utf8_lossy(word).into_owned(),
        _ => String::new(),
    });
    let name = words.next().unwrap_or_default();
    let script = name.starts_with("EVAL");
    let keys: usize = if script { words.nth(1).and_then(|keys| keys.parse().ok()).unwrap_or(0) } else { 1 };
    match words.next() {
        Some(key) if keys > 0 => {
            let others = if keys > 1 { format!(" and {} more", keys - 1) } else { String::new() };
            format!("{name} on {key:?}{others}")
        }
        _ => name,
    }
}

/// Returns the denied command. Some servers name only its line in `script`.
pub(super) fn denied(script: Option<&Cmd>, error: &RedisError) -> Option<String> {
    if advice(error) != Some(NO_PERMISSION) {
        return None;
    }
    let said = error.detail()?.split_once("to run the '").and_then(|(_, rest)| rest.split_once('\''));
    if let Some((name, _)) = said {
        return Some(name.replace('|', " ").to_uppercase());
    }
    denied_in_line(script?, error)
}

fn word(command: &Cmd, at: usize) -> Option<&str> {
    match command.args_iter().nth(at)? {
        Arg::Simple(word) => std::str::from_utf8(word).ok(),
        _ => None,
    }
}

fn line<'a>(command: &'a Cmd, error: &RedisError) -> Option<&'a str> {
    let (_, at) = error.detail()?.split_once("user_script:")?;
    let digits = at.trim_start().split(|next: char| !next.is_ascii_digit()).next()?;
    word(command, 1)?.lines().nth(digits.parse::<usize>().ok()?.checked_sub(1)?)
}

/// Returns the key whose value a lock cannot use: the key in the script's failed line, or else all keys.
pub(super) fn misused_key(script: Option<&Cmd>, error: &RedisError) -> Option<String> {
    let (script, met) = (script?, advice(error)?);
    if met != FOREIGN && met != NO_COUNTER {
        return None;
    }
    let keys: usize = word(script, 2)?.parse().ok()?;
    let key = |number| word(script, 2 + number);
    let named = line(script, error)?.split_once("KEYS[").and_then(|(_, rest)| rest.split_once(']'));
    let number =
        named.and_then(|(number, _)| if number == "#KEYS" { Some(keys) } else { number.parse().ok() });
    Some(match number {
        Some(number) => format!("{:?}", key(number)?),
        None => format!("one of {:?}", (1..=keys).filter_map(key).collect::<Vec<_>>()),
    })
}

fn denied_in_line(command: &Cmd, error: &RedisError) -> Option<String> {
    let text = word(command, 1).filter(|_| word(command, 0) == Some("EVAL"))?;
    let called = match error.detail()?.contains("user_script:") {
        true => line(command, error)?.split_once("redis.call(")?.1,
        // The script has returned the error.
        false => text.split_once("redis.pcall(")?.1,
    };
    if let Some(argument) = called.strip_prefix("ARGV[") {
        let number: usize = argument.split_once(']')?.0.parse().ok()?;
        let keys: usize = word(command, 2)?.parse().ok()?;
        if let Some(given) = word(command, 2 + keys + number) {
            return Some(given.to_uppercase());
        }
        // Without this argument, the script takes the default that follows in the line.
    }
    let mut quoted = called.split('\'').skip(1);
    let name = quoted.next()?.to_uppercase();
    // A quoted word right after the name is the subcommand.
    let second = quoted.next().filter(|between| *between == ", ").and_then(|_| quoted.next());
    Some(second.map_or_else(|| name.clone(), |second| format!("{name} {}", second.to_uppercase())))
}

#[cfg(test)]
mod tests {
    use ::redis::cmd;

    use super::super::super::fake::refusal;
    use super::*;

    #[test]
    fn server_that_is_too_old_for_the_greeting_is_told_to_be_so() {
        let error = RedisError::from((Kind::RESP3NotSupported, "it does not support HELLO"));
        let told = of_greeting(error);
        assert_eq!(advice(&told), Some(UNKNOWN_COMMAND));
        assert!(told.to_string().contains("HELLO"), "{told}");
    }

    #[test]
    fn command_is_quoted_with_its_first_key_and_a_count_of_others() {
        for (words, quoted) in [
            ("GET a", r#"GET on "a""#),
            ("PING", "PING"),
            ("EVALSHA hash 0", "EVALSHA"),
            ("EVALSHA hash 0 argument", "EVALSHA"),
            ("EVALSHA hash none argument", "EVALSHA"),
            ("EVALSHA hash 1 a argument", r#"EVALSHA on "a""#),
            ("EVAL text 3 a b c argument", r#"EVAL on "a" and 2 more"#),
        ] {
            let mut command = Cmd::new();
            command.arg(words.split(' ').collect::<Vec<_>>());
            assert_eq!(quote(&command), quoted);
        }
    }

    #[test]
    fn denied_command_in_a_script_is_named_unlike_other_errors() {
        let mut script = cmd("EVAL");
        script.arg("local key = KEYS[1]\nredis.call('hset', key, 'a', 'b')").arg(1).arg("key");
        let at = "script: 0123456789abcdef, on @user_script:2.";
        let denied_there = refusal(&format!("ERR ACL failure in script: no permission {at}"));
        assert_eq!(denied(Some(&script), &denied_there).as_deref(), Some("HSET"));
        let mut release = cmd("EVAL");
        release
            .arg("redis.call('get', KEYS[1])\nredis.call(ARGV[2] or 'publish', KEYS[1], '0')")
            .arg(1)
            .arg("key")
            .arg(7);
        assert_eq!(denied(Some(&release), &denied_there).as_deref(), Some("PUBLISH"));
        release.arg("spublish");
        assert_eq!(denied(Some(&release), &denied_there).as_deref(), Some("SPUBLISH"));
        let other = refusal(&format!("WRONGTYPE Operation against a key {at}"));
        assert_eq!(denied(Some(&script), &other), None);
    }
}

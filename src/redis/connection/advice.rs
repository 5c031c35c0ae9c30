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
const NO_PERMISSION: &str = "the user has no permission; let an ACL rule allow what `ACL LOG` names";
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
    let by_code = BY_CODE.iter().find(|(code, _)| says(error, code));
    by_code.or_else(|| by_phrase(error)).map(|(_, advice)| *advice)
}

fn by_phrase(error: &RedisError) -> Option<&'static (&'static str, &'static str)> {
    BY_PHRASE.iter().find(|(phrase, _)| error.detail().is_some_and(|detail| detail.contains(phrase)))
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
    let phrase = by_phrase(&error).map(|(phrase, _)| ("ERR", *phrase));
    let (code, detail) = known.or(phrase).unwrap_or(("ERR", "it refused the greeting"));
    ::redis::make_extension_error(code.to_owned(), Some(detail.to_owned()))
}

/// True if `code` is the reply's first word. Before 7.0, the error of a script stands amid the reply.
pub(super) fn says(error: &RedisError, code: &str) -> bool {
    let in_script = |detail: &str| detail.split(' ').any(|said| said.trim_start_matches('-') == code);
    error.code() == Some(code) || error.detail().is_some_and(in_script)
}

/// Returns the command's name and first key; all keys of a script that found a value of another program.
pub(super) fn quote(command: &Cmd, error: &RedisError) -> String {
    let mut words = command.args_iter().map(|arg| match arg {
        Arg::Simple(word) => String::from_utf8_lossy(word).into_owned(),
        _ => String::new(),
    });
    let name = words.next().unwrap_or_default();
    let is_script = name.starts_with("EVAL");
    let count = if is_script { words.nth(1).and_then(|keys| keys.parse().ok()).unwrap_or(0) } else { 1 };
    let keys: Vec<String> = words.take(count).collect();
    match &*keys {
        [] => name,
        [key] => format!("{name} on {key:?}"),
        keys if matches!(advice(error), Some(FOREIGN | NO_COUNTER)) => format!("{name} on one of {keys:?}"),
        [key, others @ ..] => format!("{name} on {key:?} and {} more", others.len()),
    }
}

/// Returns the denied command, if the server names it.
pub(super) fn denied(error: &RedisError) -> Option<String> {
    advice(error).filter(|advice| *advice == NO_PERMISSION)?;
    let (_, said) = error.detail()?.split_once("to run the '")?;
    Some(said.split_once('\'')?.0.replace('|', " ").to_uppercase())
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
    fn command_is_quoted_with_its_first_key_or_all_that_may_be_foreign() {
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
            assert_eq!(quote(&command, &refusal("OOM no memory")), quoted);
        }
        let (mut command, foreign) = (cmd("EVAL"), refusal("WRONGTYPE another kind of value"));
        command.arg(&["text", "2", "a", "b", "argument"]);
        assert_eq!(quote(&command, &foreign), r#"EVAL on one of ["a", "b"]"#);
    }

    #[test]
    fn denied_command_is_named_if_the_server_names_it() {
        let named = refusal("NOPERM the user has no permissions to run the 'pubsub|numsub' command");
        assert_eq!(denied(&named).as_deref(), Some("PUBSUB NUMSUB"));
        for other in ["ERR ACL failure in script: no permission", "ERR failed to run the 'get' command"] {
            assert_eq!(denied(&refusal(other)), None, "{other}");
        }
    }
}

//! Calls of commands by connections and scripts, with right and wrong words of all kinds. Commands that only
//! the adapter sends, always in the same words, have no wrong ones.

use fastrand::Rng;

use super::{Both, CALLS, Caller, Condition, Difference, LISTENERS};
use crate::store::redis::server::Reply;

#[derive(Clone, Copy)]
enum Word {
    Key,
    /// A field, a member, or an element.
    Item,
    Value,
    Integer,
    Index,
    Score,
    Channel,
    Millis,
    /// One of these texts.
    One(&'static [&'static str]),
    /// Any number of these, in any order.
    Any(&'static [Word]),
    /// One to this many repetitions.
    Many(&'static [Word], usize),
    /// Nothing, or these words.
    Maybe(&'static [Word]),
}

use Word::{Any, Channel, Index, Integer, Item, Key, Many, Maybe, Millis, One, Score, Value};

/// Commands that scripts can call.
const COMMANDS: &[(&str, &[Word])] = &[
    ("DEL", &[Many(&[Key], 3)]),
    ("EXISTS", &[Many(&[Key], 3)]),
    ("GET", &[Key]),
    ("HDEL", &[Key, Many(&[Item], 3)]),
    ("HEXISTS", &[Key, Item]),
    ("HGET", &[Key, Item]),
    ("HGETALL", &[Key]),
    ("HKEYS", &[Key]),
    ("HMGET", &[Key, Many(&[Item], 3)]),
    ("HLEN", &[Key]),
    (
        "HSCAN",
        &[Key, One(&["0", "0", "0", "7", "x", "-1"]), One(&["count"]), One(&["100000", "100000", "0", "x"])],
    ),
    (
        "HSCAN",
        &[
            Key,
            One(&["0"]),
            One(&["COUNT"]),
            One(&["100000"]),
            One(&["match", "bad"]),
            One(&["*", "b*", "?", "[a-c]", "*:write", "\\*"]),
        ],
    ),
    ("HSCAN", &[Key, Integer]),
    ("HSET", &[Key, Many(&[Item, Value], 3)]),
    ("HSET", &[Key, Many(&[Item], 4)]),
    ("INCRBY", &[Key, Integer]),
    ("LINDEX", &[Key, Index]),
    ("LLEN", &[Key]),
    ("LPUSH", &[Key, Many(&[Item], 3)]),
    ("LRANGE", &[Key, Index, Index]),
    ("PERSIST", &[Key]),
    ("PEXPIRE", &[Key, Millis]),
    ("PEXPIRE", &[Key, Millis, Any(&[One(&["nx", "XX", "gt", "lt", "bad"])])]),
    ("PTTL", &[Key]),
    ("PUBLISH", &[Channel, Value]),
    ("PUBSUB", &[One(&["numsub", "shardnumsub", "NumSub", "nope"]), Any(&[Channel])]),
    ("RENAME", &[Key, Key]),
    ("RPUSH", &[Key, Many(&[Item], 3)]),
    ("SET", &[Key, Value]),
    ("SET", &[Key, Value, Any(&[One(&["nx", "xx", "keepttl", "XX", "bad"])])]),
    ("SET", &[Key, Value, One(&["px", "ex", "PX"]), Millis, Maybe(&[One(&["nx", "xx", "keepttl"])])]),
    ("SPUBLISH", &[Channel, Value]),
    ("TIME", &[]),
    ("TYPE", &[Key]),
    ("ZADD", &[Key, Any(&[One(&["nx", "xx", "gt", "lt", "ch"])]), Many(&[Score, Item], 3)]),
    ("ZADD", &[Key, Many(&[Score, Item], 3)]),
    ("ZCARD", &[Key]),
    ("ZPOPMIN", &[Key]),
    ("ZRANK", &[Key, Item]),
    ("ZRANGE", &[Key, Index, Index, Maybe(&[One(&["withscores", "WITHSCORES", "rev", "bad"])])]),
    ("ZRANGE", &[Key, Index, Index, One(&["rev"]), One(&["withscores"])]),
    ("ZREM", &[Key, Many(&[Item], 3)]),
    ("ZSCORE", &[Key, Item]),
    ("ECHO", &[Value]),
    ("PING", &[Maybe(&[Value])]),
    ("NOPE", &[]),
];

/// Commands that only connections can call.
const OF_CONNECTIONS: &[(&str, &[Word])] = &[
    ("SUBSCRIBE", &[Many(&[Channel], 3)]),
    ("UNSUBSCRIBE", &[Channel]),
    ("UNSUBSCRIBE", &[]),
    ("SSUBSCRIBE", &[Many(&[Channel], 3)]),
    ("SUNSUBSCRIBE", &[Channel]),
    ("SUNSUBSCRIBE", &[]),
    ("SELECT", &[One(&["0"])]),
    ("CLIENT", &[One(&["setname"]), One(&["a", "b c", "ä"])]),
    ("CLIENT", &[One(&["getname"])]),
    ("CLIENT", &[One(&["kill"]), One(&["id"]), One(&["999999"])]),
    ("SCRIPT", &[One(&["exists"]), Many(&[Value], 2)]),
    ("SCRIPT", &[One(&["load"]), One(&["return 1", "return KEYS[1]", "x("])]),
    ("SCRIPT", &[One(&["flush", "exists", "load"])]),
    ("EVALSHA", &[One(&["e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "abc"]), One(&["0", "1", "-1", "x"])]),
    ("EVAL", &[One(SCRIPTS), One(&["0", "1", "-1", "2", "x"]), Any(&[Value])]),
    ("ACL", &[One(&["whoami"])]),
];

/// Scripts with all kinds of ends. Parentheses prevent tail calls: see `prelude.lua`.
const SCRIPTS: &[&str] = &[
    "return {1, 2.7, -2.7, {err = 'QQ q'}, 'x', true, false, 3}",
    "return {1, nil, 3}",
    "return 3.99",
    "return -1e300",
    "return 2^53 + 0.5",
    "return true",
    "return false",
    "return nil",
    "return {}",
    "return {ok = 'fine'}",
    "return {err = 'CODE not\\nfine'}",
    "return redis.error_reply('one')",
    "return redis.error_reply('-TWO words')",
    "return redis.status_reply('three')",
    "error('x')",
    "error('x', 0)",
    "error({err = 'CODE words'})",
    "local function f() error({err = 'CODE words'}) end\nf()",
    "local function f()\n  return (redis.call('nope'))\nend\nlocal x = f()\nreturn x",
    "return (redis.call('nope'))",
    "local x = redis.call()",
    "local x = redis.call({})",
    "local x = redis.call('get')",
    "return redis.pcall('get').err",
    "return redis.pcall('subscribe', 'x')",
    "return nothing",
    "nothing = 1",
    "local a = nil; return a.b",
    "return 'a' + 1",
    "return string.rep('x')",
    "return ('x'):nope()",
    "return {KEYS[1] or 'none', ARGV[1] or 'none', #KEYS, #ARGV}",
    "return {tostring(2^53), tostring(1e100), tostring(0.1), 10 .. '', string.format('%.0f', 1e15 + 1)}",
    "local t = redis.call('time') return t[1] * 1000000 + t[2]",
    "return (redis.call('echo', 0.1))",
    "return (redis.call('echo', 1e17))",
    "return (redis.call('echo', 1e16 + 2))",
    "return (redis.call('echo', -1 / 3))",
    "return (redis.call('echo', math.huge))",
    "return (redis.call('echo', 1e-7))",
    "return (redis.call('echo', 123456.789e-5))",
    "return (redis.call('echo', 2^70))",
    "return {tostring(redis.acl_check_cmd('hset', 'a', 'b', 'c')), tostring(redis.acl_check_cmd('get', 'zz'))}",
    "return {tostring(redis.acl_check_cmd('publish', 'c1', 'x')), tostring(redis.acl_check_cmd('pubsub', 'numsub'))}",
    "return (redis.acl_check_cmd('nope'))",
    "return (redis.acl_check_cmd())",
    "return redis.sha1hex('x')",
    "return {select('#', unpack({1, 2}, 1, 3)), type(pcall), tostring(pcall(error, 'x'))}",
    "redis.call('set', 'written', 1) error('after')",
    "redis.call('del', 'k0') return (redis.call('set', 'k0', 'x'))",
    "x(",
    "return 1 1",
];

const CALLS_OF_SCRIPTS: &[&str] = &[
    "return (redis.call(unpack(ARGV)))",
    "local reply = redis.call(unpack(ARGV)) return reply",
    "return redis.pcall(unpack(ARGV))",
    "for i = 2, #ARGV do ARGV[i] = tonumber(ARGV[i]) or ARGV[i] end local reply = redis.call(unpack(ARGV)) return reply",
];

pub(super) fn round(both: &mut Both, rng: &mut Rng) -> Result<(), Difference> {
    for _ in 0..CALLS {
        match rng.u32(..100) {
            0 => both.set_condition(condition(rng)),
            1 => rights(both, rng)?,
            2..12 => both.pass(passes(rng)),
            _ => {}
        }
        let listener = Caller::Listener(rng.usize(..LISTENERS));
        let caller = if rng.u32(..4) == 0 { Caller::Limited } else { listener };
        if rng.u32(..8) == 0 {
            let (name, words) = OF_CONNECTIONS[rng.usize(..OF_CONNECTIONS.len())];
            // A user with fewer rights loses subscriptions, which a real server ends only later.
            let caller = if name == "ACL" { Caller::Admin } else { listener };
            let (caller, words) = (caller, draw(rng, name, words));
            both.call(caller, &words)?;
            continue;
        }
        let (name, words) = COMMANDS[rng.usize(..COMMANDS.len())];
        let words = draw(rng, name, words);
        if rng.u32(..3) == 0 {
            let script = CALLS_OF_SCRIPTS[rng.usize(..CALLS_OF_SCRIPTS.len())];
            let call = [b"EVAL".to_vec(), script.as_bytes().to_vec(), b"0".to_vec()];
            both.count.commands += 1;
            both.call(caller, &[call.to_vec(), words].concat())?;
        } else {
            both.call(caller, &words)?;
        }
    }
    Ok(())
}

pub(super) fn condition(rng: &mut Rng) -> Condition {
    match rng.u32(..6) {
        0 => Condition::OutOfMemory,
        1 => Condition::ReadOnly,
        _ => Condition::Sound,
    }
}

/// Draws a time in microseconds, mostly short, to hit expiries to the millisecond.
pub(super) fn passes(rng: &mut Rng) -> u64 {
    match rng.u32(..6) {
        0 => rng.u64(..1000),
        1 => 1000,
        2 => rng.u64(..10) * 1000,
        3 => rng.u64(..100_000),
        4 => rng.u64(..3_000_000),
        _ => 999,
    }
}

const RULES: &[&str] = &[
    "-hset",
    "-zadd",
    "-pexpire",
    "-get",
    "-del",
    "-zrem",
    "-hdel",
    "-set",
    "-incrby",
    "-publish",
    "-spublish",
    "-pttl",
    "-rename",
    "-eval",
    "-evalsha",
    "-hget",
    "-hscan",
    "-exists",
    "-pubsub",
    "-zscore",
    "-zcard",
    "-zpopmin",
    "-time",
    "+pubsub|numsub",
    "-pubsub|shardnumsub",
    "resetkeys",
    "~k[0-2]",
    "~lock*",
    "~*",
    "resetchannels",
    "&c1",
    "&*lock*",
    "&*",
    "-@all",
    "+@all",
];

pub(super) fn rights(both: &mut Both, rng: &mut Rng) -> Result<(), Difference> {
    let mut line = "ACL SETUSER limited reset on nopass +@all ~* &*".to_owned();
    for _ in 0..rng.usize(..5) {
        let rule = RULES[rng.usize(..RULES.len())];
        // The server refuses patterns behind `*` as pointless.
        let patterns = match &rule[..1] {
            "~" => " resetkeys",
            "&" => " resetchannels",
            _ => "",
        };
        line = format!("{line}{patterns} {rule}");
    }
    both.plain(Caller::Admin, &line).map(|_: Reply| ())
}

fn draw(rng: &mut Rng, name: &str, kinds: &[Word]) -> Vec<Vec<u8>> {
    let mut words = vec![name.as_bytes().to_vec()];
    for kind in kinds {
        add(rng, *kind, &mut words);
    }
    if rng.bool() {
        words[0].make_ascii_lowercase();
    }
    match rng.u32(..40) {
        // A word less, or a word more.
        0 if words.len() > 1 && !words[0].ends_with(b"e") => _ = words.pop(),
        1 => words.push(value(rng)),
        _ => {}
    }
    words
}

fn add(rng: &mut Rng, kind: Word, words: &mut Vec<Vec<u8>>) {
    let one = |rng: &mut Rng, of: &[&str]| of[rng.usize(..of.len())].as_bytes().to_vec();
    match kind {
        Key => words.push(one(rng, &["k0", "k1", "k2", "k3", "k4", "k5", "k6", "k\u{0}\r\n"])),
        Item => words.push(item(rng)),
        Value => words.push(value(rng)),
        Integer => words.push(one(
            rng,
            &[
                "0",
                "1",
                "-1",
                "5",
                "100",
                "9223372036854775807",
                "-9223372036854775808",
                "9223372036854775808",
                "1.5",
                "007",
                "+1",
                " 1",
                "",
                "x",
            ],
        )),
        Index => words.push(one(
            rng,
            &["0", "1", "2", "-1", "-2", "-3", "5", "-100", "100", "x", "9223372036854775807"],
        )),
        Score => words.push(one(
            rng,
            &[
                "0",
                "1",
                "2",
                "-1",
                "1.5",
                "0.1",
                "inf",
                "-inf",
                "+inf",
                "1e3",
                "1e300",
                "1700000000000001",
                "3.0e-10",
                "nan",
                "x",
                "",
                "+5",
            ],
        )),
        Channel => words.push(one(rng, &["c1", "c2", "c\u{0}3"])),
        Millis => words.push(one(
            rng,
            &[
                "0",
                "1",
                "1",
                "2",
                "5",
                "10",
                "100",
                "1000",
                "1000",
                "60000",
                "60000",
                "-1",
                "-1700000000000",
                "9223372036854775807",
                "x",
                "1.5",
            ],
        )),
        One(of) => words.push(one(rng, of)),
        Any(kinds) => (0..rng.usize(..3)).for_each(|_| kinds.iter().for_each(|kind| add(rng, *kind, words))),
        Many(kinds, most) => {
            (0..rng.usize(1..=most)).for_each(|_| kinds.iter().for_each(|kind| add(rng, *kind, words)));
        }
        Maybe(kinds) => {
            if rng.bool() {
                kinds.iter().for_each(|kind| add(rng, *kind, words));
            }
        }
    }
}

fn item(rng: &mut Rng) -> Vec<u8> {
    match rng.u32(..100) {
        0 => vec![b'l'; 65],
        1 => vec![b'l'; 64],
        2 => b"\xff\x00\r\n".to_vec(),
        3 => Vec::new(),
        // Many different names, so that hashes grow large.
        4..12 => rng.u32(..2000).to_string().into_bytes(),
        _ => vec![b'a' + rng.u8(..6)],
    }
}

fn value(rng: &mut Rng) -> Vec<u8> {
    match rng.u32(..10) {
        0 => b"x y\r\nz".to_vec(),
        1 => rng.i64(..).to_string().into_bytes(),
        2 => b"\xfe\x00".to_vec(),
        3..6 => rng.u32(..10).to_string().into_bytes(),
        _ => item(rng),
    }
}

//! A script does all of its work or nothing, whatever the server refuses; no lock lacks a time to live.

pub(super) mod read_write;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

use latchwork_testkit::{RedisCluster, RedisServer};
use redis::{Cmd, Connection, FromRedisValue, PubSub, RedisError, RedisResult, Value, cmd};

pub(super) const US: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:1";
pub(super) const NEXT: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:2";
pub(super) const THEM: &str = "00000000-0795-4907-87fd-6c719a6b4586:1";
/// In one slot, as are its other keys.
pub(super) const LOCK: &str = "{s}lock";
const OTHER: &str = "{s}other";
pub(super) const QUEUE: &str = "{s}lock:latchwork:fair_queue";
pub(super) const POSITIONS: &str = "{s}lock:latchwork:fair_positions";
const REDISSONS_QUEUE: &str = "redisson_lock_queue:{s}lock";
const WAITERS: &str = "{s}lock:latchwork:waiters";
pub(super) const COUNTER: &str = "redisson_lock_token:{s}lock";
pub(super) const CHANNEL: &str = "redisson_lock__channel:{s}lock";
pub(super) const GRANTS: &str = "{s}lock:latchwork:fair_grant:";
/// A waiter's nonce; a client trusts a grant only with its own nonce.
pub(super) const NONCE: &str = "0123456789abcdef";
const DEAD: &str = "22222222-0795-4907-87fd-6c719a6b4586:1";
/// Waiters of one client, which listens.
pub(super) const FIRST: &str = "11111111-0795-4907-87fd-6c719a6b4586:1";
pub(super) const SECOND: &str = "11111111-0795-4907-87fd-6c719a6b4586:2";
pub(super) const SHORT: &str = "60000";
pub(super) const LONG: &str = "600000";

type Words = &'static [&'static str];

#[derive(Clone, Copy)]
struct Call {
    text: &'static str,
    keys: Words,
    args: Words,
}

const fn call(text: &'static str, keys: Words, args: Words) -> Call {
    Call { text, keys, args }
}

/// The files that a script is made of, in their order.
macro_rules! script {
    ($($file:literal)+) => {
        concat!($(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/redis/scripts/", $file, ".lua"))),+)
    };
}
use script;

const ACQUIRE: &str = script!("counter" "acquire");
const RELEASE: &str = script!("call" "release");
const FORCE_RELEASE: &str = script!("call" "force_release");
const RENEW: &str = script!("renew");
const HOLDER: &str = script!("holder");

pub(super) const TAKE_FREE: &str = script!("take_free");
pub(super) const FAIR_ACQUIRE: &str = script!("fair_kind" "counter" "queue" "fair" "queue_acquire");
pub(super) const FAIR_RELEASE: &str =
    script!("fair_kind" "hand_off" "counter" "queue" "fair" "queue_release");
/// The script without its shortcut for the most frequent release.
pub(super) const FAIR_RELEASE_IN_FULL: &str = script!("fair_kind" "counter" "queue" "fair" "queue_release");
pub(super) const FAIR_FORCE_RELEASE: &str =
    script!("fair_kind" "counter" "queue" "fair" "queue_force_release");

pub(super) const FAIR_KEYS: &[&str] = &[LOCK, QUEUE, POSITIONS, REDISSONS_QUEUE];
pub(super) const FENCED_KEYS: &[&str] = &[LOCK, QUEUE, POSITIONS, REDISSONS_QUEUE, COUNTER];

macro_rules! args {
    ($($own:expr),*) => {
        &["publish", "1", CHANNEL, "0", GRANTS, "granted:", $($own),*]
    };
}

const TAKE_FREE_FAIR: Call = call(TAKE_FREE, &[LOCK, QUEUE], &[SHORT, US, "fair"]);

const CALLS: [Call; 20] = [
    call(ACQUIRE, &[LOCK], &[SHORT, US]),
    call(ACQUIRE, &[LOCK, COUNTER], &[SHORT, US, "3"]),
    call(RELEASE, &[LOCK], &[US, CHANNEL]),
    call(FORCE_RELEASE, &[LOCK], &["", CHANNEL]),
    call(ACQUIRE, &[LOCK, WAITERS], &[SHORT, US, "0", "2000"]),
    call(ACQUIRE, &[LOCK, WAITERS, COUNTER], &[SHORT, US, "3", "2000", "1"]),
    call(RELEASE, &[LOCK, WAITERS], &[US, CHANNEL]),
    call(FORCE_RELEASE, &[LOCK, WAITERS], &["", CHANNEL]),
    call(RENEW, &[LOCK, OTHER], &[LONG, "1", US, US]),
    call(HOLDER, &[LOCK], &[]),
    TAKE_FREE_FAIR,
    call(FAIR_ACQUIRE, FAIR_KEYS, args![SHORT, US, "0"]),
    call(FAIR_ACQUIRE, FENCED_KEYS, args![SHORT, US, "3", SHORT, NONCE, "0"]),
    // The earliest of all waiters.
    call(FAIR_ACQUIRE, FENCED_KEYS, args![SHORT, US, "3", SHORT, NONCE, "9000000000000000"]),
    call(FAIR_RELEASE, FAIR_KEYS, args![US]),
    call(FAIR_RELEASE_IN_FULL, FAIR_KEYS, args![US]),
    call(FAIR_RELEASE, FAIR_KEYS, args![US, NEXT, SHORT, "0", SHORT, NONCE, "0"]),
    call(FAIR_RELEASE, FENCED_KEYS, args![US, NEXT, LONG, "3", SHORT, NONCE, "9000000000000000"]),
    call(FAIR_RELEASE, FAIR_KEYS, args![FIRST]),
    call(FAIR_FORCE_RELEASE, FAIR_KEYS, args![]),
];

/// A state before a call, as the commands that build it. Each key lasts for a minute, unless a command says
/// how long.
type Found = Vec<String>;

fn state_of(parts: &[&[&str]]) -> Found {
    parts.concat().into_iter().map(str::to_owned).collect()
}

/// States of plain locks, and some states of other kinds.
const FOUND: [&[&str]; 15] = [
    &[],
    &["HSET {s}lock mode lock {us} 1", "HSET {s}other mode lock {us} 1"],
    &["HSET {s}lock mode lock {us} 1", "PEXPIRE {s}lock 600000", "SET redisson_lock_token:{s}lock 7"],
    &["HSET {s}lock mode lock {them} 1"],
    &["HSET {s}lock {them} 1"],
    &["HSET {s}lock mode read {them} 1"],
    &["HSET {s}lock mode write {them}:write 1"],
    &["SET {s}lock text PX 60000"],
    &["SET redisson_lock_token:{s}lock text"],
    &["HSET {s}lock mode fair {us} 1", "PEXPIRE {s}lock 600000"],
    &["HSET {s}lock mode fair {us} 1", "PEXPIRE {s}lock 600000", "SET redisson_lock_token:{s}lock text"],
    &["HSET {s}lock mode fair {next} 1"],
    &["HSET {s}lock mode lock {us} 1", CLIENTS_WAIT],
    &["HSET {s}lock mode lock {them} 1", CLIENTS_WAIT],
    &[CLIENTS_WAIT],
];

/// Two clients wait for a plain lock.
const CLIENTS_WAIT: &str = "ZADD {s}lock:latchwork:waiters 2 {them} 3 {first}";

const OURS: &[&str] = &["HSET {s}lock mode fair {us} 1"];

const FIRST_WAITS: &[&str] = &[
    "ZADD {s}lock:latchwork:fair_queue 2 {first} 3 {second}",
    "HSET {s}lock:latchwork:fair_positions {first} {soon}:1111 {second} {far}:2222",
];

const ONE_WAITS: &[&str] = &[
    "ZADD {s}lock:latchwork:fair_queue 2 {first}",
    "HSET {s}lock:latchwork:fair_positions {first} {far}:1111",
];

/// Three waiters; the first one's position is expired.
const WAITED_FOR: &[&str] = &[
    "ZADD {s}lock:latchwork:fair_queue 1 {dead} 2 {first} 3 {second}",
    "HSET {s}lock:latchwork:fair_positions {dead} {past}:0 {first} {far}:1111 {second} {far}:2222",
];

const DEAD_POSITION: &str = "HSET {s}lock:latchwork:fair_positions {dead} {past}:0";

/// One waiter with an expired position.
const DEAD_QUEUE: &[&str] = &["ZADD {s}lock:latchwork:fair_queue 1 {dead}", DEAD_POSITION];

/// One waiter that does not listen.
const DEAF_QUEUE: &[&str] = &[
    "ZADD {s}lock:latchwork:fair_queue 1 {them}",
    "HSET {s}lock:latchwork:fair_positions {them} {far}:3333",
];

/// Two waiters that do not listen; the second one's position is expired.
const DEAF_AND_DEAD_QUEUE: &[&str] = &[
    "ZADD {s}lock:latchwork:fair_queue 1 {them} 2 {dead}",
    "HSET {s}lock:latchwork:fair_positions {them} {far}:3333 {dead} {past}:0",
];

/// More waiters than a script looks at; none listens.
const CROWD: &[&str] = &["ZADD {s}lock:latchwork:fair_queue {crowd}", DEAD_POSITION];

/// With these and a holder every possible key exists, as a node requires during a slot's move.
const OTHERS: &[&str] = &["RPUSH redisson_lock_queue:{s}lock {them}", "SET redisson_lock_token:{s}lock 7"];

fn found() -> Vec<Found> {
    let mut all = FOUND.map(|state| state_of(&[state])).to_vec();
    let broken: &[&str] = &["SET {s}lock:latchwork:fair_positions text PX 60000"];
    // The lock is free; in the last two states, its waiter does not listen.
    let free: [&[&[&str]]; 5] =
        [&[WAITED_FOR], &[DEAD_QUEUE], &[WAITED_FOR, broken], &[DEAF_QUEUE], &[DEAF_AND_DEAD_QUEUE]];
    all.extend(free.map(state_of));
    for lock in [
        "HSET {s}lock mode fair {us} 1",
        "HSET {s}lock mode fair {them} 1",
        "HSET {s}lock mode fair {next} 1",
        "HSET {s}lock {them} 1",
        "HSET {s}lock mode lock {us} 1",
    ] {
        all.extend([FIRST_WAITS, WAITED_FOR, DEAD_QUEUE].map(|queue| state_of(&[&[lock], queue, OTHERS])));
    }
    let held: [&[&[&str]]; 4] = [
        &[OURS, ONE_WAITS, OTHERS],
        &[OURS, DEAF_AND_DEAD_QUEUE],
        &[OURS, CROWD, OTHERS],
        &[OURS, &["SET {s}lock:latchwork:fair_queue text PX 60000"]],
    ];
    all.extend(held.map(state_of));
    all
}

/// Each call of the given scripts, with all states before it.
fn everything(of: &[&str]) -> Vec<(Call, Vec<Found>)> {
    let read_write = read_write::CALLS.into_iter().map(|call| (call, read_write::found()));
    let all = CALLS.into_iter().map(|call| (call, found())).chain(read_write);
    all.filter(|(call, _)| of.contains(&call.text)).collect()
}

/// Splits the scripts into several tests, as there are thousands of cases.
macro_rules! for_each_script {
    ($name:ident, $test:expr) => {
        for_each! {
            $name, $test,
            plain: [ACQUIRE, RELEASE, FORCE_RELEASE, HOLDER];
            renew: [RENEW];
            take_free: [TAKE_FREE];
            fair_acquire: [FAIR_ACQUIRE];
            fair_release: [FAIR_RELEASE, FAIR_RELEASE_IN_FULL];
            fair_force_release: [FAIR_FORCE_RELEASE];
            write_acquire: [read_write::ACQUIRE];
            write_release: [read_write::RELEASE, read_write::RELEASE_IN_FULL];
            write_force_release: [read_write::FORCE_RELEASE];
            read_acquire: [read_write::READ_ACQUIRE, read_write::READ_FREE];
            read_release: [read_write::READ_RELEASE, read_write::HOLDERS];
        }
    };
}

/// Fewer tests, for cases with servers of their own.
macro_rules! for_each_kind {
    ($name:ident, $test:expr) => {
        for_each! {
            $name, $test,
            plain: [ACQUIRE, RELEASE, FORCE_RELEASE, HOLDER, RENEW];
            fair: [TAKE_FREE, FAIR_ACQUIRE, FAIR_RELEASE, FAIR_RELEASE_IN_FULL, FAIR_FORCE_RELEASE];
            write: [
                read_write::ACQUIRE, read_write::RELEASE, read_write::RELEASE_IN_FULL,
                read_write::FORCE_RELEASE
            ];
            read: [
                read_write::READ_ACQUIRE, read_write::READ_FREE, read_write::READ_RELEASE,
                read_write::HOLDERS
            ];
        }
    };
}

macro_rules! for_each {
    ($name:ident, $test:expr, $($of:ident: [$($script:expr),+];)+) => {
        mod $name {
            use super::*;

            $(#[test]
            fn $of() {
                $test(&[$($script),+]);
            })+
        }
    };
}

/// True if a script can ask the server for its user's rights.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Asks {
    IfItCan,
    Never,
}

pub(super) fn eval(text: &str, keys: &[&str]) -> Cmd {
    // Arriving readers skip the random search for the dead, so each run has the same effect.
    let text = text.replace("CROWD_EACH = 32", "CROWD_EACH = 1e18");
    cmd("EVAL").arg(text).arg(keys.len()).arg(keys).clone()
}

/// Hides `acl_check_cmd`, as on servers before 7.0.
const UNASKED: &str = "local redis = { call = redis.call, pcall = redis.pcall }\n";

impl Call {
    fn run(&self, connection: &mut Connection) -> Result<Value, RedisError> {
        self.run_if(Asks::IfItCan, connection)
    }

    fn run_if(&self, asks: Asks, connection: &mut Connection) -> Result<Value, RedisError> {
        let server = if asks == Asks::Never { UNASKED } else { "" };
        let text = &*[server, self.text].concat();
        eval(text, self.keys).arg(self.args).query(connection)
    }

    fn commands(&self) -> BTreeSet<String> {
        let calls = ["redis.call('", "redis.pcall('"];
        let calls = calls.iter().flat_map(|call| self.text.split(call).skip(1));
        let named = calls.map(|rest| rest.split('\'').next().unwrap().to_owned());
        named.chain(self.args.contains(&"publish").then(|| "publish".to_owned())).collect()
    }
}

fn named(word: &str) -> String {
    let names = [("{us}", US), ("{next}", NEXT), ("{them}", THEM), ("{dead}", DEAD)];
    let in_ten_minutes = UNIX_EPOCH.elapsed().unwrap() + Duration::from_secs(600);
    let soon = format!("{:016}", in_ten_minutes.as_micros());
    let times = [("{past}", "0000000000000001"), ("{soon}", &*soon), ("{far}", "9000000000000000")];
    let names = names.into_iter().chain([("{first}", FIRST), ("{second}", SECOND)]).chain(times);
    names.fold(word.to_owned(), |word, (name, id)| word.replace(name, id))
}

/// Joins `words` of `clients` clients, none of which listens.
fn crowd(clients: usize, words: impl Fn(String) -> String) -> String {
    let clients = (0..clients).map(|client| format!("{client:08x}-0795-4907-87fd-6c719a6b4586"));
    clients.map(words).collect::<Vec<_>>().join(" ")
}

fn command(words: &str) -> Cmd {
    let mut words = Cow::from(words);
    if words.contains("{crowd}") {
        words = words.replace("{crowd}", &crowd(101, |client| format!("1 {client}:3"))).into();
    }
    if words.contains("{readers}") {
        words = words.replace("{readers}", &crowd(100, |client| format!("{client}:3 1"))).into();
    }
    let mut words = words.split(' ');
    let mut command = cmd(words.next().unwrap());
    words.for_each(|word| _ = command.arg(named(word)));
    command
}

pub(super) fn run<T: FromRedisValue>(connection: &mut Connection, words: &str) -> T {
    command(words).query(connection).unwrap_or_else(|error| panic!("{words}: {error}"))
}

/// Builds a state in one round trip: there are thousands of cases.
fn find(connection: &mut Connection, found: &[String]) {
    let mut all = redis::pipe();
    all.cmd("FLUSHALL");
    for words in found {
        all.add_command(command(words));
        let (made, key) = words.split_once(' ').unwrap();
        let lasts = format!("PEXPIRE {} ", key.split(' ').next().unwrap());
        let is_said = found.iter().any(|words| words.starts_with(&lasts));
        if ["HSET", "ZADD", "RPUSH"].contains(&made) && !is_said {
            all.add_command(command(&format!("{lasts}{SHORT}")));
        }
    }
    all.exec(connection).unwrap_or_else(|error| panic!("{found:?}: {error}"));
}

/// Reads keys in one round trip, also while their slot is being imported.
fn look(connection: &mut Connection, looks: impl IntoIterator<Item = String>) -> Vec<Value> {
    let mut all = redis::pipe();
    // A server outside a Cluster refuses ASKING.
    all.ignore_errors();
    let mut words = Vec::new();
    for it in looks {
        all.cmd("ASKING").add_command(command(&it));
        words.push(it);
    }
    if words.is_empty() {
        return Vec::new();
    }
    let replies: Vec<RedisResult<Value>> = all.query(connection).unwrap();
    let replies = replies.into_iter().skip(1).step_by(2);
    words.into_iter().zip(replies).map(|(it, reply)| reply.unwrap_or_else(|e| panic!("{it}: {e}"))).collect()
}

/// Rounds ms to minutes, so a time of whole minutes stays the same for half a minute. A far date is capped:
/// it would otherwise lose a minute between two looks by chance.
fn minutes(ms: i64) -> i64 {
    ((ms + 30_000) / 60_000).min(1_000_000)
}

/// Every key: its content, and its time to live in rounded minutes.
type State = BTreeMap<String, (Vec<String>, i64)>;

fn state(connection: &mut Connection) -> State {
    let keys: Vec<String> = run(connection, "KEYS *");
    let types = look(connection, keys.iter().flat_map(|key| [format!("TYPE {key}"), format!("PTTL {key}")]));
    let values = keys.iter().zip(types.iter().step_by(2)).map(|(key, its)| match its {
        Value::SimpleString(its) if its == "hash" => format!("HGETALL {key}"),
        Value::SimpleString(its) if its == "zset" => format!("ZRANGE {key} 0 -1"),
        Value::SimpleString(its) if its == "list" => format!("LRANGE {key} 0 -1"),
        _ => format!("GET {key}"),
    });
    let values = look(connection, values);
    let now: (i64, i64) = run(connection, "TIME");
    let mut state = BTreeMap::new();
    for ((key, value), its) in keys.into_iter().zip(values).zip(types.chunks(2)) {
        let mut holds: Vec<String> = match value {
            Value::BulkString(text) => vec![String::from_utf8(text).unwrap()],
            value => redis::from_redis_value(value).unwrap(),
        };
        // An absolute time of the server's clock, such as the end of a lease or position.
        let from_now = |time: &str| {
            let left = time.parse::<i64>().unwrap() - (now.0 * 1_000_000 + now.1);
            if left < 0 { -1 } else { minutes(left / 1_000) }
        };
        for value in &mut holds {
            if let Some(end) = value.strip_prefix("until:") {
                *value = format!("until in {}", from_now(end));
            } else if let Some((end, nonce)) = value.split_once(':').filter(|(end, _)| end.len() == 16) {
                *value = format!("in {}: {nonce}", from_now(end));
            }
        }
        holds.sort();
        let left: i64 = redis::from_redis_value_ref(&its[1]).unwrap();
        assert!(
            left >= 0 || key.starts_with("redisson_lock_token:"),
            "expected an end of {key} after {holds:?}"
        );
        state.insert(key, (holds, minutes(left)));
    }
    state
}

pub(super) fn connect(url: String) -> Connection {
    redis::Client::open(url).unwrap().get_connection().unwrap()
}

/// Runs a call without refusals; returns the state before, the reply, and the state after.
fn try_out(
    call: &Call,
    asks: Asks,
    found: &[String],
    connection: &mut Connection,
) -> (State, Result<Value, RedisError>, State) {
    find(connection, found);
    let before = state(connection);
    let reply = call.run_if(asks, connection);
    (before, reply, state(connection))
}

/// Subscribes the client of the waiters.
fn listener(connection: &mut Connection) -> PubSub<'_> {
    let mut listener = connection.as_pubsub();
    for grants in [GRANTS, read_write::GRANTS] {
        listener.subscribe(format!("{grants}{}", &FIRST[..36])).unwrap();
    }
    listener.subscribe("fence").unwrap();
    listener
}

/// The ids granted since the last look.
fn granted(listener: &mut PubSub<'_>, admin: &mut Connection) -> Vec<String> {
    let () = run(admin, "PUBLISH fence over");
    let told = std::iter::from_fn(|| Some(listener.get_message().unwrap().get_payload::<String>().unwrap()));
    told.take_while(|message| message != "over").collect()
}

/// True since 7.0: a script can ask for its user's rights.
fn can_be_asked(connection: &mut Connection) -> bool {
    cmd("EVAL").arg("return redis.acl_check_cmd and 1 or 0").arg(0).query(connection).unwrap()
}

/// The state that a reply under a refusal allows, of those `before` and after the call is `done`.
///
/// A failing script that cannot ask for rights may leave a gap in the tokens. The set of waiting clients may
/// have kept or lost an entry: the clients also ask by timer, and a called client enters itself again.
fn allowed(
    [before, done]: [&State; 2],
    after: &State,
    reply: &Result<Value, RedisError>,
    can_be_asked: bool,
) -> State {
    let mut allowed = if reply.is_ok() { done.clone() } else { before.clone() };
    if reply.is_err() && !can_be_asked {
        allowed.extend(after.get(COUNTER).map(|counter| (COUNTER.to_owned(), counter.clone())));
    }
    let waiting = |state: &State| state.get(WAITERS).map_or_else(Vec::new, |(ids, _)| ids.clone());
    let known = [waiting(before), waiting(done)].concat();
    if waiting(after).iter().all(|id| known.contains(id)) {
        allowed.remove(WAITERS);
        allowed.extend(after.get(WAITERS).map(|waiters| (WAITERS.to_owned(), waiters.clone())));
    }
    allowed
}

struct Stage {
    server: RedisServer,
    admin: Connection,
    user: Connection,
}

impl Stage {
    fn set() -> Stage {
        let server = RedisServer::start();
        let mut admin = connect(server.url());
        let () = run(&mut admin, "ACL SETUSER user on >secret ~* &* +@all");
        let url = server.url().replace("redis://", "redis://user:secret@");
        let user = connect(url);
        Stage { server, admin, user }
    }

    /// Runs each script on each state, first without refusals and then under each refusal of `of`, which has
    /// a command to begin it and one to end it. Asserts that an error changed nothing and a success did
    /// everything. Returns the number of errors.
    fn refuse(
        &mut self,
        scripts: &[&str],
        asks: Asks,
        of: impl Fn(&Call) -> BTreeSet<(String, String)>,
    ) -> usize {
        let Stage { admin, user, server } = self;
        let mut connection = connect(server.url());
        let mut listener = listener(&mut connection);
        let can_be_asked = asks == Asks::IfItCan && can_be_asked(user);
        let mut refused = 0;
        for (call, found) in everything(scripts) {
            for found in &found {
                let (before, unrefused, done) = try_out(&call, asks, found, user);
                let told = granted(&mut listener, admin);
                if asks == Asks::Never {
                    let (_, asked, done_asked) = try_out(&call, Asks::IfItCan, found, user);
                    let told_asked = granted(&mut listener, admin);
                    assert_eq!(
                        (unrefused.is_ok(), &done, &told),
                        (asked.is_ok(), &done_asked, &told_asked),
                        "{unrefused:?} and {asked:?} on {found:?}"
                    );
                }
                assert!(
                    unrefused.is_ok() || before == done,
                    "{unrefused:?} on {found:?}: {before:?} -> {done:?}"
                );
                for (begin, end) in of(&call) {
                    find(admin, found);
                    let () = run(admin, &begin);
                    let reply = call.run_if(asks, user);
                    let () = run(admin, &end);
                    let after = state(admin);
                    // Clients trust a grant, so a failed script must not publish any.
                    let expected_told = if reply.is_ok() { &told[..] } else { &[] };
                    assert_eq!(
                        granted(&mut listener, admin),
                        expected_told,
                        "{begin:?} on {found:?}: {reply:?}"
                    );
                    let text = call.text.lines().next().unwrap();
                    let expected = allowed([&before, &done], &after, &reply, can_be_asked);
                    assert_eq!(after, expected, "{text} under {begin:?} on {found:?}: {reply:?}");
                    refused += usize::from(reply.is_err() && unrefused.is_ok());
                }
            }
        }
        refused
    }
}

for_each_script!(script_does_all_or_nothing_without_any_one_right, |scripts: &[&str]| {
    rights_are_missing(scripts, Asks::IfItCan);
});

for_each_script!(script_does_all_or_nothing_without_a_right_it_cannot_query, |scripts: &[&str]| {
    rights_are_missing(scripts, Asks::Never);
});

fn rights_are_missing(scripts: &[&str], asks: Asks) {
    let refused = Stage::set().refuse(scripts, asks, |call| {
        let rights = call.commands().into_iter();
        let one =
            |right: String| (format!("ACL SETUSER user -{right}"), format!("ACL SETUSER user +{right}"));
        // Several rights at a time, among them all commands that could undo a change.
        let kinds = ["keyspace", "hash", "string", "pubsub", "write"];
        let kind = |kind| (format!("ACL SETUSER user -@{kind}"), "ACL SETUSER user +@all".to_owned());
        rights.map(one).chain(kinds.map(kind)).collect()
    });
    assert!(refused > 100, "expected more than 100 refusals, and saw {refused}");
}

for_each_script!(script_does_all_or_nothing_if_the_server_refuses_writes, writes_are_not_taken);

fn writes_are_not_taken(scripts: &[&str]) {
    let refused = Stage::set().refuse(scripts, Asks::IfItCan, |_| {
        let settings = [("maxmemory", "1", "0"), ("min-replicas-to-write", "1", "0")];
        settings
            .map(|(it, on, off)| (format!("CONFIG SET {it} {on}"), format!("CONFIG SET {it} {off}")))
            .into()
    });
    assert!(refused > 10, "expected more than 10 refusals, and saw {refused}");
}

/// Copies all keys to another server, by a command that no script uses.
fn copy(connection: &mut Connection, to: &RedisServer) {
    let keys: Vec<String> = run(connection, "KEYS *");
    if !keys.is_empty() {
        let mut migrate = cmd("MIGRATE");
        migrate.arg("127.0.0.1").arg(to.port()).arg("").arg(0).arg(10_000).arg("COPY").arg("KEYS").arg(keys);
        let () = migrate.query(connection).unwrap();
    }
}

for_each_kind!(script_does_all_or_nothing_without_any_one_command, commands_have_other_names);

/// The operator's configuration renames commands.
fn commands_have_other_names(scripts: &[&str]) {
    let Stage { mut admin, server, .. } = Stage::set();
    let mut listens = connect(server.url());
    let _listener = listener(&mut listens);
    // Calls that change the state, and the states before them.
    let mut changes = Vec::new();
    for (call, found) in everything(scripts) {
        for found in found {
            let (before, _, done) = try_out(&call, Asks::IfItCan, &found, &mut admin);
            if before != done {
                changes.push((call, found, before, done));
            }
        }
    }
    let can_be_asked = can_be_asked(&mut admin);
    let commands: BTreeSet<String> = changes.iter().flat_map(|(call, ..)| call.commands()).collect();
    let (mut ran, mut refused) = (0, 0);
    for command in commands {
        let without = RedisServer::start_with(&["--rename-command", &command, ""]);
        let (mut there, mut hears) = (connect(without.url()), connect(without.url()));
        let mut listener = listener(&mut hears);
        for (call, found, before, done) in &changes {
            if !call.commands().contains(&command) {
                continue;
            }
            find(&mut admin, found);
            copy(&mut admin, &without);
            let reply = call.run(&mut there);
            let () = run(&mut admin, "FLUSHALL");
            copy(&mut there, &server);
            let () = run(&mut there, "FLUSHALL");
            let text = call.text.lines().next().unwrap();
            let after = state(&mut admin);
            let expected = allowed([before, done], &after, &reply, can_be_asked);
            assert_eq!(after, expected, "{text} without {command} on {found:?}: {reply:?}");
            // Clients trust a grant, so a failed script must not publish any. (Without `publish`, none.)
            let told = if command == "publish" { Vec::new() } else { granted(&mut listener, &mut there) };
            assert!(reply.is_ok() || told.is_empty(), "{text} without {command} on {found:?} told {told:?}");
            *(if reply.is_ok() { &mut ran } else { &mut refused }) += 1;
        }
    }
    assert!(ran > 100 && refused > 100, "{ran} calls ran, {refused} were refused");
}

/// Records each command of a script.
const NOTED: &str = "local server = redis
local redis = { acl_check_cmd = server.acl_check_cmd, pcall = server.pcall, call = function(...)
    server.call('sadd', 'sent', (...))
    return server.call(...)
end }\n";

for_each_script!(script_needs_no_right_to_what_it_neither_names_nor_does, other_rights_are_missing);

/// The rights name the keys, except the leases of readers found by the script. Scripts that grant the lock to
/// a waiter of the same client, or to readers, also ask for rights to commands that they may need, but not
/// for the rights to tokens or to strangers' keys.
fn other_rights_are_missing(scripts: &[&str]) {
    let Stage { mut admin, mut user, server } = Stage::set();
    if !can_be_asked(&mut admin) {
        return;
    }
    let mut listens = connect(server.url());
    let _listener = listener(&mut listens);
    const EXACT: [&str; 5] =
        [FAIR_ACQUIRE, FAIR_RELEASE, FAIR_RELEASE_IN_FULL, FAIR_FORCE_RELEASE, read_write::ACQUIRE];
    let mut served = 0;
    for (call, found) in everything(scripts) {
        let noted = &*[NOTED, call.text].concat();
        for found in &found {
            find(&mut admin, found);
            if eval(noted, call.keys).arg(call.args).exec(&mut admin).is_err() {
                continue;
            }
            let sent: BTreeSet<String> = run(&mut admin, "SMEMBERS sent");
            let () = run(&mut admin, "DEL sent");
            let done = state(&mut admin);
            let mut rights = "ACL SETUSER user -@all +eval resetkeys ~{s}lock:*:rwlock_timeout:*".to_owned();
            call.keys.iter().for_each(|key| rights.extend([" ~", key]));
            if !EXACT.contains(&call.text) || call.args.contains(&NEXT) {
                rights.push_str(" +@all -get -del");
            } else if sent.contains("zadd") {
                // A queue whose end is far enough gets no new end.
                rights.push_str(" +pexpire");
            }
            sent.iter().for_each(|command| rights.extend([" +", command]));
            find(&mut admin, found);
            let () = run(&mut admin, &rights);
            let reply = call.run(&mut user);
            let text = call.text.lines().next().unwrap();
            assert!(reply.is_ok(), "expected {text} to run with {rights:?} on {found:?}, and got {reply:?}");
            assert_eq!(state(&mut admin), done, "{text} with {rights:?} on {found:?}: {reply:?}");
            served += 1;
        }
    }
    assert!(served > 10, "expected more than 10 served calls, and saw {served}");
}

/// Before 7.0, a script tests the right to PEXPIRE by a call that could end the queue.
#[test]
fn endless_queue_keeps_its_waiters_without_a_right_to_ask() {
    let mut stage = Stage::set();
    let () = run(&mut stage.admin, "HSET {s}lock mode fair {them} 1");
    let () = run(&mut stage.admin, FIRST_WAITS[0]);
    CALLS[12].run_if(Asks::Never, &mut stage.user).unwrap();
    let queue: Vec<String> = run(&mut stage.admin, "ZRANGE {s}lock:latchwork:fair_queue 0 -1");
    assert_eq!(queue, [FIRST, SECOND, US]);
    // A release makes the same test, and adds no end to the queue.
    for words in ["PERSIST {s}lock:latchwork:fair_queue", FIRST_WAITS[1]] {
        let () = run(&mut stage.admin, words);
    }
    let release = call(FAIR_RELEASE, FAIR_KEYS, args![THEM]);
    let mut connection = connect(stage.server.url());
    let _listener = listener(&mut connection);
    assert_eq!(release.run_if(Asks::Never, &mut stage.user).unwrap(), Value::Int(1));
    let left: i64 = run(&mut stage.admin, "PTTL {s}lock:latchwork:fair_queue");
    assert!(left > 10_000, "expected a queue of two waiters to last, and it ends in {left} ms");
}

/// A release, the state before, the reply, and the lock's fields afterwards.
type Released = (Call, Found, i64, Option<Vec<&'static str>>);

/// Otherwise a full server would block the release.
#[test]
fn release_passes_the_lock_on_without_server_memory() {
    let Stage { mut admin, mut user, server } = Stage::set();
    let mut connection = connect(server.url());
    let mut listener = listener(&mut connection);
    let fair = call(FAIR_RELEASE, FAIR_KEYS, args![US]);
    let handed_on = (fair, state_of(&[OURS, WAITED_FOR]), 1, Some(vec!["1", FIRST, "fair", "mode"]));
    for (release, found, reply, lock) in [handed_on].into_iter().chain(read_write::without_memory()) {
        find(&mut admin, &found);
        let () = run(&mut admin, "CONFIG SET maxmemory 1");
        assert_eq!(release.run(&mut user).unwrap(), Value::Int(reply), "{found:?}");
        let () = run(&mut admin, "CONFIG SET maxmemory 0");
        let left = state(&mut admin).remove(LOCK).map(|(fields, _)| fields);
        assert_eq!(left, lock.map(|it| it.into_iter().map(str::to_owned).collect()), "{found:?}");
    }
    assert_eq!(granted(&mut listener, &mut admin), ["granted:1:1111"]);
}

/// States on which the most frequent release runs, and near misses.
const HANDED_OFF: [&[&str]; 14] = [
    &["HSET {s}lock mode fair {us} 1"],
    // Another order, another value, and other fields.
    &["HSET {s}lock {us} 1 mode fair"],
    &["HSET {s}lock text fair {us} 1"],
    &["HSET {s}lock mode fair {us} 2"],
    &["HSET {s}lock mode fair {us} until:9000000000000000"],
    &["HSET {s}lock mode fair {us} until:1"],
    &["HSET {s}lock mode fair {us} 1 {them} 1"],
    &["HSET {s}lock mode fair {them} 1"],
    // The holder waits, too.
    &["HSET {s}lock mode fair {first} 1"],
    // A position without a nonce, an invalid one, and none.
    &["HSET {s}lock mode fair {us} 1", "HSET {s}lock:latchwork:fair_positions {first} {far}"],
    &["HSET {s}lock mode fair {us} 1", "HSET {s}lock:latchwork:fair_positions {first} text"],
    &["HSET {s}lock mode fair {us} 1", "HDEL {s}lock:latchwork:fair_positions {first}"],
    // The first position is expired, or its waiter does not listen.
    &["HSET {s}lock mode fair {us} 1", "HSET {s}lock:latchwork:fair_positions {first} {past}:1111"],
    &[
        "HSET {s}lock mode fair {us} 1",
        "ZADD {s}lock:latchwork:fair_queue 1 {them}",
        "HSET {s}lock:latchwork:fair_positions {them} {far}:3333",
    ],
];

/// Releases without a next waiter: the script, the full script, the keys, and the arguments.
const RELEASES: [(&str, &str, &[&str], &[&str]); 3] = [
    (FAIR_RELEASE, FAIR_RELEASE_IN_FULL, FAIR_KEYS, args![US]),
    // A node of a Cluster that does not know all subscribers.
    (FAIR_RELEASE, FAIR_RELEASE_IN_FULL, FAIR_KEYS, &["publish", "0", CHANNEL, "0", GRANTS, "granted:", US]),
    (FAIR_RELEASE, FAIR_RELEASE_IN_FULL, FAIR_KEYS, args![FIRST]),
];

/// The shortcut has its own lines in `hand_off.lua`.
#[test]
fn release_that_comes_most_often_does_what_the_others_would_do() {
    let Stage { mut admin, mut user, server } = Stage::set();
    let mut connection = connect(server.url());
    let mut listener = listener(&mut connection);
    let mut fair: Vec<Found> = HANDED_OFF.map(|found| state_of(&[FIRST_WAITS, found])).to_vec();
    fair.extend(found());
    let mut read_write = read_write::found();
    read_write.extend(fair.iter().map(read_write::of_writers));
    let mut handed_off = 0;
    for (calls, all) in [(&RELEASES[..], &fair), (&read_write::RELEASES[..], &read_write)] {
        for (&(text, in_full, keys, args), found) in
            calls.iter().flat_map(|it| all.iter().map(move |found| (it, found)))
        {
            let mut run = |text| {
                find(&mut admin, found);
                let reply =
                    Call { text, keys, args }.run(&mut user).map_err(|error| error.code().map(str::to_owned));
                (reply, state(&mut admin), granted(&mut listener, &mut admin))
            };
            let (short, long) = (run(text), run(in_full));
            assert_eq!(short, long, "{args:?} on {found:?}");
            handed_off += usize::from(short.0 == Ok(Value::Int(1)) && !short.2.is_empty());
        }
    }
    assert!(handed_off > 20, "expected more than 20 hand-offs, and saw {handed_off}");
}

/// The short scripts of first attempts have lines of their own.
#[test]
fn first_attempt_does_what_the_full_script_would_do() {
    const FAIR: [[Call; 2]; 1] = [[TAKE_FREE_FAIR, call(FAIR_ACQUIRE, FAIR_KEYS, args![SHORT, US, "0"])]];
    let Stage { mut admin, mut user, server: _server } = Stage::set();
    for [short, full] in FAIR.into_iter().chain(read_write::FIRST_ATTEMPTS) {
        let (mut leased, mut held, mut undecided) = (0, 0, 0);
        for found in found().into_iter().chain(read_write::found()) {
            let mut run = |call: &Call| {
                find(&mut admin, &found);
                let before = state(&mut admin);
                let reply = call.run(&mut user).map_err(|error| error.code().map(str::to_owned));
                (reply, state(&mut admin), before)
            };
            let (reply, after, before) = run(&short);
            if reply == Ok(Value::Int(-3)) {
                assert_eq!(after, before, "{:?} on {found:?}", short.args);
                undecided += 1;
                continue;
            }
            let (expected, expected_after, _) = run(&full);
            assert_eq!(after, expected_after, "{:?} on {found:?}", short.args);
            match (reply, expected) {
                (Ok(Value::Nil), Ok(Value::Array(_))) => leased += 1,
                (Ok(Value::Int(left)), Ok(Value::Int(expected))) if left.abs_diff(expected) < 1000 => {
                    held += 1
                }
                (Err(code), Err(expected)) if code == expected => {}
                other => panic!("{:?} on {found:?}: {other:?}", short.args),
            }
        }
        assert!(leased > 0 && held > 3 && undecided > 5, "{leased}, {held}, {undecided}");
    }
}

for_each_kind!(script_does_all_or_nothing_in_a_slot_that_moves, slot_moves);

/// During a move each node has some of a slot's keys, and runs a script only if all keys of the script are
/// there: only the new node creates missing keys. A node that lets a script begin must let it finish.
fn slot_moves(scripts: &[&str]) {
    const FROM: usize = 0;
    const TO: usize = 1;
    // A busy machine may answer late, and no node may count as failed.
    let cluster = RedisCluster::start_with(&["--cluster-node-timeout", "60000"]);
    let slot: u16 = cluster.ask(FROM, &["CLUSTER", "KEYSLOT", LOCK]);
    let owner = cluster.owner(FROM, slot).expect("some node has the slot");
    let (from, to) = if owner == FROM { (FROM, TO) } else { (owner, FROM) };
    let connect_to = |node: usize| connect(cluster.nodes()[node].url());
    let (mut source, mut target) = (connect_to(from), connect_to(to));
    let [source_id, target_id]: [String; 2] =
        [&mut source, &mut target].map(|node| run(node, "CLUSTER MYID"));
    let target_port = cluster.nodes()[to].port();
    // Any node delivers plain messages; each node counts its own subscribers.
    let (mut near, mut far) = (connect_to(from), connect_to(to));
    let _listeners = [listener(&mut near), listener(&mut far)];
    let (mut ran, mut refused) = (0, 0);
    for (call, found) in everything(scripts) {
        for found in &found {
            let (before, _, done) = try_out(&call, Asks::IfItCan, found, &mut source);
            // The new node has each subset of the keys.
            let keys = before.len() as u32;
            // With four keys or more, at most one key is apart from the others, to save time.
            let some = |moved: &u32| keys < 4 || moved.count_ones() < 2 || moved.count_ones() > keys - 2;
            for moved in (0..1_u32 << keys).filter(some) {
                find(&mut source, found);
                let () = run(&mut target, "FLUSHALL");
                let () = run(&mut target, &format!("CLUSTER SETSLOT {slot} IMPORTING {source_id}"));
                let () = run(&mut source, &format!("CLUSTER SETSLOT {slot} MIGRATING {target_id}"));
                let goes = before.keys().enumerate().filter(|(key, _)| moved & (1 << key) != 0);
                let goes: Vec<&str> = goes.map(|(_, key)| &**key).collect();
                if !goes.is_empty() {
                    // Several keys after KEYS; the place of a single key is empty.
                    let several = format!("MIGRATE 127.0.0.1 {target_port}  0 5000 KEYS {}", goes.join(" "));
                    let () = run(&mut source, &several);
                }
                let mut expected = &before;
                let mut reply = call.run(&mut source);
                if reply.as_ref().is_err_and(|error| matches!(error.code(), Some("ASK" | "TRYAGAIN"))) {
                    let () = run(&mut target, "ASKING");
                    reply = call.run(&mut target);
                }
                if reply.is_ok() {
                    (expected, ran) = (&done, ran + 1);
                } else {
                    refused += 1;
                }
                let mut after = state(&mut source);
                after.append(&mut state(&mut target));
                let text = call.text.lines().next().unwrap();
                assert_eq!(&after, expected, "{text} with {moved:b} moved on {found:?}: {reply:?}");
                let () = run(&mut target, "FLUSHALL");
                for node in [&mut source, &mut target] {
                    let () = run(node, &format!("CLUSTER SETSLOT {slot} STABLE"));
                }
            }
        }
    }
    assert!(ran > 30 && refused > 10, "{ran} calls ran, {refused} were refused");
}

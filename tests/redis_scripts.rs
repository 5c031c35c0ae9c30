//! Each script leaves all of its work behind or none of it, whatever in it the server refuses, and no lock without a time to live.

use std::collections::{BTreeMap, BTreeSet};

use latchwork_testkit::{RedisCluster, RedisServer};
use redis::{Connection, RedisError, Value, cmd};

const US: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:1";
const THEM: &str = "00000000-0795-4907-87fd-6c719a6b4586:1";
/// In one slot, with all that belongs to them.
const LOCK: &str = "{s}lock";
const OTHER: &str = "{s}other";
const COUNTER: &str = "redisson_lock_token:{s}lock";
const CHANNEL: &str = "redisson_lock__channel:{s}lock";
const SHORT: &str = "60000";
const LONG: &str = "600000";

/// A script, and one way to call it.
#[derive(Clone, Copy)]
struct Call {
    text: &'static str,
    keys: &'static [&'static str],
    args: &'static [&'static str],
}

const ACQUIRE: &str = include_str!("../src/redis/scripts/acquire.lua");
const RELEASE: &str = include_str!("../src/redis/scripts/release.lua");
const FORCE_RELEASE: &str = include_str!("../src/redis/scripts/force_release.lua");
const RENEW: &str = include_str!("../src/redis/scripts/renew.lua");
const HOLDER: &str = include_str!("../src/redis/scripts/holder.lua");

const CALLS: [Call; 6] = [
    Call { text: ACQUIRE, keys: &[LOCK], args: &[SHORT, US, "0", "0", "publish", CHANNEL] },
    Call { text: ACQUIRE, keys: &[LOCK, COUNTER], args: &[SHORT, US, "3", "0", "publish", CHANNEL] },
    Call { text: RELEASE, keys: &[LOCK], args: &[US, "0", "publish", CHANNEL] },
    Call { text: FORCE_RELEASE, keys: &[LOCK], args: &["0", "publish", CHANNEL] },
    Call { text: RENEW, keys: &[LOCK, OTHER], args: &[LONG, US, US] },
    Call { text: HOLDER, keys: &[LOCK], args: &[] },
];

/// What a script may find: commands that bring it about.
const FOUND: [&[&str]; 9] = [
    &[],
    &[
        "HSET {s}lock mode lock {us} 1",
        "PEXPIRE {s}lock 60000",
        "HSET {s}other mode lock {us} 1",
        "PEXPIRE {s}other 60000",
    ],
    &["HSET {s}lock mode lock {us} 1", "PEXPIRE {s}lock 600000", "SET redisson_lock_token:{s}lock 7"],
    &["HSET {s}lock mode lock {them} 1", "PEXPIRE {s}lock 60000"],
    &["HSET {s}lock {them} 1", "PEXPIRE {s}lock 60000"],
    &["HSET {s}lock mode read {them} 1", "PEXPIRE {s}lock 60000"],
    &["HSET {s}lock mode write {them}:write 1", "PEXPIRE {s}lock 60000"],
    &["SET {s}lock text PX 60000"],
    &["SET redisson_lock_token:{s}lock text"],
];

impl Call {
    fn run(&self, connection: &mut Connection) -> Result<Value, RedisError> {
        cmd("EVAL").arg(self.text).arg(self.keys.len()).arg(self.keys).arg(self.args).query(connection)
    }

    /// Every command that the script sends.
    fn commands(&self) -> BTreeSet<String> {
        let calls = ["redis.call('", "redis.pcall('"];
        let calls = calls.iter().flat_map(|call| self.text.split(call).skip(1));
        let named = calls.map(|rest| rest.split('\'').next().unwrap().to_owned());
        named.chain(self.args.contains(&"publish").then(|| "publish".to_owned())).collect()
    }
}

fn run<T: redis::FromRedisValue>(connection: &mut Connection, command: &str) -> T {
    let mut words = command.split(' ');
    let mut it = cmd(words.next().unwrap());
    words.for_each(|word| _ = it.arg(word.replace("{us}", US).replace("{them}", THEM)));
    it.query(connection).unwrap_or_else(|error| panic!("{command}: {error}"))
}

fn find(connection: &mut Connection, found: &[&str]) {
    let () = run(connection, "FLUSHALL");
    found.iter().for_each(|command| run(connection, command));
}

/// Looks at a key, also if its slot is just coming here.
fn look<T: redis::FromRedisValue>(connection: &mut Connection, command: &str) -> T {
    // Refused by a server that is in no Cluster.
    let _: Result<(), _> = cmd("ASKING").query(connection);
    run(connection, command)
}

/// Every key: what it holds, and its time to live in minutes, rounded.
fn state(connection: &mut Connection) -> BTreeMap<String, (Vec<String>, i64)> {
    let keys: Vec<String> = run(connection, "KEYS *");
    let mut state = BTreeMap::new();
    for key in keys {
        let is_hash = look::<String>(connection, &format!("TYPE {key}")) == "hash";
        let mut holds: Vec<String> = match is_hash {
            true => look::<Vec<String>>(connection, &format!("HGETALL {key}")),
            false => vec![look(connection, &format!("GET {key}"))],
        };
        holds.sort();
        let left: i64 = look(connection, &format!("PTTL {key}"));
        assert!(left >= 0 || key.starts_with("redisson_lock_token:"), "{key} stays for ever: {holds:?}");
        state.insert(key, (holds, (left + 30_000) / 60_000));
    }
    state
}

struct Stage {
    _server: RedisServer,
    admin: Connection,
    user: Connection,
}

impl Stage {
    fn set() -> Stage {
        let server = RedisServer::start();
        let mut admin = redis::Client::open(server.url()).unwrap().get_connection().unwrap();
        let () = run(&mut admin, "ACL SETUSER user on >secret ~* &* +@all");
        let url = server.url().replace("redis://", "redis://user:secret@");
        let user = redis::Client::open(url).unwrap().get_connection().unwrap();
        Stage { _server: server, admin, user }
    }

    /// Each script on each thing that it may find, once with nothing refused and once under `refusal`, which `end` ends: an error has
    /// changed nothing, and what is no error has done everything. How often there was an error only then.
    fn refuse(&mut self, of: impl Fn(&Call) -> BTreeSet<(String, String)>) -> usize {
        let Stage { admin, user, .. } = self;
        // What a user may do: since 7.0.
        let asks = cmd("EVAL").arg("return redis.acl_check_cmd and 1 or 0").arg(0).query(user);
        let can_be_asked: bool = asks.unwrap();
        let mut refused = 0;
        for call in CALLS {
            for found in FOUND {
                find(admin, found);
                let before = state(admin);
                let allowed = call.run(user);
                let done = state(admin);
                assert!(
                    allowed.is_ok() || before == done,
                    "{allowed:?} on {found:?}: {before:?} -> {done:?}"
                );
                for (begin, end) in of(&call) {
                    find(admin, found);
                    let () = run(admin, &begin);
                    let reply = call.run(user);
                    let () = run(admin, &end);
                    let after = state(admin);
                    let text = call.text.lines().next().unwrap();
                    let mut expected = if reply.is_ok() { done.clone() } else { before.clone() };
                    if reply.is_err() && !can_be_asked {
                        // Tokens may have a gap.
                        let counter = after.get(COUNTER).map(|counter| (COUNTER.to_owned(), counter.clone()));
                        expected.extend(counter);
                    }
                    assert_eq!(after, expected, "{text} under {begin:?} on {found:?}: {reply:?}");
                    refused += usize::from(reply.is_err() && allowed.is_ok());
                }
            }
        }
        refused
    }
}

#[test]
fn script_does_all_or_nothing_whichever_right_is_missing() {
    let refused = Stage::set().refuse(|call| {
        let rights = call.commands().into_iter();
        let one =
            |right: String| (format!("ACL SETUSER user -{right}"), format!("ACL SETUSER user +{right}"));
        // And several at a time, among them all that could undo anything.
        let kinds = ["keyspace", "hash", "string", "pubsub", "write"];
        let kind = |kind| (format!("ACL SETUSER user -@{kind}"), "ACL SETUSER user +@all".to_owned());
        rights.map(one).chain(kinds.map(kind)).collect()
    });
    assert!(refused > 100, "only {refused} were refused, so nothing was tested");
}

#[test]
fn script_does_all_or_nothing_whether_or_not_the_server_takes_writes() {
    let refused = Stage::set().refuse(|_| {
        let settings = [("maxmemory", "1", "0"), ("min-replicas-to-write", "1", "0")];
        settings
            .map(|(it, on, off)| (format!("CONFIG SET {it} {on}"), format!("CONFIG SET {it} {off}")))
            .into()
    });
    assert!(refused > 10, "only {refused} were refused, so nothing was tested");
}

#[test]
fn renewal_gives_a_lease_without_an_end_its_end_back() {
    let mut stage = Stage::set();
    let () = run(&mut stage.admin, "HSET {s}lock mode lock {us} 1");
    CALLS[4].run(&mut stage.user).unwrap();
    assert_eq!(state(&mut stage.admin)[LOCK].1, 10);
}

/// In the middle of a move each node has some of a slot's keys, and runs a script only if it has all that the script names: those that are
/// there, as nothing but their new node may make those that are not. What it lets begin, it must let end.
#[test]
fn script_does_all_or_nothing_in_a_slot_that_moves() {
    const FROM: usize = 0;
    const TO: usize = 1;
    let cluster = RedisCluster::start_with(&[]);
    let slot: u16 = cluster.ask(FROM, &["CLUSTER", "KEYSLOT", LOCK]);
    let owner = cluster.owner(FROM, slot).expect("some node has it");
    let (from, to) = if owner == FROM { (FROM, TO) } else { (owner, FROM) };
    let connect =
        |node: usize| redis::Client::open(cluster.nodes()[node].url()).unwrap().get_connection().unwrap();
    let (mut source, mut target) = (connect(from), connect(to));
    let (mut ran, mut refused) = (0, 0);
    for call in CALLS {
        for found in FOUND {
            find(&mut source, found);
            let before = state(&mut source);
            let _ = call.run(&mut source);
            let done = state(&mut source);
            // Each set of the keys is at the new node already.
            for moved in 0..1_u32 << before.len() {
                find(&mut source, found);
                let () = run(&mut target, "FLUSHALL");
                cluster.begin_to_move(slot, from, to);
                let goes = before.keys().enumerate().filter(|(key, _)| moved & (1 << key) != 0);
                goes.for_each(|(_, key)| cluster.move_key(key, from, to));
                let mut expected = &before;
                let mut reply = call.run(&mut source);
                // As a client does: it goes where it is sent to.
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
                // The move does not take place.
                let () = run(&mut target, "FLUSHALL");
                for node in [from, to] {
                    let () = cluster.ask(node, &["CLUSTER", "SETSLOT", &slot.to_string(), "STABLE"]);
                }
            }
        }
    }
    assert!(ran > 30 && refused > 10, "{ran} ran and {refused} were refused");
}

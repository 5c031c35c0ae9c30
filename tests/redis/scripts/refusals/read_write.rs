//! The scripts of read-write locks, and the states before their calls.

use super::{
    COUNTER, CROWD, Call, DEAD_QUEUE, DEAF_AND_DEAD_QUEUE, FIRST, FIRST_WAITS, Found, LOCK, LONG, NEXT,
    NONCE, RENEW, Released, SHORT, TAKE_FREE, THEM, US, WAITED_FOR, call, script, state_of,
};

pub(in super::super) const QUEUE: &str = "{s}lock:latchwork:rw_queue";
pub(in super::super) const POSITIONS: &str = "{s}lock:latchwork:rw_positions";
const READERS: &str = "{s}lock:latchwork:rw_readers";
pub(in super::super) const TURN: &str = "{s}lock:latchwork:rw_turn";
const OURS: &str = "{s}lock:8743c9c0-0795-4907-87fd-6c719a6b4586:1:rwlock_timeout:1";
const US_TO_WRITE: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:1:write";
const CHANNEL: &str = "redisson_rwlock:{s}lock";
pub(in super::super) const GRANTS: &str = "{s}lock:latchwork:rw_grant:";

macro_rules! of_read_write {
    ($file:literal) => {
        script!("read_write_kind" "counter" "queue" "read_write" $file)
    };
}

pub(in super::super) const ACQUIRE: &str = of_read_write!("queue_acquire");
pub(in super::super) const RELEASE: &str =
    script!("read_write_kind" "hand_off" "counter" "queue" "read_write" "queue_release");
pub(super) const RELEASE_IN_FULL: &str = of_read_write!("queue_release");
pub(in super::super) const FORCE_RELEASE: &str = of_read_write!("queue_force_release");
pub(super) const READ_ACQUIRE: &str = of_read_write!("read_acquire");
pub(super) const READ_FREE: &str = script!("read_free");
pub(super) const READ_RELEASE: &str =
    script!("read_write_kind" "read_alone" "counter" "queue" "read_write" "read_release");
const READ_RELEASE_IN_FULL: &str = of_read_write!("read_release");
pub(in super::super) const HOLDERS: &str = of_read_write!("read_write_holders");

pub(in super::super) const KEYS: &[&str] = &[LOCK, QUEUE, POSITIONS, READERS, TURN];
const FENCED_KEYS: &[&str] = &[LOCK, QUEUE, POSITIONS, READERS, TURN, COUNTER];
const READER_KEYS: &[&str] = &[LOCK, QUEUE, POSITIONS, READERS, TURN, OURS];
const FENCED_READER_KEYS: &[&str] = &[LOCK, QUEUE, POSITIONS, READERS, TURN, OURS, COUNTER];

/// Arguments of a script: true to leave the lock to other clients, and its own arguments.
macro_rules! args {
    ($spare:literal $(, $own:expr)*) => {
        &["publish", "1", CHANNEL, "0", GRANTS, "granted:", "1", "{s}lock:", $spare $(, $own)*]
    };
}

/// The time waited by the earliest waiter.
const OLD: &str = "9000000000000000";

const TAKE_FREE_TO_WRITE: Call = call(TAKE_FREE, &[LOCK, QUEUE], &[SHORT, US_TO_WRITE, "write"]);
const READ_FREE_LOCK: Call = call(READ_FREE, &[LOCK, QUEUE, READERS, TURN, OURS], &[SHORT, US]);

/// The first attempts, and the calls of the full scripts that do the same.
pub(super) const FIRST_ATTEMPTS: [[Call; 2]; 2] = [
    [TAKE_FREE_TO_WRITE, call(ACQUIRE, KEYS, args!["", SHORT, US, "0"])],
    [READ_FREE_LOCK, call(READ_ACQUIRE, READER_KEYS, args!["", SHORT, US, "", ""])],
];

pub(super) const CALLS: [Call; 19] = [
    TAKE_FREE_TO_WRITE,
    READ_FREE_LOCK,
    call(ACQUIRE, KEYS, args!["", SHORT, US, "0"]),
    call(ACQUIRE, FENCED_KEYS, args!["", SHORT, US, "3", SHORT, NONCE, "0"]),
    call(ACQUIRE, FENCED_KEYS, args!["", SHORT, US, "3", SHORT, NONCE, OLD]),
    call(RELEASE, KEYS, args!["", US]),
    call(RELEASE_IN_FULL, KEYS, args!["", US]),
    call(RELEASE, KEYS, args!["1", US]),
    call(RELEASE, KEYS, args!["", US, NEXT, SHORT, "0", SHORT, NONCE, "0"]),
    call(RELEASE, KEYS, args!["1", US, NEXT, SHORT, "0", SHORT, NONCE, "0"]),
    call(RELEASE, FENCED_KEYS, args!["", US, NEXT, LONG, "3", SHORT, NONCE, OLD]),
    call(RELEASE, KEYS, args!["", FIRST]),
    call(FORCE_RELEASE, KEYS, args![""]),
    call(READ_ACQUIRE, READER_KEYS, args!["", SHORT, US, "", "", SHORT, "0"]),
    call(READ_ACQUIRE, FENCED_READER_KEYS, args!["", LONG, US, THEM, "1"]),
    call(READ_RELEASE, READER_KEYS, args!["", US]),
    call(HOLDERS, &[LOCK], &["", "", "", "", "", "", "", "{s}lock:", "", "0"]),
    call(RENEW, &[LOCK, OURS], &[LONG, "2", US]),
    call(RENEW, &[LOCK], &[LONG, "1", US_TO_WRITE]),
];

pub(super) const RELEASES: [(&str, &str, &[&str], &[&str]); 5] = [
    (READ_RELEASE, READ_RELEASE_IN_FULL, READER_KEYS, args!["", US]),
    (READ_RELEASE, READ_RELEASE_IN_FULL, READER_KEYS, args!["1", US]),
    (RELEASE, RELEASE_IN_FULL, KEYS, args!["", US]),
    (RELEASE, RELEASE_IN_FULL, KEYS, args!["1", US]),
    (RELEASE, RELEASE_IN_FULL, KEYS, args!["", FIRST]),
];

const HELD: [&[&str]; 9] = [
    &[],
    &["HSET {s}lock mode write {us}:write 1"],
    &["HSET {s}lock mode write {them}:write 1"],
    &["HSET {s}lock mode write {next}:write 1"],
    &[
        "HSET {s}lock mode write {us}:write until:9000000000000000 {next} 1",
        "SET {s}lock:{next}:rwlock_timeout:1 1 PX 60000",
    ],
    // The writer's lease is over, and it reads on.
    &["HSET {s}lock mode write {them}:write until:1 {us} 1", "SET {s}lock:{us}:rwlock_timeout:1 1 PX 60000"],
    &["HSET {s}lock mode read {us} 1", "SET {s}lock:{us}:rwlock_timeout:1 1 PX 60000"],
    &[
        "HSET {s}lock mode read {us} 1 {them} 2 {dead} 1",
        "SET {s}lock:{us}:rwlock_timeout:1 1 PX 60000",
        "SET {s}lock:{them}:rwlock_timeout:2 1 PX 60000",
    ],
    // All readers are dead.
    &["HSET {s}lock mode read {us} 1 {dead} 1"],
];

/// Two readers; the writer's lease is over.
const READ_ON: &[&str] = &[
    "HSET {s}lock mode write {them}:write until:1 {us} 1 {next} 1",
    "SET {s}lock:{us}:rwlock_timeout:1 1 PX 60000",
    "SET {s}lock:{next}:rwlock_timeout:1 1 PX 60000",
];

/// States of a fair lock's queue, as states of writers.
pub(super) fn of_writers(found: &Found) -> Found {
    let of_writer = |words: &String| {
        let words = words.replace("mode fair", "mode write").replace("fair_", "rw_");
        if !words.starts_with("HSET {s}lock ") {
            return words;
        }
        let ids = ["{us}", "{them}", "{first}"];
        ids.iter().fold(words, |words, id| words.replace(id, &format!("{id}:write")))
    };
    found.iter().map(of_writer).collect()
}

const WRITERS: [&[&str]; 5] = [&[], WAITED_FOR, DEAD_QUEUE, FIRST_WAITS, DEAF_AND_DEAD_QUEUE];

/// The waiting readers, and the readers whose turn it is; some have already come.
const READERS_WAIT: [&[&str]; 3] = [
    &[],
    &["ZADD {s}lock:latchwork:rw_readers 9000000000000000 {us} 9000000000000000 {second}"],
    &[
        "ZADD {s}lock:latchwork:rw_readers 9000000000000000 {dead}",
        "ZADD {s}lock:latchwork:rw_turn 8000000000000000 phase 9000000000000000 {us}",
    ],
];

/// A state of the lock and of its waiting readers, with a queue of writers in the words of a fair lock.
fn with_queue(held: &[&str], queue: &[&str], rest: &[&str]) -> Found {
    [state_of(&[held]), of_writers(&state_of(&[queue])), state_of(&[rest])].concat()
}

pub(super) fn found() -> Vec<Found> {
    let alone: [&[&str]; 8] = [
        &["HSET {s}lock mode lock {us} 1"],
        &["HSET {s}lock {them} 1"],
        &["SET {s}lock text PX 60000"],
        &["SET redisson_lock_token:{s}lock text"],
        READ_ON,
        // A writer without readers; its field holds its end.
        &["HSET {s}lock mode write {them}:write until:9000000000000000"],
        // A writer without readers; its lease is over.
        &["HSET {s}lock mode write {them}:write until:1"],
        // A dead reader beside a writer.
        &["HSET {s}lock mode write {us}:write 1 {dead} 1"],
    ];
    let mut all = alone.map(|state| state_of(&[state])).to_vec();
    let waiting = [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 2), (3, 0), (3, 1), (4, 0)];
    for held in HELD {
        for (writers, readers) in waiting {
            let counter: &[_] = if readers == 0 { &[] } else { &["SET redisson_lock_token:{s}lock 7"] };
            all.push(with_queue(held, WRITERS[writers], &[READERS_WAIT[readers], counter].concat()));
        }
    }
    // More than a script looks at: waiting writers that do not listen, and dead readers.
    for held in [HELD[6], &["HSET {s}lock mode read {readers}"]] {
        all.push(with_queue(held, CROWD, READERS_WAIT[2]));
    }
    all
}

/// A reader leaves the lock to another one, and a writer to strangers.
pub(super) fn without_memory() -> [Released; 2] {
    let reads = call(READ_RELEASE, READER_KEYS, args!["", US]);
    let writes = call(RELEASE, KEYS, args!["1", US]);
    [
        (reads, state_of(&[READ_ON]), 1, Some(vec!["1", NEXT, "mode", "read"])),
        (writes, state_of(&[HELD[1]]), 2, None),
    ]
}

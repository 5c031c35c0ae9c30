//! The scripts of read-write locks, and the states before their calls.

use super::{
    COUNTER, Call, FIRST, LOCK, LONG, NEXT, NONCE, RENEW, Released, SHORT, TAKE_FREE, THEM, US, script,
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

const TAKE_FREE_TO_WRITE: Call =
    Call { text: TAKE_FREE, keys: &[LOCK, QUEUE], args: &[SHORT, US_TO_WRITE, "write"] };
const READ_FREE_LOCK: Call =
    Call { text: READ_FREE, keys: &[LOCK, QUEUE, READERS, TURN, OURS], args: &[SHORT, US] };

/// The first attempts, and the calls of the full scripts that do the same.
pub(super) const FIRST_ATTEMPTS: [[Call; 2]; 2] = [
    [TAKE_FREE_TO_WRITE, Call { text: ACQUIRE, keys: KEYS, args: args!["", SHORT, US, "0"] }],
    [READ_FREE_LOCK, Call { text: READ_ACQUIRE, keys: READER_KEYS, args: args!["", SHORT, US, "", ""] }],
];

pub(super) const CALLS: [Call; 19] = [
    TAKE_FREE_TO_WRITE,
    READ_FREE_LOCK,
    Call { text: ACQUIRE, keys: KEYS, args: args!["", SHORT, US, "0"] },
    Call { text: ACQUIRE, keys: FENCED_KEYS, args: args!["", SHORT, US, "3", SHORT, NONCE, "0"] },
    Call { text: ACQUIRE, keys: FENCED_KEYS, args: args!["", SHORT, US, "3", SHORT, NONCE, OLD] },
    Call { text: RELEASE, keys: KEYS, args: args!["", US] },
    Call { text: RELEASE_IN_FULL, keys: KEYS, args: args!["", US] },
    Call { text: RELEASE, keys: KEYS, args: args!["1", US] },
    Call { text: RELEASE, keys: KEYS, args: args!["", US, NEXT, SHORT, "0", SHORT, NONCE, "0"] },
    Call { text: RELEASE, keys: KEYS, args: args!["1", US, NEXT, SHORT, "0", SHORT, NONCE, "0"] },
    Call { text: RELEASE, keys: FENCED_KEYS, args: args!["", US, NEXT, LONG, "3", SHORT, NONCE, OLD] },
    Call { text: RELEASE, keys: KEYS, args: args!["", FIRST] },
    Call { text: FORCE_RELEASE, keys: KEYS, args: args![""] },
    Call { text: READ_ACQUIRE, keys: READER_KEYS, args: args!["", SHORT, US, "", "", SHORT, "0"] },
    Call { text: READ_ACQUIRE, keys: FENCED_READER_KEYS, args: args!["", LONG, US, THEM, "1"] },
    Call { text: READ_RELEASE, keys: READER_KEYS, args: args!["", US] },
    Call { text: HOLDERS, keys: &[LOCK], args: &["", "", "", "", "", "", "", "{s}lock:", "", "0", ""] },
    Call { text: RENEW, keys: &[LOCK, OURS], args: &[LONG, "2", US] },
    Call { text: RENEW, keys: &[LOCK], args: &[LONG, "1", US_TO_WRITE] },
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
const READ_ON: [&str; 4] = [
    "HSET {s}lock mode write {them}:write until:1 {us} 1 {next} 1",
    "PEXPIRE {s}lock 60000",
    "SET {s}lock:{us}:rwlock_timeout:1 1 PX 60000",
    "SET {s}lock:{next}:rwlock_timeout:1 1 PX 60000",
];

const WRITERS: [&[&str]; 5] = [
    &[],
    &[
        "ZADD {s}lock:latchwork:rw_queue 1 {dead} 2 {first} 3 {second}",
        "PEXPIRE {s}lock:latchwork:rw_queue 60000",
        "HSET {s}lock:latchwork:rw_positions {dead} {past}:0 {first} {far}:1111 {second} {far}:2222",
        "PEXPIRE {s}lock:latchwork:rw_positions 60000",
    ],
    &[
        "ZADD {s}lock:latchwork:rw_queue 1 {dead}",
        "PEXPIRE {s}lock:latchwork:rw_queue 60000",
        "HSET {s}lock:latchwork:rw_positions {dead} {past}:0",
        "PEXPIRE {s}lock:latchwork:rw_positions 60000",
    ],
    // No position is expired.
    &[
        "ZADD {s}lock:latchwork:rw_queue 2 {first} 3 {second}",
        "PEXPIRE {s}lock:latchwork:rw_queue 60000",
        "HSET {s}lock:latchwork:rw_positions {first} {soon}:1111 {second} {far}:2222",
        "PEXPIRE {s}lock:latchwork:rw_positions 60000",
    ],
    // No writer listens, and the second position is expired.
    &[
        "ZADD {s}lock:latchwork:rw_queue 1 {them} 2 {dead}",
        "PEXPIRE {s}lock:latchwork:rw_queue 60000",
        "HSET {s}lock:latchwork:rw_positions {them} {far}:3333 {dead} {past}:0",
        "PEXPIRE {s}lock:latchwork:rw_positions 60000",
    ],
];

/// The waiting readers, and the readers whose turn it is; some have already come.
const READERS_WAIT: [&[&str]; 3] = [
    &[],
    &[
        "ZADD {s}lock:latchwork:rw_readers 9000000000000000 {us} 9000000000000000 {second}",
        "PEXPIRE {s}lock:latchwork:rw_readers 60000",
    ],
    &[
        "ZADD {s}lock:latchwork:rw_readers 9000000000000000 {dead}",
        "PEXPIRE {s}lock:latchwork:rw_readers 60000",
        "ZADD {s}lock:latchwork:rw_turn 8000000000000000 phase 9000000000000000 {us}",
        "PEXPIRE {s}lock:latchwork:rw_turn 60000",
    ],
];

pub(super) fn found() -> Vec<Vec<&'static str>> {
    let mut all = vec![
        vec!["HSET {s}lock mode lock {us} 1", "PEXPIRE {s}lock 60000"],
        vec!["HSET {s}lock {them} 1", "PEXPIRE {s}lock 60000"],
        vec!["SET {s}lock text PX 60000"],
        vec!["SET redisson_lock_token:{s}lock text"],
        // A free lock, with an expired writer in the queue.
        WRITERS[2].to_vec(),
        READ_ON.to_vec(),
        // A writer without readers; its field holds its end.
        vec!["HSET {s}lock mode write {them}:write until:9000000000000000", "PEXPIRE {s}lock 60000"],
        // A writer without readers; its lease is over.
        vec!["HSET {s}lock mode write {them}:write until:1", "PEXPIRE {s}lock 60000"],
        // A dead reader beside a writer.
        vec!["HSET {s}lock mode write {us}:write 1 {dead} 1", "PEXPIRE {s}lock 60000"],
    ];
    let waiting = [(0, 0), (1, 0), (0, 1), (1, 1), (2, 0), (2, 2), (3, 0), (3, 1), (4, 0)];
    for held in HELD {
        for (writers, readers) in waiting.map(|(writers, readers)| (WRITERS[writers], READERS_WAIT[readers]))
        {
            let counter: &[_] = if readers.is_empty() { &[] } else { &["SET redisson_lock_token:{s}lock 7"] };
            let lasts: &[_] = if held.is_empty() { &[] } else { &["PEXPIRE {s}lock 60000"] };
            all.push([held, lasts, writers, readers, counter].concat());
        }
    }
    // More than a script looks at: waiting writers that do not listen, and dead readers.
    let writers = ["ZADD {s}lock:latchwork:rw_queue {crowd}", "PEXPIRE {s}lock:latchwork:rw_queue 60000"];
    for held in [HELD[6], &["HSET {s}lock mode read {readers}"]] {
        all.push([held, &["PEXPIRE {s}lock 60000"], &writers, &WRITERS[2][2..], READERS_WAIT[2]].concat());
    }
    all
}

/// A reader leaves the lock to another one, and a writer to strangers.
pub(super) fn without_memory() -> [Released; 2] {
    let reads = Call { text: READ_RELEASE, keys: READER_KEYS, args: args!["", US] };
    let writes = Call { text: RELEASE, keys: KEYS, args: args!["1", US] };
    [
        (reads, READ_ON.to_vec(), 1, Some(vec!["1", NEXT, "mode", "read"])),
        (writes, [HELD[1], &["PEXPIRE {s}lock 60000"]].concat(), 2, None),
    ]
}

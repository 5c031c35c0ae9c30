//! The Redis backend, wire-compatible with Redisson's `RLock` and `RReadWriteLock`.
//!
//! # On the wire
//!
//! | thing | is |
//! |---|---|
//! | the lock | a hash under the lock's name, with two fields: the lease's id, and `1` as value (`8` after a call was lost); `mode`, and `lock` as value. Repeated holds of an owner are counted in its process |
//! | the lease's id | `<uuid>:<number>`, new for each lease; `<uuid>:<number>:<label>` if the client has a label |
//! | the lease's end | the hash's time to live |
//! | the channel | `redisson_lock__channel:{name}` (without the added braces if the name has some) |
//! | the tokens | a number under `redisson_lock_token:{name}`, which never expires; only a fenced lock has it |
//! | the message | `0`, published when the lock becomes free |
//! | waiting clients | a sorted set `name:latchwork:{name}:waiters`: ids by the server's time (µs) since when each waits, for a minute |
//! | a call | `0`, published on `name:latchwork:{name}:call:<uuid>` to the client that has waited longest, when the lock becomes free |
//!
//! A fair lock has `fair` in its `mode`, and besides
//!
//! | thing | is |
//! |---|---|
//! | its queue | a sorted set `name:latchwork:{name}:fair_queue`: ids by the server's time (µs) at which their waits began |
//! | positions | a hash, `…:fair_positions`: the same ids by the time (µs) at which their positions end, `:`, and 64 random bits: the nonce that the waiter sent when enqueued |
//! | a grant | `granted:`, the id's number, `:`, and its nonce, published on `…:fair_grant:<uuid>` when a release has leased the lock to a waiter |
//!
//! Our own keys and channels begin with the lock's name, so a right to a prefix covers them. A name with
//! braces is not repeated: its queue is `name:latchwork:fair_queue`. All keys of a lock lie in one slot.
//!
//! A message gives no right to the lock. A waiter accepts a grant only if the grant carries the waiter's own
//! nonce, which only users with rights to the lock's keys can read; any other message makes the waiter ask.
//!
//! The release of a fair lock leases the lock to the first waiter whose client listens, by the server's count
//! of listeners. (In a Cluster with plain messages no node knows all listeners; there a dead client keeps its
//! turn until its position ends.) Redisson's clients are told when none of ours waits: clients of its plain
//! lock on the lock's channel, and the head of its fair lock's queue on its own channel.
//!
//! A semaphore has `permits` as `mode`; the fields `used`, the permits in use, and `first`, a time before
//! which no lease ends; and each holder's id, with `until:`, the time (µs) at which the lease ends, `:`, and
//! the permits. Queue, positions and grants are a fair lock's, with `permits_` for `fair_`.
//!
//! A read-write lock is Redisson's `RReadWriteLock`:
//!
//! | thing | is |
//! |---|---|
//! | the lock | a hash under its name, with `read` or `write` as `mode`; readers' ids, and the writer's with `:write` behind it, with `1` as value. A writer whose owner also reads has `until:` and the server's time (µs) at which its lease ends |
//! | a reader's lease | a key `{name}:<id>:rwlock_timeout:1`. A reader without the key is dead; Redisson's readers have a key for each hold, `:1`, `:2` … |
//! | the lock's end | the longest of the leases |
//! | the channel | `redisson_rwlock:{name}`, with `0`, or `1` to wake all waiters |
//! | the writers' queue | as a fair lock's: `name:latchwork:{name}:rw_queue`, `…:rw_positions`; grants on `…:rw_grant:<uuid>` |
//! | waiting readers | a sorted set, `…:rw_readers`: ids by the time (µs) until when they are remembered |
//! | the readers' turn | the set of waiting readers, moved to `…:rw_turn` when a writer has left, with `phase` by the time of the move. While a reader of the turn has not come yet, for at most a second, a lock without readers stays with `read` as `mode` |
//!
//! Redisson's readers ignore waiting writers, and its waiting clients leave no trace on the server. So if 31
//! releases in a row by one process have passed a read-write lock on, the next frees the lock and wakes all.
//!
//! While a reader of Redisson's holds the lock, its watchdog sets the lock's end to its own timeout; up to
//! 3.x, every reader's lease, too. So give both sides the same timeout; a longer lease for reading is
//! restored each third of `watchdog_timeout`.
//!
//! Redisson's clients take turns with this crate's, and each side wakes the other. Redisson's plain, fair,
//! fenced and spin locks have no `mode`, and look the same. Its fair and spin locks wake no waiter of ours:
//! each process's queue head asks once a second while there is no `mode`. Its plain lock wakes our fair
//! lock's waiters.
//!
//! Redisson gives `x` and `{x}` one channel and one counter of tokens: a message wakes the waiters of both
//! names, and tokens rise for each name. A thread of Redisson's that reads both names has one lease for both.
//! A name that Redisson's read or write lock holds cannot be a plain or fair lock of ours: this is an error
//! ([`LockError::OtherKind`](crate::LockError::OtherKind)), not a wait.
//!
//! Every key except the counter of tokens has a time to live. If a key loses it by hand (`PERSIST`), the lock
//! is held until its release or `force_unlock`: no other command shortens a lease. A script does all its work
//! or nothing, whichever command the server refuses. (Servers before 7.0 cannot be asked for a user's rights:
//! there a counter may rise without an acquisition, and a server out of memory still leases locks.)
//!
//! # Connections
//!
//! Two to a server, both RESP3, both dialled anew when they break: one for commands, one for subscriptions.
//! The server may kill a subscribed connection for reading too slowly, and renewals must not die with it.
//!
//! A connection silent for a second gets a heartbeat ([`RedisBuilder::heartbeat`]), and the system probes it
//! ([`RedisBuilder::keepalive`]); without an answer, the connection is given up. Dials wait for a random
//! time, which grows up to a second with each failure, and is short again after an answered heartbeat. After
//! a silence, which meets all clients of a server, dials are spread over half a second. Each dial resolves
//! the server's name, and calls for the [credentials](RedisBuilder::credentials).
//!
//! The client leaves a server that is a replica (READONLY, MASTERDOWN), lacks replicas (NOREPLICAS), or loads
//! its data (LOADING): the name or address may lead to the master by now. A busy server (BUSY) is asked
//! again. The command, which did not run, goes to the next node that answers, within its time limit.
//!
//! # Sentinel
//!
//! With a `redis+sentinel://` URL (feature `sentinel`) the server is the master that the Sentinels name, if
//! its ROLE confirms it. Each dial asks the Sentinels in turn, beginning with the last one that was right.
//! The client also follows one Sentinel, or another if that one is silent: by its message `+switch-master`,
//! and by asking once a second, in case a message is lost.
//!
//! When the master changes, the former master gets no more commands, although it may accept writes for ten
//! seconds. Commands in flight are sent to the new master, both connections are made again, and all waiters
//! try again; likewise if a reply to a command (READONLY) or to the heartbeat (ROLE) shows a replica.
//!
//! A command that did not run for lack of a master waits for the next one as long as for a reply.
//!
//! # Cluster
//!
//! With the feature `cluster`, [`Redis::connect`] takes `redis-cluster://` URLs. Commands go to the master of
//! the lock's slot, over one connection for each master, and follow a moved slot or a new master within their
//! time limit. A slow or dead node delays only the renewals of its own locks. Messages follow Redisson's
//! rule: sharded messages from the lock's master if the servers support them (Redis 7.0), otherwise plain
//! messages over one connection to any node; `RedisBuilder::sharded_messages` overrules the rule.
//!
//! A name whose first braces are empty (`{}`) would spread a lock's keys over slots:
//! [`LockClient::get_lock`](crate::LockClient::get_lock) refuses it. While a slot is moving, three operations
//! wait for its end: the first acquisition of a fenced lock, whose counter would be on another node; all
//! operations but renewals of a fair or a read-write lock; and a sharded message.
//!
//! # Lost replies
//!
//! If a connection breaks, or is silent for a second, its commands are sent again over a new connection, for
//! up to three seconds in all ([`RedisBuilder::response_timeout`]): each command has the same effect when it
//! runs twice. Only a forced release is not sent again. An unanswered attempt to take the lock is rolled
//! back, and a release is repeated until it is answered or the lease has ended.
//!
//! A waiter, however, outlasts an outage of any length ([`try_lock_for`](crate::Lock::try_lock_for) within
//! its limit), and a hold outlasts an outage shorter than its lease: renewals are tried until the lease ends.
//!
//! A command sent over a dropped connection may still arrive. A late release finds nothing, as no id is used
//! again; a late attempt would hold the lock unused until its lease ends. So the next connection first has
//! the server end the previous one (`CLIENT KILL`). If the server refuses, or is older than 6.2, the client
//! repeats the release of such an attempt (unanswered, or sent twice) each second, until two minutes after it
//! dropped the connection: a late attempt holds the lock for a second at most. A process does so for a
//! thousand ids at a time, warns of more (feature `tracing`), and does not wait for the end in
//! [`shutdown`](crate::LockClient::shutdown).
//!
//! # Rights
//!
//! A user with exactly these rights passes the whole test suite for backends, with locks whose names begin
//! with `orders:`; if a right is missing, the error says so, and `ACL LOG` names the command (so does the
//! error if the server tells, as Redis does since 7.2). The user can neither read, nor write, nor wake a lock
//! whose name begins differently. In `ACL SETUSER`'s words, for one server:
//!
//! ```text
//! -@all +ping +evalsha +eval +subscribe +unsubscribe +publish
//! +exists +hget +hscan +hset +pttl +pexpire +del +get +incrby
//! +time +zadd +zcard +zpopmin +zrank +zrem
//! ~orders:* ~redisson_lock_token:{orders:* ~redisson_lock_token:orders:*
//! &redisson_lock__channel:{orders:* &redisson_lock__channel:orders:* &orders:*
//! ```
//!
//! `+get` and `+incrby` are for fenced locks only, as are the patterns with `token`. Of two patterns that
//! differ by a brace the first is for names without braces, the second for names with braces: leave out the
//! unused pattern. Neither a prefix, nor `{` and the prefix, may be the beginning of another tenant's prefix.
//!
//! Redis has no narrower rights for three things: `+pubsub|numsub` tells how many listen to any channel,
//! `+client|kill` ends any connection, and a user of a Cluster's plain messages shares their cost. Further
//! rights are for
//!
//! | | |
//! |---|---|
//! | cutting late commands off instead of undoing them | `+client\|info +client\|kill` |
//! | a [name](RedisBuilder::client_name) | `+client\|setname` |
//! | a database other than 0 | `+select` |
//! | waiting for [replicas](RedisBuilder::wait_for_replicas) | `+wait` |
//! | fair locks | `+hdel +lindex +zrange +zscore +pubsub\|numsub ~redisson_lock_queue:{orders:* ~redisson_lock_queue:orders:*` |
//! | semaphores | `+hdel +hgetall +hmget +zrange +zscore +pubsub\|numsub` |
//! | read-write locks | `+hexists +hdel +rename +set +zrange +zscore +pubsub\|numsub ~{orders:*}:*:rwlock_timeout:* &redisson_rwlock:{orders:* &redisson_rwlock:orders:*` |
//! | fair or read-write locks, or semaphores, with sharded messages, too | `+pubsub\|shardnumsub` |
//! | Sentinel, at the servers | `+role` |
//! | Sentinel, at the Sentinels | `+sentinel +subscribe &+switch-master` |
//! | a Cluster | `+cluster\|slots +asking` |
//! | a Cluster's kind of messages, unless `RedisBuilder::sharded_messages` says it | `+pubsub\|shardnumsub` |
//! | leaving a node that is cut off from its Cluster | `+cluster\|info` |
//! | sharded messages | `+spublish +ssubscribe +sunsubscribe` |
//!
//! # What is not guaranteed
//!
//! One Redis server is not consensus. If a master fails before its replica has heard of a lock, the lock is
//! free on the new master. Two holders can then believe in the lock until the first holder's next renewal
//! (without renewals, as with `lock_with_lease`, until its lease ends). In the same way the counter of tokens
//! can be set back; it begins anew if deleted or evicted. [`RedisBuilder::wait_for_replicas`] makes a loss
//! less likely, and describes the remaining risk.
//!
//! A client believes a master that is cut off from its Sentinels, but not from the client, for as long as the
//! reachable Sentinels name it; the server's own `min-replicas-to-write` is the remedy.

// Where to look (DESIGN.md has a picture of a command's way):
//
// | module | is |
// |---|---|
// | `connection` | one supervised connection: dial, greeting, heartbeat, back-off, the meaning of errors; `in_flight` limits the commands in flight |
// | `topology` → `single`, `sentinel`, `cluster` | the connection for a key or a channel; `router` sends a command until it is answered |
// | `pubsub` | wanted, confirmed and lingering channels |
// | `backend` → `queue`, `read_write` → `scripts`, `keys`, `late`, `hand_off_stats` | a lock's operations, as scripts |

mod backend;
mod builder;
mod connection;
#[cfg(test)]
mod fake;
mod hand_off_stats;
#[cfg(test)]
mod hostile;
mod keys;
mod pubsub;
mod queue;
mod read_write;
mod scripts;
#[cfg(test)]
mod tests;
mod topology;

pub use self::backend::Redis;
pub use self::builder::RedisBuilder;
pub use self::connection::{Credentials, Error, ErrorKind};
pub use self::pubsub::RedisTransport;
#[cfg(feature = "cluster")]
pub use self::topology::cluster::ShardedMessages;
#[cfg(latchwork_simulation)]
#[doc(hidden)]
pub use crate::support::runtime::{Bytes, Surroundings};

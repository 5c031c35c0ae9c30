//! The Redis backend, wire-compatible with Redisson's `RLock` and `RReadWriteLock`.
//!
//! # On the wire
//!
//! | thing | is |
//! |---|---|
//! | the lock | a hash under the lock's name, with two fields: the lease's id, and `1` as value; `mode`, and `lock` as value. How often an owner holds the lock is counted in its process |
//! | the lease's id | `<uuid>:<number>`, new for each lease; `<uuid>:<number>:<label>` if the client has a label |
//! | the lease's end | the hash's time to live |
//! | the channel | `redisson_lock__channel:{name}` (without the added braces if the name has some) |
//! | the tokens | a number under `redisson_lock_token:{name}`, which never expires; only a fenced lock has it |
//! | the message | `0`, published when the lock becomes free |
//!
//! A fair lock has `fair` in its `mode`, and besides
//!
//! | thing | is |
//! |---|---|
//! | its queue | a sorted set `name:latchwork:{name}:fair_queue`: ids by the server's time (µs) since when they wait |
//! | positions | a hash, `…:fair_positions`: the same ids by the time (µs) at which their positions end, `:`, and 64 random bits, the nonce that each waiter has sent when it was enqueued |
//! | a grant | `granted:`, the id's number, `:`, and its nonce, published on `…:fair_grant:<uuid>` when a release has leased the lock to a waiter |
//!
//! Keys and channels of ours begin with the lock's name, so that rights can be given by a prefix. A name that
//! has braces is not repeated: its queue is `name:latchwork:fair_queue`. In a Cluster they lie in the lock's
//! own slot, as all do.
//!
//! A message is a hint, and no right to anything. A waiter takes a grant for the lease only if it brings the
//! waiter's own nonce, which only a user with the right to read the lock's keys can know; any other message
//! makes it ask.
//!
//! The release of a fair lock leases it to the first waiter whose client listens, by the server's count of
//! listeners. (In a Cluster with plain messages no node knows of all; there a client that died has its turn,
//! until its position is over.) Redisson's clients are told when none of ours waits, those of its plain lock
//! on the lock's channel, and the head of its fair lock's queue on its own.
//!
//! A read-write lock is Redisson's `RReadWriteLock`:
//!
//! | thing | is |
//! |---|---|
//! | the lock | a hash under its name, with `read` or `write` as `mode`; readers' ids, and the writer's with `:write` behind it, with `1` as value. A writer whose owner reads as well has `until:` and the server's time (µs) at which its lease ends |
//! | a reader's lease | a key `{name}:<id>:rwlock_timeout:1`. A reader without it is dead; of a reader of Redisson's there is one for each hold, `:1`, `:2` … |
//! | the lock's end | the longest of the leases |
//! | the channel | `redisson_rwlock:{name}`, with `0`, or `1` if it is to wake all waiters |
//! | the writers' queue | as that of a fair lock: `name:latchwork:{name}:rw_queue`, `…:rw_positions`; grants on `…:rw_grant:<uuid>` |
//! | waiting readers | a sorted set, `…:rw_readers`: ids by the time (µs) until when they are remembered |
//! | whose turn it is | the same, moved to `…:rw_turn` when a writer has left, with `phase` by the time when that was. While one of them has not come yet, at most for a second, a lock without readers is left with `read` as `mode` |
//!
//! Redisson's readers do not mind writers that wait, ours included. Its clients that wait leave nothing on
//! the server that tells of them: so after 31 releases of a read-write lock by a process, none of which has
//! left it free, the next one leaves it to whichever client asks first, and tells all.
//!
//! While a reader of Redisson's is there, its watchdog sets the lock's end to its own timeout, and up to 3.x
//! every reader's lease: give both sides the same timeout. A longer lease to read is made whole again each
//! third of `watchdog_timeout`.
//!
//! A Redisson client on the same name takes turns with this one, and each wakes the other. Its plain, fair,
//! fenced and spin locks have no `mode`, and look the same; as the fair and the spin lock wake no waiter of
//! ours, the one waiter of a process that talks to the server asks once a second while the hash has none. Our
//! fair lock's waiters hear the plain one's release at once.
//!
//! Redisson calls the channel and the counter of tokens of `x` and of `{x}` the same. The waiters of both are
//! woken, and a counter that rises for both rises for each; but a thread of Redisson's that reads both has
//! one lease for them. Its read and write locks are another kind of lock: `mode` keeps them out of a plain or
//! fair lock of ours, and a name that they hold is an error there
//! ([`LockError::OtherKind`](crate::LockError::OtherKind)), not a wait.
//!
//! Every key but the counter of the tokens has a time to live, always. One from which it is taken by hand
//! (`PERSIST`) has none until the lock is released, if need be by `force_unlock`: no other command gives a
//! lease an earlier end. A script does all that it is to do or nothing, whichever command in it the server
//! refuses. (Servers before 7.0 cannot be asked what a user may do; there a counter may have been raised for
//! nothing, which leaves a gap, and a server that is out of memory still leases locks.)
//!
//! # Connections
//!
//! Two to a server, both RESP3, both dialled anew when they break: one for commands, one for subscriptions. A
//! connection that has subscribed is in a class of its own on the server (it can be killed for reading too
//! slowly), and renewals must not die with it.
//!
//! A connection over which nothing comes for a second is asked for a sign of life
//! ([`RedisBuilder::heartbeat`]), and probed by the system ([`RedisBuilder::keepalive`]). One that is silent
//! is given up. Dials wait for a random time, which grows up to a second with each that fails, and is short
//! again only after a heartbeat was answered; after a silence, which meets all clients of a server, they are
//! spread over half a second. Each dial looks the server's name up, and asks for the
//! [credentials](RedisBuilder::credentials).
//!
//! A server that says that it is a replica (READONLY, MASTERDOWN), has none (NOREPLICAS) or loads its data
//! (LOADING) is left: its name or address may lead to the master by now. One that is busy with a script
//! (BUSY) is asked again. The command, which did not run, is sent to the node that answers next, until its
//! limit is over.
//!
//! # Sentinel
//!
//! With a `redis+sentinel://` URL (feature `sentinel`) the server is whatever the Sentinels call the master,
//! if its answer to ROLE is that it is one; a user needs to be allowed that. The Sentinels are asked whenever
//! something is to be connected to, in turn, beginning with the last one that was right. Besides, one of them
//! is followed: by its message `+switch-master`, and by asking it once a second, should a message be lost.
//! Another one is followed as soon as it does not answer.
//!
//! When the master changes, no command is sent to the former one any more, although it may take writes for
//! ten seconds still. What is under way there is given up, and sent to the new one; both connections are made
//! again, and all waiters try again. The same happens when the server says that it is a replica, be it to a
//! command (READONLY) or to the heartbeat, which is a ROLE.
//!
//! A command that did not run, because there is no master at the moment or because it came to one that is
//! none, waits for the next one as long as for a reply, and is then sent once.
//!
//! # Cluster
//!
//! With the feature `cluster`, [`Redis::connect`] takes `redis-cluster://` URLs. Commands go to the master
//! that has the lock's slot, over one connection for each; when slots move or a replica takes over, they
//! follow, within their time limit. Messages come by Redisson's own rule: the sharded kind from the lock's
//! master if the servers know it (Redis 7.0), otherwise the plain kind over one connection to any node;
//! `RedisBuilder::sharded_messages` overrules that. A node that is slow or gone delays the renewals of its
//! own locks only.
//!
//! All that belongs to a lock lies in one slot. A name whose first braces are empty (`{}`) would make that
//! impossible, and [`LockClient::get_lock`](crate::LockClient::get_lock) refuses it. While a slot is moving,
//! three things wait for the end of the move: the first acquisition of a fenced lock, whose lock and counter
//! would be with different nodes, all that is done with a fair or a read-write lock but its renewals, and a
//! sharded message.
//!
//! # Lost replies
//!
//! A command whose connection breaks, or is silent for a second, is sent again over a new one, until it has
//! taken three seconds in all ([`RedisBuilder::response_timeout`]). That costs nothing but the time, as each
//! means the same when it runs twice. Only forcing a lock free is not sent again. An attempt to take the lock
//! that is not answered by then is rolled back, and a release is repeated until it is answered or the lease
//! is over.
//!
//! That is the limit of a command. A lock that waits outlasts an outage however long it is,
//! [`try_lock_for`](crate::Lock::try_lock_for) as long as it may wait, and a hold as long as its lease:
//! renewals are tried until that is over.
//!
//! What was sent over a connection that is given up may still be on its way. A release that comes late finds
//! nothing, as an id is not used again. An attempt that comes late would hold the lock unused until its lease
//! ends, so the next connection has the server end the one before it (`CLIENT KILL`), before anything else is
//! sent. Where the server refuses that, or is older than 6.2, the id of an attempt that was not answered, or
//! was sent twice, is released again each second when its lease was given back, until two minutes after that
//! connection was given up: so it keeps others out for a second. A process does that for a thousand ids at a
//! time, says so (feature `tracing`) if there are more, and does not wait for it to be over in
//! [`shutdown`](crate::LockClient::shutdown).
//!
//! # Rights
//!
//! A user with exactly these rights passes the whole test suite for backends, with locks whose names begin
//! with `orders:`, and an error names each that is missing. It can neither read, nor write, nor wake anything
//! of a lock whose name begins with something else. In `ACL SETUSER`'s words, for one server:
//!
//! ```text
//! -@all +ping +evalsha +eval +subscribe +unsubscribe +publish
//! +exists +hexists +hget +hscan +hset +pttl +pexpire +del +get +incrby
//! ~orders:* ~redisson_lock_token:{orders:* ~redisson_lock_token:orders:*
//! &redisson_lock__channel:{orders:* &redisson_lock__channel:orders:*
//! ```
//!
//! `+get` and `+incrby` are for fenced locks only, as are the patterns with `token`. Of two patterns that
//! differ by a brace the first is for names without braces, the second for names that have some: leave out
//! what is not used. A prefix must not be the beginning of another tenant's, nor may that be the same with
//! `{` in front.
//!
//! Redis has no narrower rights for three things: `+pubsub|numsub` tells how many listen to any channel,
//! `+client|kill` ends any connection, and a user of a Cluster's plain messages shares their cost. Besides,
//! for
//!
//! | | |
//! |---|---|
//! | late commands' being cut off instead of undone | `+client\|info +client\|kill` |
//! | a [name](RedisBuilder::client_name) | `+client\|setname` |
//! | a database other than 0 | `+select` |
//! | [replicas](RedisBuilder::wait_for_replicas) that are waited for | `+wait` |
//! | fair locks | `+time +hdel +lindex +zadd +zrange +zrem +zscore +pubsub\|numsub ~redisson_lock_queue:{orders:* ~redisson_lock_queue:orders:* &orders:*` |
//! | read-write locks | `+time +hdel +rename +set +zadd +zrange +zrem +zscore +pubsub\|numsub ~{orders:*}:*:rwlock_timeout:* &redisson_rwlock:{orders:* &redisson_rwlock:orders:* &orders:*` |
//! | fair or read-write locks with sharded messages, too | `+pubsub\|shardnumsub` |
//! | Sentinel, at the servers | `+role` |
//! | Sentinel, at the Sentinels | `+sentinel +subscribe &+switch-master` |
//! | a Cluster | `+cluster\|slots +asking` |
//! | a Cluster's kind of messages, unless `RedisBuilder::sharded_messages` says it | `+pubsub\|shardnumsub` |
//! | a node's being left that is cut off from its Cluster | `+cluster\|info` |
//! | sharded messages | `+spublish +ssubscribe +sunsubscribe` |
//!
//! # What is not guaranteed
//!
//! One Redis server is not consensus. A lock that was written to a master which fails before its replica has
//! heard of it is free on the new master; two holders can then believe in it until the first one's next
//! renewal (if its lease is not renewed, `lock_with_lease`, until that ends). In the same way the counter of
//! the tokens can be set back, and begins anew if it is deleted or evicted.
//! [`RedisBuilder::wait_for_replicas`] makes that less likely, and says what is left.
//!
//! A master that is cut off from its Sentinels, but not from us, is believed for as long as the Sentinels
//! that we reach name it; the server's own `min-replicas-to-write` is the remedy for that.

// Where to look:
//
// | room | is |
// |---|---|
// | `connection` | one supervised connection: dial, introduce oneself, heartbeat, back-off, what an error means; `in_flight` keeps the limits of what is under way on it |
// | `topology` → `single`, `sentinel`, `cluster` | which connection a key or a channel goes to; `router` sends a command until it is answered |
// | `pubsub` | which channels are wanted, which are confirmed, how long they linger |
// | `backend` → `queue`, `read_write` → `scripts`, `keys`, `late`, `hand_off_stats` | what is asked of a lock, as scripts |
//
// DESIGN.md has a picture of how a command travels.

mod backend;
mod builder;
mod connection;
#[cfg(test)]
mod fake;
mod hand_off_stats;
#[cfg(test)]
mod hostile;
mod keys;
mod late;
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

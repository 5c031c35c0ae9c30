//! Every key, channel and message sent to the server, in one place.
//!
//! Our own keys and channels begin with the lock's name, so a right to a prefix of names covers them, and
//! they lie in the lock's slot. No two names share a key, and no key is a valid name: see `LockName`.
//! Redisson gives `x` and `{x}` the same channels and counter; a process that waits for both names keeps
//! their waiters apart (see [`listened`]).
//!
//! [`Nonces`] distinguish a grant by the store from a message that any client may publish. A waiter sends a
//! nonce when enqueued. The store keeps the nonce in the queue, readable only with rights to the lock's own
//! keys, and puts it into the grant's message. Any other message only makes the waiter ask the store.

use std::fmt::{self, Write as _};
use std::hash::Hasher;

use ::redis::{RedisWrite, ToRedisArgs};
use siphasher::sip::SipHasher24;

use crate::backend::Mode;
use crate::lock::LeaseId;
use crate::support::runtime::Runtime;

/// Redisson's `LockPubSub.UNLOCK_MESSAGE` and `READ_UNLOCK_MESSAGE`.
pub(super) const UNLOCK_MESSAGE: &str = "0";
pub(super) const READ_UNLOCK_MESSAGE: &str = "1";

/// Prefix of a grant's message; followed by the number of the granted lease, `:`, and the waiter's nonce.
pub(super) const GRANTED: &str = "granted:";

pub(super) fn channel(name: &str) -> String {
    beside("redisson_lock__channel", name)
}

/// The counter of a lock's fencing tokens. Never expires, as tokens must not begin anew.
pub(super) fn token(name: &str) -> String {
    beside("redisson_lock_token", name)
}

/// Prefix of the channels on which a release calls clients, before the client's uuid. See also `call.lua`.
pub(super) fn calls(name: &str) -> String {
    own(name, "", "call:")
}

/// Waiting clients of a plain lock: a sorted set of the ids they ask by, by the start of each wait, in µs.
pub(super) fn waiters(name: &str) -> String {
    own(name, "", "waiters")
}

/// The kinds of locks with a queue of waiters on the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueKind {
    Fair,
    ReadWrite,
    Permits,
}

impl QueueKind {
    pub(super) fn of(mode: Mode) -> Self {
        match mode {
            Mode::Fair => Self::Fair,
            Mode::Permits => Self::Permits,
            Mode::Plain | Mode::Write | Mode::Read => Self::ReadWrite,
        }
    }

    fn own(self, name: &str, what: &str) -> String {
        let kind = match self {
            Self::Fair => "fair",
            Self::ReadWrite => "rw",
            Self::Permits => "permits",
        };
        own(name, kind, what)
    }

    /// The queue, and its positions: the end of each position, and the waiter's nonce.
    pub(super) fn queue(self, name: &str) -> [String; 2] {
        ["_queue", "_positions"].map(|what| self.own(name, what))
    }

    /// Prefix of the channels with grants, before the client's uuid.
    pub(super) fn grants(self, name: &str) -> String {
        self.own(name, "_grant:")
    }
}

pub(super) fn read_write_channel(name: &str) -> String {
    beside("redisson_rwlock", name)
}

/// The waiting readers, and the readers whose turn it is.
pub(super) fn waiting_readers(name: &str) -> [String; 2] {
    ["_readers", "_turn"].map(|what| QueueKind::ReadWrite.own(name, what))
}

/// Prefix of readers' leases, before the reader's id, `:rwlock_timeout:`, and the hold's number from 1.
pub(super) fn read_leases(name: &str) -> String {
    if name.contains('{') { [name, ":"].concat() } else { ["{", name, "}:"].concat() }
}

/// The lease of a reader of ours: one for all its holds.
pub(super) fn read_lease(name: &str, id: &LeaseId) -> String {
    format!("{}{id}:rwlock_timeout:1", read_leases(name))
}

pub(super) fn id(id: &LeaseId) -> String {
    // A uuid, a colon, and a number of at most 20 digits.
    let mut text = String::with_capacity(36 + 21 + id.label().map_or(0, |label| 1 + label.len()));
    let _ = write!(text, "{id}");
    text
}

pub(super) struct Shown<T>(pub(super) T);

impl<T: fmt::Display> ToRedisArgs for Shown<T> {
    fn write_redis_args<W: ?Sized + RedisWrite>(&self, out: &mut W) {
        out.write_arg_fmt(&self.0);
    }
}

pub(super) fn writer(id: &LeaseId) -> String {
    format!("{id}:write")
}

pub(super) fn redisson_queue(name: &str) -> String {
    beside("redisson_lock_queue", name)
}

/// Redisson's form of a key beside the lock. The braces put the key into the lock's slot of a Cluster.
fn beside(prefix: &str, name: &str) -> String {
    if name.contains('{') { [prefix, ":", name].concat() } else { [prefix, ":{", name, "}"].concat() }
}

/// A key or channel of ours. A name without braces is repeated as a hash tag: all of it decides its slot.
fn own(name: &str, kind: &str, what: &str) -> String {
    if name.contains('{') {
        [name, ":latchwork:", kind, what].concat()
    } else {
        [name, ":latchwork:{", name, "}:", kind, what].concat()
    }
}

/// Marks a channel of Redisson's as listened to for the name in braces.
const IN_BRACES: char = '\0';

/// The name under which this process listens to a channel that `x` and `{x}` share. A message wakes one
/// waiter, perhaps of the wrong name: so each name has its own latch, and both latches get the message.
pub(super) fn listened(name: &str, channel: String) -> String {
    let inner = name.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    let is_shared = |inner: &str| !inner.is_empty() && !inner.contains(['{', '}']);
    if inner.is_some_and(is_shared) { format!("{IN_BRACES}{channel}") } else { channel }
}

/// The server's channel of a [`listened`] name, and the index of the name: 1 for the name in braces. (A
/// grant's channel begins with a name, of any characters, and ends with a uuid.)
pub(super) fn base_channel(channel: &str) -> (&str, usize) {
    match channel.strip_prefix(IN_BRACES) {
        Some(shared) if shared.ends_with('}') => (shared, 1),
        _ => (channel, 0),
    }
}

/// Returns `None` for a mode of later versions.
pub(super) fn mode(text: &str) -> Option<Mode> {
    match text {
        "lock" => Some(Mode::Plain),
        "fair" => Some(Mode::Fair),
        "write" => Some(Mode::Write),
        "read" => Some(Mode::Read),
        "permits" => Some(Mode::Permits),
        _ => None,
    }
}

/// The nonces of one process's waiters. A nonce is the SipHash-2-4 (Aumasson and Bernstein, 2012), under a
/// random key of the process, of the client's grant channel and the lease's number. None is stored.
pub(super) struct Nonces {
    key: [u64; 2],
}

impl Nonces {
    pub(super) fn new(runtime: &impl Runtime) -> Self {
        Self { key: [runtime.random(), runtime.random()] }
    }

    pub(super) fn of(&self, channel: &str, number: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.key[0], self.key[1]);
        hasher.write(channel.as_bytes());
        hasher.write_u64(number);
        hasher.finish()
    }

    /// [`of`](Self::of) as text, as the store keeps it.
    pub(super) fn text(&self, channel: &str, number: u64) -> String {
        format!("{:016x}", self.of(channel, number))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::backend::LockName;
    use crate::lock::LeaseId;

    #[test]
    fn names_are_redissons() {
        assert_eq!(channel("orders"), "redisson_lock__channel:{orders}");
        assert_eq!(channel("orders:{42}"), "redisson_lock__channel:orders:{42}");
        assert_eq!(redisson_queue("orders"), "redisson_lock_queue:{orders}");
        assert_eq!(redisson_queue("orders:{42}"), "redisson_lock_queue:orders:{42}");
        assert_eq!(token("orders"), "redisson_lock_token:{orders}");
        assert_eq!(token("orders:{42}"), "redisson_lock_token:orders:{42}");
        assert_eq!(read_write_channel("orders"), "redisson_rwlock:{orders}");
        assert_eq!(read_write_channel("orders:{42}"), "redisson_rwlock:orders:{42}");
        let thread = "8743c9c0-0795-4907-87fd-6c719a6b4586:7";
        let id = thread.parse().unwrap();
        assert_eq!(writer(&id), format!("{thread}:write"));
        assert_eq!(read_lease("orders", &id), format!("{{orders}}:{thread}:rwlock_timeout:1"));
        assert_eq!(read_lease("orders:{42}", &id), format!("orders:{{42}}:{thread}:rwlock_timeout:1"));
    }

    /// Several versions of the crate may run at the same time.
    #[test]
    fn keys_of_a_queue_keep_their_names() {
        let keys = |name| {
            let kinds = [QueueKind::Fair, QueueKind::ReadWrite, QueueKind::Permits];
            kinds.map(|kind| [kind.queue(name).join(" "), kind.grants(name)].join(" "))
        };
        let kept = |beside: &str| {
            ["fair", "rw", "permits"].map(|kind| {
                ["queue", "positions", "grant:"].map(|what| format!("{beside}{kind}_{what}")).join(" ")
            })
        };
        assert_eq!(keys("orders"), kept("orders:latchwork:{orders}:"));
        assert_eq!(keys("orders:{42}"), kept("orders:{42}:latchwork:"));
    }

    const ID: &str = "8743c9c0-0795-4907-87fd-6c719a6b4586:7";

    fn ours(name: &str) -> Vec<String> {
        let kinds = [QueueKind::Fair, QueueKind::ReadWrite, QueueKind::Permits];
        let grants = kinds.map(|kind| kind.grants(name) + &ID[..36]);
        let queues = kinds.map(|kind| kind.queue(name)).concat();
        queues.into_iter().chain(waiting_readers(name)).chain(grants).collect()
    }

    fn redissons(name: &str) -> Vec<String> {
        vec![token(name), redisson_queue(name), read_lease(name, &ID.parse::<LeaseId>().unwrap())]
    }

    fn heard_at(name: &str) -> Vec<String> {
        let shared = [channel(name), read_write_channel(name)].map(|channel| listened(name, channel));
        ours(name).into_iter().filter(|key| key.contains("_grant:")).chain(shared).collect()
    }

    fn hostile() -> impl Strategy<Value = LockName> {
        let pieces = vec![
            "a",
            "b",
            ":",
            "{",
            "}",
            "{a}",
            "{}",
            "}:",
            "::",
            "latchwork",
            ":latchwork",
            "latchwork:",
            "fair_queue",
            "fair_positions",
            "rw_turn",
            "rw_grant:",
            "redisson_lock_token",
            "redisson_lock_queue",
            "redisson_rwlock",
            "redisson_lock__channel",
            "rwlock_timeout",
            ID,
            "\0",
            "*",
            "ä",
        ];
        let name = vec(proptest::sample::select(pieces), 1..7).prop_map(|pieces| pieces.concat());
        name.prop_filter_map("it is none", |name| LockName::new(&name).ok())
    }

    /// Two different names; the second is often the first in braces.
    fn two() -> impl Strategy<Value = (LockName, LockName)> {
        let beside = hostile().prop_flat_map(|name| {
            let braced = LockName::new(&format!("{{{name}}}")).unwrap_or_else(|_| name.clone());
            let repeated = LockName::new(&format!("{name}:{{{name}}}")).unwrap_or_else(|_| name.clone());
            (Just(name), prop_oneof![Just(braced), Just(repeated), hostile()])
        });
        beside.prop_filter("they are one", |(one, other)| one != other)
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 4000, ..ProptestConfig::default() })]

        #[test]
        fn two_names_share_nothing_but_what_redisson_shares((one, other) in two()) {
            let (one, other) = (one.as_str(), other.as_str());
            let (mine, theirs) = (ours(one), ours(other));
            for key in mine.iter().chain(&redissons(one)) {
                prop_assert!(!theirs.contains(key) && key != other, "{key:?}");
            }
            for key in &mine {
                prop_assert!(key.starts_with(one) && LockName::new(key).is_err(), "{key:?}");
                prop_assert!(!redissons(other).contains(key), "{key:?}");
            }
            let in_braces = |of: &str, name: &str| {
                let inner = name.strip_prefix('{').and_then(|name| name.strip_suffix('}'));
                !of.contains('{') && inner == Some(of)
            };
            if !in_braces(one, other) && !in_braces(other, one) {
                prop_assert!(redissons(one).iter().all(|key| !redissons(other).contains(key)));
            }
            let channels = heard_at(one);
            prop_assert!(heard_at(other).iter().all(|channel| !channels.contains(channel)));
        }

        #[test]
        fn each_key_and_channel_of_a_name_is_another(name in hostile()) {
            let name = name.as_str();
            let all = [ours(name), redissons(name), vec![name.to_owned()]].concat();
            prop_assert_eq!(all.iter().collect::<HashSet<_>>().len(), all.len());
            for channel in [channel(name), read_write_channel(name)] {
                let listened = listened(name, channel.clone());
                prop_assert_eq!(base_channel(&listened).0, channel);
            }
            for grants in ours(name).iter().filter(|key| key.contains("_grant:")) {
                prop_assert_eq!(base_channel(grants), (&**grants, 0));
            }
        }
    }

    #[test]
    fn name_and_the_same_name_in_braces_have_separate_channels() {
        assert_eq!(channel("p"), channel("{p}"));
        assert_eq!(listened("p", channel("p")), channel("p"));
        let in_braces = listened("{p}", channel("{p}"));
        assert_eq!(base_channel(&in_braces), (&*channel("p"), 1));
        for name in ["{p}q", "q{p}", "{{p}}", "{}", "{p}{q}"] {
            assert_eq!(listened(name, channel(name)), channel(name), "{name}");
        }
    }

    #[test]
    fn nonce_is_of_one_process_one_channel_and_one_number() {
        let [ours, theirs, third] = [[1, 2], [1, 3], [3, 2]].map(|key| Nonces { key });
        assert_eq!(ours.of("a", 1), ours.of("a", 1));
        let others = [ours.of("a", 2), ours.of("b", 1), theirs.of("a", 1), third.of("a", 1)];
        assert!(!others.contains(&ours.of("a", 1)), "{others:x?}");
        assert_eq!(u64::from_str_radix(&ours.text("a", 1), 16), Ok(ours.of("a", 1)));
    }
}

//! Every key, channel and message that goes to the server, in one place.

use crate::lock::LeaseId;

/// Redisson's `LockPubSub.UNLOCK_MESSAGE`.
pub(super) const UNLOCK_MESSAGE: &str = "0";
/// Redisson's `LockPubSub.READ_UNLOCK_MESSAGE`.
pub(super) const READ_UNLOCK_MESSAGE: &str = "1";

/// What a grant's message begins with; the number of the lease that is granted follows.
pub(super) const GRANTED: &str = "granted:";

/// The channel of a lock.
pub(super) fn channel(name: &str) -> String {
    beside("redisson_lock__channel", name)
}

/// The counter of a lock's fencing tokens. It never expires: were it to begin anew, the tokens would.
pub(super) fn token(name: &str) -> String {
    beside("redisson_lock_token", name)
}

/// Where a client is told that it was granted a fair lock. Its uuid follows.
pub(super) fn grants(name: &str) -> String {
    beside("latchwork_grant", name) + ":"
}

/// The queue of a fair lock, and until when the positions in it are kept.
pub(super) fn fair_queue(name: &str) -> [String; 2] {
    ["latchwork_fair_queue", "latchwork_fair_kept"].map(|prefix| beside(prefix, name))
}

/// The channel of a read-write lock.
pub(super) fn read_write_channel(name: &str) -> String {
    beside("redisson_rwlock", name)
}

/// Where a client is told that it was granted a read-write lock to write. Its uuid follows.
pub(super) fn write_grants(name: &str) -> String {
    beside("latchwork_rw_grant", name) + ":"
}

/// The queue of those who want a read-write lock to write, and until when the positions in it are kept.
pub(super) fn write_queue(name: &str) -> [String; 2] {
    ["latchwork_rw_queue", "latchwork_rw_kept"].map(|prefix| beside(prefix, name))
}

/// Who waits to read, and those of them whose turn it is.
pub(super) fn waiting_readers(name: &str) -> [String; 2] {
    ["latchwork_rw_readers", "latchwork_rw_turn"].map(|prefix| beside(prefix, name))
}

/// What the keys of readers' leases begin with. A reader's id follows, `:rwlock_timeout:`, and which of its holds it is, from 1 on.
pub(super) fn read_leases(name: &str) -> String {
    if name.contains('{') { [name, ":"].concat() } else { ["{", name, "}:"].concat() }
}

/// The lease of a reader of ours: one for all that it holds.
pub(super) fn read_lease(name: &str, id: &LeaseId) -> String {
    format!("{}{id}:rwlock_timeout:1", read_leases(name))
}

/// The field of who writes.
pub(super) fn writer(id: &LeaseId) -> String {
    format!("{id}:write")
}

/// The queue of Redisson's own fair lock.
pub(super) fn redisson_queue(name: &str) -> String {
    beside("redisson_lock_queue", name)
}

/// In braces, so that in a Cluster it lies in the lock's own slot; a name that has braces brings its own.
fn beside(prefix: &str, name: &str) -> String {
    if name.contains('{') { [prefix, ":", name].concat() } else { [prefix, ":{", name, "}"].concat() }
}

#[cfg(test)]
mod tests {
    use super::{channel, read_lease, read_write_channel, redisson_queue, token, writer};

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
}

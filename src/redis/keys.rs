//! Every key, channel and message that goes to the server, in one place.

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
    use super::{channel, redisson_queue, token};

    #[test]
    fn names_are_redissons() {
        assert_eq!(channel("orders"), "redisson_lock__channel:{orders}");
        assert_eq!(channel("orders:{42}"), "redisson_lock__channel:orders:{42}");
        assert_eq!(redisson_queue("orders"), "redisson_lock_queue:{orders}");
        assert_eq!(redisson_queue("orders:{42}"), "redisson_lock_queue:orders:{42}");
        assert_eq!(token("orders"), "redisson_lock_token:{orders}");
        assert_eq!(token("orders:{42}"), "redisson_lock_token:orders:{42}");
    }
}

//! Every key, channel and message that goes to the server, in one place.

/// Redisson's `LockPubSub.UNLOCK_MESSAGE`.
pub(super) const UNLOCK_MESSAGE: &str = "0";
/// Redisson's `LockPubSub.READ_UNLOCK_MESSAGE`.
pub(super) const READ_UNLOCK_MESSAGE: &str = "1";

/// The channel of a lock.
pub(super) fn channel(name: &str) -> String {
    beside("redisson_lock__channel", name)
}

/// The counter of a lock's fencing tokens. It never expires: were it to begin anew, the tokens would.
pub(super) fn token(name: &str) -> String {
    beside("redisson_lock_token", name)
}

/// In braces, so that in a Cluster it lies in the lock's own slot; a name that has braces brings its own.
fn beside(prefix: &str, name: &str) -> String {
    if name.contains('{') { [prefix, ":", name].concat() } else { [prefix, ":{", name, "}"].concat() }
}

#[cfg(test)]
mod tests {
    use super::{channel, token};

    #[test]
    fn names_are_redissons() {
        assert_eq!(channel("orders"), "redisson_lock__channel:{orders}");
        assert_eq!(channel("orders:{42}"), "redisson_lock__channel:orders:{42}");
        assert_eq!(token("orders"), "redisson_lock_token:{orders}");
        assert_eq!(token("orders:{42}"), "redisson_lock_token:orders:{42}");
    }
}

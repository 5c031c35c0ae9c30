//! [`Nonces`]: what tells a grant that the store has made from a message that any client may publish.
//!
//! A waiter sends a nonce when it is enqueued. The store keeps it in the queue, where only clients with
//! rights to the lock's own keys can read it, and puts it into the message of the grant. A message with
//! another nonce is a hint at most: its waiter asks the store.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;

use crate::runtime::Runtime;

/// The nonces of one process's waiters. Nothing is kept for a waiter: its nonce is SipHash-2-4 (Aumasson and
/// Bernstein, 2012), under a random key that never leaves the process, of the channel that its client is told
/// on and of the number of its lease. Each lease has a new number, and so a nonce of its own.
pub(super) struct Nonces {
    key: [u64; 2],
}

impl Nonces {
    /// Under a key of the runtime's randomness.
    pub(super) fn new(runtime: &impl Runtime) -> Self {
        Self { key: [runtime.random(), runtime.random()] }
    }

    /// The nonce of the lease with this number, whose client is told on `channel`.
    pub(super) fn of(&self, channel: &str, number: u64) -> u64 {
        let mut hasher = SipHasher24::new_with_keys(self.key[0], self.key[1]);
        hasher.write(channel.as_bytes());
        hasher.write_u64(number);
        hasher.finish()
    }

    /// As [`of`](Self::of), as the store keeps it.
    pub(super) fn text(&self, channel: &str, number: u64) -> String {
        format!("{:016x}", self.of(channel, number))
    }
}

#[cfg(test)]
mod tests {
    use super::Nonces;

    #[test]
    fn nonce_is_of_one_process_one_channel_and_one_number() {
        let [ours, theirs, third] = [[1, 2], [1, 3], [3, 2]].map(|key| Nonces { key });
        assert_eq!(ours.of("a", 1), ours.of("a", 1));
        let others = [ours.of("a", 2), ours.of("b", 1), theirs.of("a", 1), third.of("a", 1)];
        assert!(!others.contains(&ours.of("a", 1)), "{others:x?}");
        assert_eq!(u64::from_str_radix(&ours.text("a", 1), 16), Ok(ours.of("a", 1)));
    }
}

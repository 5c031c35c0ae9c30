//! [`Nonces`]: what tells a grant that the store has made from a message that anybody may publish.
//!
//! A waiter sends a nonce when it is enqueued. The store keeps it in the queue, where only clients with
//! rights to the lock's own keys can read it, and puts it into the message of the grant. A message with
//! another nonce is a hint at most: its waiter asks the store.

use uuid::Uuid;

/// The nonces of one process's waiters. Nothing is kept for a waiter: its nonce is SipHash-2-4, under a
/// random key that never leaves the process, of the channel that its client is told on and of the number of
/// its lease. Each lease has a new number, and so a nonce of its own.
pub(super) struct Nonces {
    key: [u64; 2],
}

impl Nonces {
    /// Under a key of the system's randomness.
    pub(super) fn new() -> Self {
        let [(a, b), (c, d)] = [Uuid::new_v4(), Uuid::new_v4()].map(|uuid| uuid.as_u64_pair());
        // Six bits of a uuid are fixed, in its first and in its second half.
        Self { key: [a ^ d, b ^ c] }
    }

    /// The nonce of the lease with this number, whose client is told on `channel`.
    pub(super) fn of(&self, channel: &str, number: u64) -> u64 {
        sip_hash_2_4(self.key, &[channel.as_bytes(), &number.to_le_bytes()].concat())
    }

    /// As [`of`](Self::of), as the store keeps it.
    pub(super) fn text(&self, channel: &str, number: u64) -> String {
        format!("{:016x}", self.of(channel, number))
    }
}

/// By Aumasson and Bernstein, as published in 2012.
fn sip_hash_2_4([k0, k1]: [u64; 2], message: &[u8]) -> u64 {
    let mut state = State([
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ]);
    let word = |bytes: &[u8], length: u64| {
        let bytes = bytes.iter().rev();
        bytes.fold(length, |word, byte| word << 8 | u64::from(*byte))
    };
    let words = message.chunks_exact(8);
    // The last byte of the last word is that of the length.
    let rest = words.remainder();
    let last = word(rest, 0) | (message.len() as u64) << 56;
    for word in words.map(|bytes| word(bytes, 0)).chain([last]) {
        state.0[3] ^= word;
        state.rounds(2);
        state.0[0] ^= word;
    }
    state.0[2] ^= 0xff;
    state.rounds(4);
    state.0.into_iter().fold(0, |all, word| all ^ word)
}

struct State([u64; 4]);

impl State {
    fn rounds(&mut self, rounds: u32) {
        let [a, b, c, d] = &mut self.0;
        for _ in 0..rounds {
            *a = a.wrapping_add(*b);
            *c = c.wrapping_add(*d);
            *b = b.rotate_left(13) ^ *a;
            *d = d.rotate_left(16) ^ *c;
            *a = a.rotate_left(32);
            *c = c.wrapping_add(*b);
            *a = a.wrapping_add(*d);
            *b = b.rotate_left(17) ^ *c;
            *d = d.rotate_left(21) ^ *a;
            *c = c.rotate_left(32);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Nonces, sip_hash_2_4};

    /// Those of the reference implementation: the key's bytes are 0 to 15, the message's 0, 1, and so on.
    #[test]
    fn hash_is_the_published_one() {
        let key = [0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908];
        let message: Vec<u8> = (0..15).collect();
        for (length, hash) in [
            (0, 0x726f_db47_dd0e_0e31),
            (1, 0x74f8_39c5_93dc_67fd),
            (8, 0x93f5_f579_9a93_2462),
            (15, 0xa129_ca61_49be_45e5_u64),
        ] {
            assert_eq!(sip_hash_2_4(key, &message[..length]), hash, "{length} bytes");
        }
    }

    #[test]
    fn nonce_is_of_one_process_one_channel_and_one_number() {
        let (ours, theirs) = (Nonces::new(), Nonces::new());
        assert_eq!(ours.of("a", 1), ours.of("a", 1));
        let others = [ours.of("a", 2), ours.of("b", 1), theirs.of("a", 1)];
        assert!(!others.contains(&ours.of("a", 1)), "{others:x?}");
        assert_eq!(u64::from_str_radix(&ours.text("a", 1), 16), Ok(ours.of("a", 1)));
    }
}

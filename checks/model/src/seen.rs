//! [`Seen`]: which states a search has met, by their keys of 63 bits.
//!
//! Two states of one program with the same key would be taken for one, and what lies behind one of them might
//! not be explored. With ten million states that happens once in 200 000 programs.

use std::hash::Hasher;

/// What was known of a state when the search came to it.
pub(crate) enum Visit {
    New,
    /// The search has been there and has come from there: a cycle.
    OnPath,
    /// All that lies behind it has been explored.
    Left,
}

/// A hash table with linear probing: keys, and beside each a bit for whether it is on the path. The search
/// spends much of its time waiting for this memory, so there is as little of it as possible.
#[derive(Default)]
pub(crate) struct Seen {
    slots: Vec<u64>,
    used: usize,
}

const EMPTY: u64 = 0;
const ON_PATH: u64 = 1;

impl Seen {
    /// The search comes to a state. If it is new, it is on the path from now on.
    pub(crate) fn enter(&mut self, key: u64) -> Visit {
        if 4 * (self.used + 1) > 3 * self.slots.len() {
            self.grow();
        }
        let slot = self.slot(key);
        match *slot {
            EMPTY => {
                *slot = stored(key) | ON_PATH;
                self.used += 1;
                Visit::New
            }
            found if found & ON_PATH != 0 => Visit::OnPath,
            _ => Visit::Left,
        }
    }

    /// The search turns back from a state.
    pub(crate) fn leave(&mut self, key: u64) {
        *self.slot(key) &= !ON_PATH;
    }

    /// The slot of `key`, or the empty one where it belongs.
    fn slot(&mut self, key: u64) -> &mut u64 {
        let mask = self.slots.len() - 1;
        let mut index = (key >> 1) as usize & mask;
        while self.slots[index] != EMPTY && self.slots[index] & !ON_PATH != stored(key) {
            index = (index + 1) & mask;
        }
        &mut self.slots[index]
    }

    fn grow(&mut self) {
        let slots = vec![EMPTY; (2 * self.slots.len()).max(1 << 10)];
        for key in std::mem::replace(&mut self.slots, slots) {
            if key != EMPTY {
                *self.slot(key) = key;
            }
        }
    }
}

/// A key as it is stored: without the lowest bit, and never empty.
fn stored(key: u64) -> u64 {
    (key & !ON_PATH).max(2)
}

/// Collects small values byte by byte and mixes eight at a time.
#[derive(Default)]
pub(crate) struct KeyHasher {
    mixed: u64,
    bytes: u64,
    count: u32,
}

impl KeyHasher {
    fn put(&mut self, byte: u8) {
        self.bytes = self.bytes << 8 | u64::from(byte);
        self.count += 1;
        if self.count == 8 {
            self.mixed = mix(self.mixed, self.bytes);
            self.bytes = 0;
            self.count = 0;
        }
    }
}

impl Hasher for KeyHasher {
    fn finish(&self) -> u64 {
        let last = mix(self.mixed, self.bytes);
        mix(last, u64::from(self.count))
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.put(byte);
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.put(value);
    }

    fn write_i8(&mut self, value: i8) {
        self.put(value as u8);
    }

    // A key of its own.
    fn write_u64(&mut self, value: u64) {
        self.mixed = mix(self.mixed, value);
    }

    // Discriminants and lengths: they are small.
    fn write_isize(&mut self, value: isize) {
        self.put(value as u8);
    }

    fn write_usize(&mut self, value: usize) {
        self.put(value as u8);
    }
}

/// A multiplication to 128 bits, folded, as in wyhash. What is mixed in is kept beside the product, so that
/// no factor of zero loses it.
fn mix(mixed: u64, value: u64) -> u64 {
    let product = u128::from(mixed ^ value ^ 0xA076_1D64_78BD_642F) * 0xE703_7ED1_A0B4_28DB;
    (product as u64 ^ (product >> 64) as u64).wrapping_add(mixed.rotate_left(23))
}

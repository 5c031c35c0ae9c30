//! [`Seen`]: the states that a search has visited, by keys of 63 bits.
//!
//! A collision of keys within a program would cut off a part of the search. With ten million states, a
//! collision occurs once in 200 000 programs.

use std::hash::Hasher;

/// The search's knowledge of a state on entry.
pub(crate) enum Visit {
    New,
    /// A state on the current path: a cycle.
    OnPath,
    Left,
}

/// A hash table with linear probing: keys, each with a bit that is set on the current path. Compact, since
/// the search spends much of its time waiting for this memory.
#[derive(Default)]
pub(crate) struct Seen {
    slots: Vec<u64>,
    used: usize,
}

const EMPTY: u64 = 0;
const ON_PATH: u64 = 1;

impl Seen {
    /// Enters a state. A new state joins the path.
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

    pub(crate) fn leave(&mut self, key: u64) {
        *self.slot(key) &= !ON_PATH;
    }

    /// Returns the slot of `key`, or the empty one for it.
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

/// Encodes a key: without the lowest bit, and never `EMPTY`.
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

    // For complete keys.
    fn write_u64(&mut self, value: u64) {
        self.mixed = mix(self.mixed, value);
    }

    // For discriminants and lengths, which are small.
    fn write_isize(&mut self, value: isize) {
        self.put(value as u8);
    }

    fn write_usize(&mut self, value: usize) {
        self.put(value as u8);
    }
}

/// A folded 128-bit multiplication, as in wyhash. Adding the old state keeps zero factors harmless.
fn mix(mixed: u64, value: u64) -> u64 {
    let product = u128::from(mixed ^ value ^ 0xA076_1D64_78BD_642F) * 0xE703_7ED1_A0B4_28DB;
    (product as u64 ^ (product >> 64) as u64).wrapping_add(mixed.rotate_left(23))
}

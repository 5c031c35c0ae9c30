//! [`Hash`]: fields with values.

use std::collections::BTreeMap;

/// A hash with more fields, or with a longer field or value, is large, as by a server's defaults.
const SMALL_FIELDS: usize = 512;
const SMALL_BYTES: usize = 64;

/// Minimum number of buckets of a real server's table.
const FEWEST_BUCKETS: u64 = 4;

/// A hash. A large hash never becomes small again.
#[derive(Clone, Debug)]
pub(super) enum Hash {
    /// In order of insertion, as in a real server.
    Small(Vec<Field>),
    /// Ordered by the hashes of fields. A real server's hash function is keyed at random.
    Large(Table),
}

pub(super) type Field = (Vec<u8>, Vec<u8>);

/// Fields by the reversed bits of their hashes: a scan visits the buckets of a table in this order, even if
/// the table grows or shrinks meanwhile.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    fields: BTreeMap<u64, Vec<Field>>,
    len: usize,
}

impl Default for Hash {
    fn default() -> Self {
        Self::Small(Vec::new())
    }
}

impl Hash {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Small(fields) => fields.len(),
            Self::Large(table) => table.len,
        }
    }

    pub(super) fn get(&self, field: &[u8]) -> Option<&[u8]> {
        let fields = match self {
            Self::Small(fields) => fields,
            Self::Large(table) => table.fields.get(&place(field))?,
        };
        fields.iter().find_map(|(its, value)| (its == field).then_some(value.as_slice()))
    }

    /// Makes the hash large if one of these texts is too long for a small hash.
    pub(super) fn make_room(&mut self, texts: &[&[u8]]) {
        if texts.iter().any(|text| text.len() > SMALL_BYTES) {
            self.grow();
        }
    }

    /// Returns true if the field is new.
    pub(super) fn set(&mut self, field: &[u8], value: &[u8]) -> bool {
        let fields = match self {
            Self::Small(fields) => fields,
            Self::Large(table) => table.fields.entry(place(field)).or_default(),
        };
        if let Some((_, old)) = fields.iter_mut().find(|(its, _)| its == field) {
            old.clear();
            old.extend_from_slice(value);
            return false;
        }
        fields.push((field.to_vec(), value.to_vec()));
        match self {
            Self::Small(fields) if fields.len() > SMALL_FIELDS => self.grow(),
            Self::Small(_) => {}
            Self::Large(table) => table.len += 1,
        }
        true
    }

    /// Returns true if the field existed.
    pub(super) fn remove(&mut self, field: &[u8]) -> bool {
        match self {
            Self::Small(fields) => {
                let at = fields.iter().position(|(its, _)| its == field);
                at.map(|at| fields.remove(at)).is_some()
            }
            Self::Large(table) => table.remove(field),
        }
    }

    pub(super) fn fields(&self) -> Vec<&Field> {
        match self {
            Self::Small(fields) => fields.iter().collect(),
            Self::Large(table) => table.fields.values().flatten().collect(),
        }
    }

    /// Returns about `count` fields from the cursor on, and the next cursor, 0 at the end.
    pub(super) fn scan(&self, cursor: u64, count: u64) -> (u64, Vec<&Field>) {
        match self {
            Self::Small(fields) => (0, fields.iter().collect()),
            Self::Large(table) => table.scan(cursor, count),
        }
    }

    fn grow(&mut self) {
        if let Self::Small(fields) = self {
            let mut table = Table { len: fields.len(), ..Table::default() };
            for field in fields.drain(..) {
                table.fields.entry(place(&field.0)).or_default().push(field);
            }
            *self = Self::Large(table);
        }
    }
}

impl Table {
    fn remove(&mut self, field: &[u8]) -> bool {
        let place = place(field);
        let Some(fields) = self.fields.get_mut(&place) else { return false };
        let Some(at) = fields.iter().position(|(its, _)| its == field) else { return false };
        fields.remove(at);
        if fields.is_empty() {
            self.fields.remove(&place);
        }
        self.len -= 1;
        true
    }

    /// Scans by buckets, like a real server's table, and increments the reversed bits of a bucket's number.
    fn scan(&self, mut cursor: u64, count: u64) -> (u64, Vec<&Field>) {
        let buckets = (self.len as u64).next_power_of_two().max(FEWEST_BUCKETS);
        let (mask, bits) = (buckets - 1, buckets.trailing_zeros());
        let mut found = Vec::new();
        for _ in 0..count.saturating_mul(10) {
            let first = (cursor & mask).reverse_bits();
            found
                .extend(self.fields.range(first..=first | (u64::MAX >> bits)).flat_map(|(_, fields)| fields));
            cursor = (cursor | !mask).reverse_bits().wrapping_add(1).reverse_bits();
            if cursor == 0 || found.len() as u64 >= count {
                break;
            }
        }
        (cursor, found)
    }
}

/// The field's reversed hash: FNV-1a, mixed by the last step of splitmix64.
fn place(field: &[u8]) -> u64 {
    let fnv = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let mut hash = field.iter().fold(0xcbf2_9ce4_8422_2325, fnv);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (hash ^ (hash >> 31)).reverse_bits()
}

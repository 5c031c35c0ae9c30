//! The server's leases, read from the keys that the scripts keep.

use latchwork::{LeaseId, LockKind};

use crate::store::StoredLease;
use crate::world::{Nanos, US};

use super::server::{Content, Key};

/// Suffix of the keys of readers' own leases.
pub(super) const READ_LEASE: &str = ":rwlock_timeout:1";

/// Prefix of the keys of readers' own leases of a lock.
pub(super) fn before_read_lease(name: &str) -> String {
    if name.contains('{') { format!("{name}:") } else { format!("{{{name}}}:") }
}

#[derive(Debug, Default)]
pub(super) struct Leases {
    keys: Vec<Key>,
    /// The moment, by the world's clock and by the server's (us).
    at: (Nanos, u64),
}

impl Leases {
    /// `keys`: sorted by name. `at`: the moment, by the world's clock and by the server's (us).
    pub(super) fn new(keys: Vec<Key>, at: (Nanos, u64)) -> Self {
        Self { keys, at }
    }

    /// Returns the lock's leases that are live at `now`.
    pub(super) fn of(&self, kind: LockKind, name: &str, now: Nanos) -> Vec<StoredLease> {
        let Some((Content::Hash(fields), ends)) = self.key(name.as_bytes()) else { return Vec::new() };
        let mode = fields.iter().find(|(field, _)| field == b"mode").map(|(_, mode)| mode.as_slice());
        let leases: Vec<_> = match (kind, mode) {
            (LockKind::Plain, Some(b"lock")) | (LockKind::Fair, Some(b"fair")) => {
                fields.iter().filter_map(|(field, _)| lease(field, ends, false)).collect()
            }
            (LockKind::Semaphore, Some(b"permits")) => {
                fields.iter().filter_map(|(field, value)| self.permits(field, value, ends)).collect()
            }
            (LockKind::ReadWrite, Some(b"read" | b"write")) => {
                fields.iter().filter_map(|(field, value)| self.shared(name, field, value, ends)).collect()
            }
            _ => Vec::new(),
        };
        leases.into_iter().filter(|lease| lease.ends > now).collect()
    }

    pub(super) fn is_semaphore(&self, name: &str) -> bool {
        let Some((Content::Hash(fields), _)) = self.key(name.as_bytes()) else { return false };
        fields.iter().any(|(field, value)| field == b"mode" && value == b"permits")
    }

    fn key(&self, name: &[u8]) -> Option<(&Content, Nanos)> {
        let at = self.keys.binary_search_by(|key| key.name.as_slice().cmp(name)).ok()?;
        let key = &self.keys[at];
        // A key still exists in its last millisecond.
        let ends = key.left.map_or(Nanos::MAX, |left| {
            let server = (self.at.1 / 1000 + left + 1) * 1000;
            self.moment(server)
        });
        Some((&key.content, ends))
    }

    /// Converts the server's time (us) to the world's, with equal results for repeated calls.
    fn moment(&self, server: u64) -> Nanos {
        let whole = self.at.0 - self.at.0 % US;
        whole.saturating_add((server.saturating_sub(self.at.1)) * US)
    }

    fn permits(&self, field: &[u8], value: &[u8], ends: Nanos) -> Option<StoredLease> {
        let (until, permits) = std::str::from_utf8(value).ok()?.strip_prefix("until:")?.split_once(':')?;
        let ends = self.moment(until.parse().ok()?).min(ends);
        let permits = permits.parse().ok()?;
        Some(StoredLease { permits, ..lease(field, ends, true)? })
    }

    fn shared(&self, name: &str, field: &[u8], value: &[u8], ends: Nanos) -> Option<StoredLease> {
        let field = std::str::from_utf8(field).ok()?;
        if let Some(writer) = field.strip_suffix(":write") {
            let until = std::str::from_utf8(value).ok()?.strip_prefix("until:").map(str::parse);
            let ends = until.transpose().ok()?.map_or(ends, |until| self.moment(until).min(ends));
            return lease(writer.as_bytes(), ends, false);
        }
        let (_, own) = self.key(format!("{}{field}{READ_LEASE}", before_read_lease(name)).as_bytes())?;
        lease(field.as_bytes(), own.min(ends), true)
    }
}

/// Parses a field. Fields other than ids, such as `mode`, are not leases.
fn lease(field: &[u8], ends: Nanos, is_shared: bool) -> Option<StoredLease> {
    let id: LeaseId = std::str::from_utf8(field).ok()?.parse().ok()?;
    Some(StoredLease { client: id.client_id(), number: id.number(), ends, is_shared, permits: 1 })
}

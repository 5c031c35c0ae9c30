//! Which place of the sources uses an atomic, with which orderings; and one of them weakened, to see that a
//! model fails.
//!
//! [`SITES`] names a file to which each place that is executed is appended, once in a process, as
//! `FILE:LINE:COLUMN METHOD ORDERING[ FAILURE ORDERING]`. [`WEAKEN`] is `FILE:LINE:COLUMN:PART=ORDERING`,
//! where the part is `success` or, of a compare-and-exchange, `failure`. `cargo xtask verify mutants` sets
//! both.

use std::collections::HashSet;
use std::fs::File;
use std::io::Write as _;
use std::panic::Location;
use std::sync::{Mutex, OnceLock, PoisonError};

use loom::sync::atomic::Ordering;

const SITES: &str = "LATCHWORK_SITES";
const WEAKEN: &str = "LATCHWORK_WEAKEN";

/// The orderings of an access by our caller's caller.
#[track_caller]
pub(in crate::support::sync) fn site<const PARTS: usize>(
    _word: *const (),
    method: &str,
    mut orderings: [Ordering; PARTS],
) -> [Ordering; PARTS] {
    let location = Location::caller();
    if let Some(record) = RECORD.get_or_init(Record::from_environment) {
        record.add(location, method, &orderings);
    }
    if let Some(weakening) = WEAKENING.get_or_init(Weakening::from_environment)
        && weakening.is_at(location)
    {
        orderings[weakening.part] = weakening.ordering;
    }
    orderings
}

static RECORD: OnceLock<Option<Record>> = OnceLock::new();
static WEAKENING: OnceLock<Option<Weakening>> = OnceLock::new();

/// No part of any model: std's.
struct Record {
    file: File,
    seen: Mutex<HashSet<(&'static Location<'static>, Vec<Ordering>)>>,
}

impl Record {
    fn from_environment() -> Option<Self> {
        let path = std::env::var_os(SITES)?;
        let file = File::options().append(true).create(true).open(path);
        Some(Self { file: file.expect(SITES), seen: Mutex::default() })
    }

    fn add(&self, location: &'static Location<'static>, method: &str, orderings: &[Ordering]) {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.insert((location, orderings.to_vec())) {
            let mut line = format!("{location} {method}");
            for ordering in orderings {
                line += &format!(" {ordering:?}");
            }
            line.push('\n');
            // In one piece, as several processes may append.
            (&self.file).write_all(line.as_bytes()).expect(SITES);
        }
    }
}

struct Weakening {
    location: String,
    part: usize,
    ordering: Ordering,
}

impl Weakening {
    fn from_environment() -> Option<Self> {
        let wanted = std::env::var(WEAKEN).ok()?;
        let parsed = wanted.rsplit_once(':').and_then(|(location, change)| {
            let (part, ordering) = change.split_once('=')?;
            // Ordering: no access, but the names that can be asked for.
            let ordering = [Ordering::Relaxed, Ordering::Acquire, Ordering::Release, Ordering::AcqRel]
                .into_iter()
                .find(|known| format!("{known:?}") == ordering)?;
            let part = ["success", "failure"].iter().position(|known| *known == part)?;
            Some(Self { location: location.to_owned(), part, ordering })
        });
        Some(parsed.unwrap_or_else(|| panic!("{WEAKEN}={wanted}: not FILE:LINE:COLUMN:PART=ORDERING")))
    }

    fn is_at(&self, location: &Location<'_>) -> bool {
        // Most are told apart by the line alone.
        self.location.ends_with(&format!("{}:{}", location.line(), location.column()))
            && self.location == location.to_string()
    }
}

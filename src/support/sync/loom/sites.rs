//! Records the location and orderings of each access to an atomic; weakens one, to see that a model fails.
//!
//! [`SITES`] names a file, to which each process appends every access once, as `FILE:LINE:COLUMN METHOD
//! ORDERING[ FAILURE ORDERING]`. [`WEAKEN`] is `FILE:LINE:COLUMN:PART=ORDERING`; the part is `success`, or
//! `failure` for a compare-and-exchange. `cargo xtask verify mutants` sets both.

use std::collections::HashSet;
use std::fs::File;
use std::io::Write as _;
use std::panic::Location;
use std::sync::{Mutex, OnceLock, PoisonError};

use loom::sync::atomic::Ordering;

const SITES: &str = "LATCHWORK_SITES";
const WEAKEN: &str = "LATCHWORK_WEAKEN";

/// Returns the orderings for an access by the caller's caller.
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

/// std's types, outside of any model.
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
            // One write, as several processes may append.
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
            // Ordering: no access, only the accepted names.
            let ordering = [Ordering::Relaxed, Ordering::Acquire, Ordering::Release, Ordering::AcqRel]
                .into_iter()
                .find(|known| format!("{known:?}") == ordering)?;
            let part = ["success", "failure"].iter().position(|known| *known == part)?;
            Some(Self { location: location.to_owned(), part, ordering })
        });
        Some(parsed.unwrap_or_else(|| panic!("{WEAKEN}={wanted}: not FILE:LINE:COLUMN:PART=ORDERING")))
    }

    fn is_at(&self, location: &Location<'_>) -> bool {
        self.location.ends_with(&format!("{}:{}", location.line(), location.column()))
            && self.location == location.to_string()
    }
}

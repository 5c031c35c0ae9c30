//! [`Board`]: state shared by the tasks of all processes. In memory, where it costs the server nothing.

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fleet::clock;
use memmap2::MmapRaw;

// Ordering: SeqCst everywhere in this file. The numbers alone must prove that a holder is exclusive, without
// the ordering that the lock under test provides.
use Ordering::SeqCst;

/// A longer time without an acquisition while there are waiters is a stall.
pub const STALL: Duration = Duration::from_millis(100);

/// The waiters, the holder, and their times. Initially all zero.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Board {
    /// Time after which no task begins anything new, by [`clock::now`].
    end: AtomicU64,
    waiting: AtomicU64,
    inside: AtomicU64,
    entered: AtomicU64,
    /// The same number by a load and a store: right only if there was never a second holder.
    counted: AtomicU64,
    handed_off: AtomicU64,
    last_process: AtomicU64,
    remote: AtomicU64,
    /// Time of the latest acquisition, or of the latest arrival of a first waiter.
    last_event: AtomicU64,
    largest_gap: AtomicU64,
    stalls: AtomicU64,
    reading: AtomicU64,
    reads: AtomicU64,
    /// Number of the readers' round, and of the latest round whose readers may release.
    round: AtomicU64,
    dismissed: AtomicU64,
    /// Nanoseconds from the writer's release to the first and the last read of the round.
    first_read: AtomicU64,
    last_read: AtomicU64,
}

const NO_MORE: u64 = u64::MAX;

/// Result of [`Board::enter`].
#[derive(Debug)]
pub struct Entry {
    /// Nanoseconds since the previous holder began its release, if the release was a hand-off.
    pub after: Option<u64>,
}

impl Board {
    /// Gives all tasks this time from now.
    pub fn begin(&self, time: Duration) {
        self.end.store(clock::now() + time.as_nanos() as u64, SeqCst);
    }

    /// True if the time is over.
    pub fn is_over(&self) -> bool {
        self.end.load(SeqCst) <= clock::now()
    }

    /// Records that a task asks for the lock.
    pub fn arrive(&self) {
        if self.waiting.fetch_add(1, SeqCst) == 0 {
            self.last_event.fetch_max(clock::now(), SeqCst);
        }
    }

    /// The number of tasks that have asked and wait.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(SeqCst)
    }

    /// Records that a task has the lock. Panics if another task has the lock, too.
    pub fn enter(&self, process: u64) -> Entry {
        let now = clock::now();
        assert_eq!(self.inside.swap(1, SeqCst), 0, "expected one holder inside, and found two");
        assert_eq!(self.reading.load(SeqCst), 0, "expected no reader inside");
        self.waiting.fetch_sub(1, SeqCst);
        self.entered.fetch_add(1, SeqCst);
        self.counted.store(self.counted.load(SeqCst) + 1, SeqCst);
        if self.last_process.swap(process + 1, SeqCst) != process + 1 {
            self.remote.fetch_add(1, SeqCst);
        }
        // Of two tasks that arrive within nanoseconds, the later one may swap first.
        let gap = now.saturating_sub(self.last_event.swap(now, SeqCst));
        self.largest_gap.fetch_max(gap, SeqCst);
        if Duration::from_nanos(gap) > STALL {
            self.stalls.fetch_add(1, SeqCst);
        }
        let handed_off = self.handed_off.swap(0, SeqCst);
        Entry { after: (handed_off != 0).then(|| now.saturating_sub(handed_off)) }
    }

    /// Records that the holder is about to release.
    pub fn leave(&self) {
        assert_eq!(self.inside.swap(0, SeqCst), 1, "expected the holder inside until it leaves");
    }

    /// Records that the holder is about to release to a waiter.
    pub fn hand_off(&self) {
        self.leave();
        self.handed_off.store(clock::now(), SeqCst);
    }

    /// Records a reader with the lock; returns the time since the last release. Panics if a writer has it.
    pub fn begin_reading(&self) -> u64 {
        let now = clock::now();
        self.reading.fetch_add(1, SeqCst);
        assert_eq!(self.inside.load(SeqCst), 0, "expected no writer inside");
        self.waiting.fetch_sub(1, SeqCst);
        self.entered.fetch_add(1, SeqCst);
        self.reads.fetch_add(1, SeqCst);
        let after = now.saturating_sub(self.handed_off.load(SeqCst));
        self.first_read.fetch_min(after, SeqCst);
        self.last_read.fetch_max(after, SeqCst);
        after
    }

    /// Records that a reader is about to release.
    pub fn end_reading(&self) {
        self.reading.fetch_sub(1, SeqCst);
    }

    /// The number of reads.
    pub fn reads(&self) -> u64 {
        self.reads.load(SeqCst)
    }

    /// Begins a round: a writer holds the lock, and all readers shall wait for it.
    pub fn begin_round(&self) {
        self.first_read.store(u64::MAX, SeqCst);
        self.last_read.store(0, SeqCst);
        self.round.fetch_add(1, SeqCst);
    }

    /// Lets the readers release, and wait for the next round.
    pub fn dismiss(&self) {
        self.dismissed.store(self.round.load(SeqCst), SeqCst);
    }

    /// Ends the last round.
    pub fn end_rounds(&self) {
        self.round.store(NO_MORE, SeqCst);
    }

    /// The round after `round`, if it has begun; `Some(None)` if there is none.
    pub fn round_after(&self, round: u64) -> Option<Option<u64>> {
        match self.round.load(SeqCst) {
            NO_MORE => Some(None),
            now => (now > round).then_some(Some(now)),
        }
    }

    /// True if the readers of the round may release.
    pub fn is_dismissed(&self, round: u64) -> bool {
        self.dismissed.load(SeqCst) >= round
    }

    /// Time from the writer's release to the first and the last read of the round.
    pub fn woken(&self) -> (Duration, Duration) {
        let [first, last] =
            [&self.first_read, &self.last_read].map(|at| Duration::from_nanos(at.load(SeqCst)));
        (first, last)
    }

    /// The number of acquisitions.
    pub fn entered(&self) -> u64 {
        self.entered.load(SeqCst)
    }

    /// The number of acquisitions by another process than the previous one.
    pub fn remote(&self) -> u64 {
        self.remote.load(SeqCst)
    }

    /// The longest time without a holder while there were waiters.
    pub fn largest_gap(&self) -> Duration {
        Duration::from_nanos(self.largest_gap.load(SeqCst))
    }

    /// The number of [stalls](STALL).
    pub fn stalls(&self) -> u64 {
        self.stalls.load(SeqCst)
    }

    /// Checks that no holders and waiters are left, and that each acquisition was exclusive.
    pub fn assert_right(&self, entered: u64) {
        let left = (self.inside.load(SeqCst), self.reading.load(SeqCst), self.waiting());
        assert_eq!(left, (0, 0, 0), "expected no holder inside at the end");
        assert_eq!(self.entered(), entered, "expected a count of all acquisitions");
        let counted = self.counted.load(SeqCst) + self.reads();
        assert_eq!(counted, entered, "expected a number per entry, and one was overwritten");
    }
}

/// A [`Board`] in a file that processes share.
pub struct SharedBoard(MmapRaw);

impl SharedBoard {
    /// The board at `path`, created if it does not exist. Fails with the file system's error.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        file.set_len(size_of::<Board>() as u64)?;
        Ok(Self(MmapRaw::map_raw(&file)?))
    }
}

impl Deref for SharedBoard {
    type Target = Board;

    fn deref(&self) -> &Board {
        // SAFETY: the mapping is as large as a `Board`, begins a page, lives as long as `self`, and is zero
        // or written by other processes as the same type; a `Board` has only atomics, for which all bits are
        // valid.
        unsafe { &*self.0.as_ptr().cast::<Board>() }
    }
}

impl fmt::Debug for SharedBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedBoard").field(&**self).finish()
    }
}

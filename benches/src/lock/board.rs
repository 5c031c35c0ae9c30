//! [`Board`]: what all takers of turns can see, in whichever process they are. It lies in memory and not in
//! Redis, so that looking at it costs the server nothing.

use std::fmt;
use std::fs::OpenOptions;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fleet::clock;
use memmap2::MmapRaw;

// Ordering: SeqCst everywhere in this file. That a holder is alone must show in these numbers by themselves,
// and not lean on what the lock under test orders.
use Ordering::SeqCst;

/// Longer than this without an acquisition while there are waiters is a stall.
pub const STALL: Duration = Duration::from_millis(100);

/// The waiters, the holder, and since when. All zero to begin with.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Board {
    /// When no task shall begin anything new, by [`clock::now`].
    end: AtomicU64,
    waiting: AtomicU64,
    inside: AtomicU64,
    entered: AtomicU64,
    /// The same number by a load and a store: right only if there was never a second holder.
    counted: AtomicU64,
    handed_off: AtomicU64,
    last_process: AtomicU64,
    remote: AtomicU64,
    /// When the lock was acquired last, or a wait began while there were no waiters.
    last_event: AtomicU64,
    largest_gap: AtomicU64,
    stalls: AtomicU64,
    reading: AtomicU64,
    reads: AtomicU64,
    /// Which time it is that readers wait for a writer, and which of them they need read no longer.
    round: AtomicU64,
    dismissed: AtomicU64,
    /// How long after the writer the first and the last reader of the round got in.
    first_read: AtomicU64,
    last_read: AtomicU64,
}

/// After the last round.
const NO_MORE: u64 = u64::MAX;

/// What a new holder finds.
#[derive(Debug)]
pub struct Entry {
    /// Nanoseconds since the one before began to let go, if it waited for a task to hand off to.
    pub after: Option<u64>,
}

impl Board {
    /// Gives all tasks so much time from now.
    pub fn begin(&self, time: Duration) {
        self.end.store(clock::now() + time.as_nanos() as u64, SeqCst);
    }

    /// Whether the time is over.
    pub fn is_over(&self) -> bool {
        self.end.load(SeqCst) <= clock::now()
    }

    /// A task asks for the lock.
    pub fn arrive(&self) {
        if self.waiting.fetch_add(1, SeqCst) == 0 {
            self.last_event.fetch_max(clock::now(), SeqCst);
        }
    }

    /// How many have asked and not got in yet.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(SeqCst)
    }

    /// A task has the lock.
    ///
    /// # Panics
    ///
    /// If another has it too.
    pub fn enter(&self, process: u64) -> Entry {
        let now = clock::now();
        assert_eq!(self.inside.swap(1, SeqCst), 0, "two are inside at once");
        assert_eq!(self.reading.load(SeqCst), 0, "readers are inside");
        self.waiting.fetch_sub(1, SeqCst);
        self.entered.fetch_add(1, SeqCst);
        self.counted.store(self.counted.load(SeqCst) + 1, SeqCst);
        if self.last_process.swap(process + 1, SeqCst) != process + 1 {
            self.remote.fetch_add(1, SeqCst);
        }
        // Of two tasks that are told apart by nanoseconds the later one may come first here.
        let gap = now.saturating_sub(self.last_event.swap(now, SeqCst));
        self.largest_gap.fetch_max(gap, SeqCst);
        if Duration::from_nanos(gap) > STALL {
            self.stalls.fetch_add(1, SeqCst);
        }
        let handed_off = self.handed_off.swap(0, SeqCst);
        Entry { after: (handed_off != 0).then(|| now.saturating_sub(handed_off)) }
    }

    /// The holder is about to let go.
    pub fn leave(&self) {
        assert_eq!(self.inside.swap(0, SeqCst), 1, "another has left meanwhile");
    }

    /// The holder is about to let go, to a waiter.
    pub fn hand_off(&self) {
        self.leave();
        self.handed_off.store(clock::now(), SeqCst);
    }

    /// A reader has the lock together with others. Says how many nanoseconds after the last one began to let
    /// go.
    ///
    /// # Panics
    ///
    /// If a writer has it.
    pub fn begin_reading(&self) -> u64 {
        let now = clock::now();
        self.reading.fetch_add(1, SeqCst);
        assert_eq!(self.inside.load(SeqCst), 0, "a writer is inside");
        self.waiting.fetch_sub(1, SeqCst);
        self.entered.fetch_add(1, SeqCst);
        self.reads.fetch_add(1, SeqCst);
        let after = now.saturating_sub(self.handed_off.load(SeqCst));
        self.first_read.fetch_min(after, SeqCst);
        self.last_read.fetch_max(after, SeqCst);
        after
    }

    /// A reader is about to let go.
    pub fn end_reading(&self) {
        self.reading.fetch_sub(1, SeqCst);
    }

    /// The number of reads.
    pub fn reads(&self) -> u64 {
        self.reads.load(SeqCst)
    }

    /// A writer is inside, for which all readers shall wait.
    pub fn begin_round(&self) {
        self.first_read.store(u64::MAX, SeqCst);
        self.last_read.store(0, SeqCst);
        self.round.fetch_add(1, SeqCst);
    }

    /// The readers may let go, and wait for the next round.
    pub fn dismiss(&self) {
        self.dismissed.store(self.round.load(SeqCst), SeqCst);
    }

    /// There is no other round.
    pub fn end_rounds(&self) {
        self.round.store(NO_MORE, SeqCst);
    }

    /// The round after that one, if it has begun; `Some(None)` if there is none.
    pub fn round_after(&self, round: u64) -> Option<Option<u64>> {
        match self.round.load(SeqCst) {
            NO_MORE => Some(None),
            now => (now > round).then_some(Some(now)),
        }
    }

    /// Whether the readers of that round may let go.
    pub fn is_dismissed(&self, round: u64) -> bool {
        self.dismissed.load(SeqCst) >= round
    }

    /// How long after the writer the first and the last reader of the round got in.
    pub fn woken(&self) -> (Duration, Duration) {
        let [first, last] =
            [&self.first_read, &self.last_read].map(|at| Duration::from_nanos(at.load(SeqCst)));
        (first, last)
    }

    /// The number of acquisitions.
    pub fn entered(&self) -> u64 {
        self.entered.load(SeqCst)
    }

    /// How often the holder was of another process than the one before.
    pub fn remote(&self) -> u64 {
        self.remote.load(SeqCst)
    }

    /// The longest time in which there was no holder although there were waiters.
    pub fn largest_gap(&self) -> Duration {
        Duration::from_nanos(self.largest_gap.load(SeqCst))
    }

    /// How often that was a [stall](STALL).
    pub fn stalls(&self) -> u64 {
        self.stalls.load(SeqCst)
    }

    /// Sees that there are no holders and waiters any more, and that each acquisition was exclusive.
    ///
    /// # Panics
    ///
    /// If not.
    pub fn assert_right(&self, entered: u64) {
        let left = (self.inside.load(SeqCst), self.reading.load(SeqCst), self.waiting());
        assert_eq!(left, (0, 0, 0), "not all have left");
        assert_eq!(self.entered(), entered, "not all acquisitions were told");
        let counted = self.counted.load(SeqCst) + self.reads();
        assert_eq!(counted, entered, "a number was overwritten");
    }
}

/// A [`Board`] in a file that processes share.
pub struct SharedBoard(MmapRaw);

impl SharedBoard {
    /// The board at `path`, made if it is not there.
    ///
    /// # Errors
    ///
    /// Those of the file system.
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
        // or what other processes have made of it by the same type; a `Board` has nothing but atomics, for
        // which any bits will do.
        unsafe { &*self.0.as_ptr().cast::<Board>() }
    }
}

impl fmt::Debug for SharedBoard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedBoard").field(&**self).finish()
    }
}

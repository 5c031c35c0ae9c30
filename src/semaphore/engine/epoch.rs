//! Epochs: which threads are walking over nodes not their own.
//!
//! A walker notes its walk in its thread's record, by a plain store, and then does a read-modify-write on a
//! word of the semaphore, as most operations do anyway. The sweeper, after taking nodes out, does one on the
//! same word before it reads the records. One of the two comes first [R]: either the sweeper sees the walker,
//! or the walker sees a queue without those nodes. So a walk costs two stores, no fence, and no step on
//! shared memory.
//!
//! This is epoch-based reclamation (Fraser, *Practical lock-freedom*, 2004), with an epoch per semaphore and
//! not per process: a thread stopped on a walk holds back the garbage of one semaphore only.

use std::cell::Cell;
use std::ptr;

use crate::support::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::support::sync::{at_thread_exit, leak, shared_static, thread_cell};

/// The epoch of a semaphore's nodes. Advances once every walk from before the present epoch is over.
#[derive(Debug)]
pub(super) struct Epoch {
    number: AtomicU32,
    unregistered: UnregisteredWalks,
}

/// The address of the [`Epoch`] of the thread's walk, with its number's last two bits; zero between walks.
#[derive(Debug)]
// Apart from other records: each is written all the time by one thread.
#[repr(align(128))]
struct Record(AtomicUsize);

/// Records, and bits for the taken records: a sweeper skips free records. Never freed, but used again.
#[derive(Debug)]
struct Block {
    /// A bit for each record.
    taken: AtomicU64,
    next: Option<&'static Block>,
    records: [Record; Block::LEN],
}

/// The bits of an epoch's number that fit into a record beside an address.
const EPOCH_BITS: usize = 0b11;
const _: () = assert!(align_of::<Epoch>() > EPOCH_BITS);

shared_static!(BLOCKS: AtomicPtr<Block> = AtomicPtr::new(ptr::null_mut()));

thread_cell!(MINE: Cell<*const Record> = Cell::new(ptr::null()));

/// Gives this thread a record, if it has none. May allocate. `at_exit` must [give it back](unregister).
#[cold]
pub(super) fn register(at_exit: fn()) {
    // A thread already ending would never give the record back.
    if is_registered() || !at_thread_exit(at_exit) {
        return;
    }
    MINE.with(|mine| mine.set(free_record()));
}

/// Takes a record for the caller.
fn free_record() -> &'static Record {
    loop {
        let first = first_block();
        // A block is only added if all records were taken: racing threads keep no more blocks than needed.
        if let Some(record) = blocks_from(first).find_map(Block::take).or_else(|| Block::add_before(first)) {
            return record;
        }
    }
}

pub(super) fn unregister() {
    let mine = MINE.with(|mine| mine.replace(ptr::null()));
    blocks().find(|block| block.give_back(mine));
}

#[inline]
pub(super) fn is_registered() -> bool {
    !MINE.with(Cell::get).is_null()
}

impl Block {
    /// 4 KiB. Small for the model checkers, to have several blocks.
    const LEN: usize = if cfg!(latchwork_loom) { 2 } else { 32 };

    /// Takes the first record of a new block; `None` if another thread has meanwhile added a block.
    fn add_before(first: Option<&'static Self>) -> Option<&'static Record> {
        let before = first.map_or(ptr::null_mut(), |first| ptr::from_ref(first).cast_mut());
        let new = Box::into_raw(Box::new(Self {
            taken: AtomicU64::new(1),
            next: first,
            records: std::array::from_fn(|_| Record(AtomicUsize::new(0))),
        }));
        // Ordering: Release, for the block's content. Relaxed on failure: nothing is read.
        match BLOCKS.compare_exchange(before, new, Ordering::Release, Ordering::Relaxed) {
            // SAFETY: a box, never freed from now on.
            Ok(_) => Some(unsafe { &leak(new).records[0] }),
            Err(_) => {
                // SAFETY: a box not seen by other threads.
                drop(unsafe { Box::from_raw(new) });
                None
            }
        }
    }

    fn take(&self) -> Option<&Record> {
        // Ordering: Relaxed, a guess checked by the CAS below.
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            let free = taken.trailing_ones();
            let record = self.records.get(free as usize)?;
            // Ordering: Acquire, after all walks of the former thread. Relaxed on failure, as above.
            match self.taken.compare_exchange(taken, taken | 1 << free, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Some(record),
                Err(now) => taken = now,
            }
        }
    }

    /// Gives back this thread's record. False if the record is in another block.
    fn give_back(&self, record: *const Record) -> bool {
        let index = self.records.iter().position(|one| ptr::eq(one, record));
        if let Some(index) = index {
            // Ordering: Release, after all walks of this thread.
            self.taken.fetch_and(!(1 << index), Ordering::Release);
        }
        index.is_some()
    }

    fn taken(&self) -> impl Iterator<Item = &Record> {
        // Ordering: Acquire, after the walks of threads that have given their records back (and earlier
        // changes: all are read-modify-writes). By a record taken later, no thread walks yet.
        let mut taken = self.taken.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            let index = taken.trailing_zeros();
            taken &= taken.wrapping_sub(1);
            self.records.get(index as usize)
        })
    }
}

fn first_block() -> Option<&'static Block> {
    // Ordering: Acquire, for the content of this block and the blocks behind. Records of a later block belong
    // to threads that have not begun to walk.
    let first = BLOCKS.load(Ordering::Acquire);
    // SAFETY: null, or a block, which is never freed.
    unsafe { first.as_ref() }
}

fn blocks() -> impl Iterator<Item = &'static Block> {
    blocks_from(first_block())
}

fn blocks_from(first: Option<&'static Block>) -> impl Iterator<Item = &'static Block> {
    std::iter::successors(first, |block| block.next)
}

crate::support::sync::maybe_const! {
    impl Epoch {
        pub(super) fn new() -> Self {
            Self {
                number: AtomicU32::new(0),
                unregistered: UnregisteredWalks([AtomicU32::new(0), AtomicU32::new(0)]),
            }
        }
    }
}

impl Epoch {
    #[inline]
    pub(super) fn number(&self) -> u32 {
        // Ordering: Relaxed. A stale number holds back the next epoch until the walk is over; if its last
        // bits equal the present number's, the epoch after.
        self.number.load(Ordering::Relaxed)
    }

    /// Begins the next epoch. Only for the sweeper.
    pub(super) fn advance(&self) -> u32 {
        let next = self.number().wrapping_add(1);
        // Ordering: Relaxed, see `number`.
        self.number.store(next, Ordering::Relaxed);
        next
    }

    /// A record's value during a walk begun in `epoch`.
    fn noted(&self, epoch: u32) -> usize {
        ptr::from_ref(self).addr() | epoch as usize & EPOCH_BITS
    }

    #[inline]
    pub(super) fn walk(&self) -> Walk<'_> {
        let record = MINE.with(Cell::get);
        // SAFETY: null, or a record, which is never freed.
        let record = match unsafe { record.as_ref() } {
            Some(mine) => {
                // Ordering: Release, as this store covers the end of the walk before: a sweeper that reads
                // this value may have missed the end, but must free after that walk's reads [R]. The caller's
                // next read-modify-write makes this walk visible; a stale epoch only delays the next.
                mine.0.store(self.noted(self.number()), Ordering::Release);
                record
            }
            None => ptr::without_provenance(self.unregistered.begin(self.number())),
        };
        Walk { epoch: self, record }
    }

    /// Returns the number of taken records (free ones must not delay sweeps); `None` if a walk from before
    /// the present epoch goes on. The caller has done a read-modify-write on both words.
    pub(super) fn has_no_older_walks(&self) -> Option<u32> {
        let number = self.number();
        let before = UnregisteredWalks::kind(number.wrapping_sub(1));
        // Ordering: Acquire, after all reads on walks that have ended [R].
        if self.unregistered.0[before].load(Ordering::Acquire) != 0 {
            return None;
        }
        let (here, now) = (self.noted(0), self.noted(number));
        let mut looked = 0;
        for block in blocks() {
            for record in block.taken() {
                looked += 1;
                // Ordering: Acquire, as above.
                let at = record.0.load(Ordering::Acquire);
                if at & !EPOCH_BITS == here && at != now {
                    return None;
                }
            }
        }
        Some(looked)
    }
}

/// A walk over the nodes of one semaphore: no reachable node is freed before this is dropped. Nothing may be
/// reached before the walker's next read-modify-write on `credited` or `end`. A thread has one record for one
/// walk at a time, and calls no foreign code on a walk.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    epoch: &'a Epoch,
    /// For a thread without a record, an index into [`UnregisteredWalks`], no address. Makes this `!Send`.
    // Not a field of its own, which every walk would write.
    record: *const Record,
}

impl Drop for Walk<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.record.addr() < UnregisteredWalks::KINDS {
            return self.epoch.unregistered.end(self.record.addr());
        }
        // SAFETY: a record, which is never freed.
        let record = unsafe { &*self.record };
        // Ordering: Release: all reads on the walk come before its visible end [R].
        record.0.store(0, Ordering::Release);
    }
}

/// Walks of threads without a record: threads that have only released and must not allocate, and threads
/// already ending. Counted by the noted epoch's last bit, or walks taking turns would hold back every epoch.
#[derive(Debug)]
struct UnregisteredWalks([AtomicU32; Self::KINDS]);

impl UnregisteredWalks {
    const KINDS: usize = 2;

    fn kind(epoch: u32) -> usize {
        epoch as usize % Self::KINDS
    }

    #[cold]
    fn begin(&self, epoch: u32) -> usize {
        let kind = Self::kind(epoch);
        // Ordering: Relaxed, as for a record.
        self.0[kind].fetch_add(1, Ordering::Relaxed);
        kind
    }

    #[cold]
    fn end(&self, kind: usize) {
        // Ordering: Release, as for a record.
        self.0[kind].fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two threads find all records taken, and add a block before the same first block.
    #[test]
    fn one_block_is_kept_of_two_threads_that_add_one() {
        let first = first_block();
        let record = Block::add_before(first).expect("no other test of this process needs a block now");
        let kept = blocks().count();
        assert!(Block::add_before(first).is_none());
        assert_eq!(blocks().count(), kept);
        assert!(blocks().any(|block| block.give_back(record)));
    }
}

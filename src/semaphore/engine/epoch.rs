//! Which threads walk over nodes that they do not own.
//!
//! A walker says so in its thread's record, by a plain store, and then does a read-modify-write on a word of
//! the semaphore, which most operations do anyway. The sweeper, which has taken nodes out of a queue, does
//! one on the same word before it looks at the records. One of the two comes first [R]: either the sweeper
//! sees the walker, or the walker sees a queue without those nodes. So a walk costs two stores, no fence, and
//! no step on memory that threads share.
//!
//! This is epoch-based reclamation (Fraser, *Practical lock-freedom*, 2004), with an epoch for each semaphore
//! instead of one for the process: a thread that is stopped in the middle of a walk holds back that one
//! semaphore's garbage and no other.

use std::cell::Cell;
use std::ptr;

use crate::support::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::support::sync::{at_thread_exit, leak, shared_static, thread_cell};

/// The epoch of a semaphore's nodes: it goes on when no walk is left that began before the present one.
#[derive(Debug)]
pub(super) struct Epoch {
    number: AtomicU32,
    unregistered: UnregisteredWalks,
}

/// A thread's record: the address of the [`Epoch`] of the nodes that the thread walks over, with the last two
/// bits of its number; zero while it walks over none.
#[derive(Debug)]
// Apart from others': each is written all the time by one thread.
#[repr(align(128))]
struct Record(AtomicUsize);

/// Records in one piece, and which of them are taken: a sweeper looks at those only, and not at what threads
/// have left that have ended. Never freed, but its records are used again by other threads.
#[derive(Debug)]
struct Block {
    /// A bit for each record.
    taken: AtomicU64,
    next: Option<&'static Block>,
    records: [Record; Block::LEN],
}

/// What of an epoch fits into a record beside an address.
const EPOCH_BITS: usize = 0b11;
const _: () = assert!(align_of::<Epoch>() > EPOCH_BITS);

shared_static!(BLOCKS: AtomicPtr<Block> = AtomicPtr::new(ptr::null_mut()));

thread_cell!(MINE: Cell<*const Record> = Cell::new(ptr::null()));

/// Gives this thread a record, unless it has one. Allocates, if all are taken; so this is for operations that
/// may. `at_exit` is to [give it back](unregister).
#[cold]
pub(super) fn register(at_exit: fn()) {
    // In a thread that ends, what is registered now would never be given back.
    if is_registered() || !at_thread_exit(at_exit) {
        return;
    }
    MINE.with(|mine| mine.set(free_record()));
}

/// A record that is taken for the caller.
fn free_record() -> &'static Record {
    loop {
        let first = first_block();
        // A block is only added before `first`, all of whose records were taken: however many threads race,
        // no more blocks are kept than are needed.
        if let Some(record) = blocks_from(first).find_map(Block::take).or_else(|| Block::add_before(first)) {
            return record;
        }
    }
}

/// Gives this thread's record back.
pub(super) fn unregister() {
    let mine = MINE.with(|mine| mine.replace(ptr::null()));
    blocks().find(|block| block.give_back(mine));
}

#[inline]
pub(super) fn is_registered() -> bool {
    !MINE.with(Cell::get).is_null()
}

impl Block {
    /// 4 KiB. Few for the model checkers, so that they see more than one block.
    const LEN: usize = if cfg!(latchwork_loom) { 2 } else { 32 };

    /// The first record of a new block. `None` if another thread has added a block meanwhile, which has free
    /// ones.
    fn add_before(first: Option<&'static Self>) -> Option<&'static Record> {
        let before = first.map_or(ptr::null_mut(), |first| ptr::from_ref(first).cast_mut());
        let new = Box::into_raw(Box::new(Self {
            taken: AtomicU64::new(1),
            next: first,
            records: std::array::from_fn(|_| Record(AtomicUsize::new(0))),
        }));
        // Ordering: Release, for the block's content. Relaxed on failure: nothing is read.
        match BLOCKS.compare_exchange(before, new, Ordering::Release, Ordering::Relaxed) {
            // SAFETY: a box, which is never freed from now on.
            Ok(_) => Some(unsafe { &leak(new).records[0] }),
            Err(_) => {
                // SAFETY: a box that no other thread has seen.
                drop(unsafe { Box::from_raw(new) });
                None
            }
        }
    }

    /// A record that is free, if there is one.
    fn take(&self) -> Option<&Record> {
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut taken = self.taken.load(Ordering::Relaxed);
        loop {
            let free = taken.trailing_ones();
            let record = self.records.get(free as usize)?;
            // Ordering: Acquire, after all walks of the thread that had it. Relaxed on failure, as above.
            match self.taken.compare_exchange(taken, taken | 1 << free, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) => return Some(record),
                Err(now) => taken = now,
            }
        }
    }

    /// By the thread that has it. False if the record is none of these.
    fn give_back(&self, record: *const Record) -> bool {
        let index = self.records.iter().position(|one| ptr::eq(one, record));
        if let Some(index) = index {
            // Ordering: Release, after all walks of this thread.
            self.taken.fetch_and(!(1 << index), Ordering::Release);
        }
        index.is_some()
    }

    /// Those that are taken.
    fn taken(&self) -> impl Iterator<Item = &Record> {
        // Ordering: Acquire, after the walks of threads that have given theirs back. One that is taken later
        // belongs to a thread that has not begun to walk. All changes are read-modify-writes, so what a later
        // one covers is acquired with it.
        let mut taken = self.taken.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            let index = taken.trailing_zeros();
            taken &= taken.wrapping_sub(1);
            self.records.get(index as usize)
        })
    }
}

fn first_block() -> Option<&'static Block> {
    // Ordering: Acquire, for the content of this block and of those behind it. The records of one that is
    // published later belong to threads that have not begun to walk.
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
        // Ordering: Relaxed. If it is out of date, it holds the next epoch back until the walk is over; where
        // its last bits are the present number's, the epoch after that.
        self.number.load(Ordering::Relaxed)
    }

    /// Begins the next epoch. Only the sweeper does.
    pub(super) fn advance(&self) -> u32 {
        let next = self.number().wrapping_add(1);
        // Ordering: Relaxed, see `number`.
        self.number.store(next, Ordering::Relaxed);
        next
    }

    /// What a record says of a walk that began in `epoch`.
    fn noted(&self, epoch: u32) -> usize {
        ptr::from_ref(self).addr() | epoch as usize & EPOCH_BITS
    }

    /// Begins a walk.
    #[inline]
    pub(super) fn walk(&self) -> Walk<'_> {
        let record = MINE.with(Cell::get);
        // SAFETY: null, or a record, which is never freed.
        let record = match unsafe { record.as_ref() } {
            Some(mine) => {
                // Ordering: Release, for the walk before, which the same store says to have ended: a sweeper
                // that reads this may not have seen that one's own, and a Relaxed store would not put its
                // reads before the sweeper's frees [R]. This walk is made visible by the read-modify-write
                // that the caller does next; an epoch that is out of date only keeps the next one from
                // coming.
                mine.0.store(self.noted(self.number()), Ordering::Release);
                record
            }
            None => ptr::without_provenance(self.unregistered.begin(self.number())),
        };
        Walk { epoch: self, record }
    }

    /// How many threads there were to look at, if no walk that began before the present epoch goes on; to be
    /// asked after a read-modify-write on each word that walkers do theirs on. A block that no thread has is
    /// not counted: a semaphore would keep more nodes for threads that have ended.
    pub(super) fn has_no_older_walks(&self) -> Option<u32> {
        let number = self.number();
        let before = UnregisteredWalks::kind(number.wrapping_sub(1));
        // Ordering: Acquire, after all that was read on walks that have ended [R].
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

/// A walk over the nodes of one semaphore: what can be reached is not freed before this is dropped.
///
/// From its beginning until the walker's next read-modify-write on one of the semaphore's two words, nothing
/// must be reached for. A thread is on one walk at a time, as it has one place to note it: so foreign code is
/// not called on one.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    epoch: &'a Epoch,
    /// For a thread without one, which of [`UnregisteredWalks`] it is, where no record can be. Also what
    /// makes this `!Send`.
    // No field of its own, for it would be written on every walk.
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
        // Ordering: Release: all that was read on the walk was read before it is seen to have ended [R].
        record.0.store(0, Ordering::Release);
    }
}

/// Walks of threads that have no record: those that have only ever released, and must not allocate; and those
/// that are ending. Counted by the last bit of the epoch that they noted, which tells the present one from
/// the one before it: or those that take turns would hold back what no single one does.
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

    /// All records are taken, and two threads begin to add a block before the same one.
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

//! Which threads walk over nodes that they do not own.
//!
//! A walker says so in its thread's record, by a plain store, and then does a read-modify-write on a word of the semaphore, which most
//! operations do anyway. The sweeper, which has taken nodes out of a queue, does one on the same word before it looks at the records.
//! One of the two comes first [R]: either the sweeper sees the walker, or the walker sees a queue without those nodes. So a walk costs
//! two stores, no fence, and no step on memory that threads share.
//!
//! This is epoch-based reclamation (Fraser, *Practical lock-freedom*, 2004), with an epoch for each semaphore instead of one for the
//! process: a thread that is stopped in the middle of a walk holds back that one semaphore's garbage and no other.

use std::cell::Cell;
use std::ptr;

use crate::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use crate::sync::{at_thread_exit, leak, shared_static, thread_cell};

use super::memory::{Memory, free_spare};

/// A thread's record. Never freed, but used again by another thread.
#[derive(Debug)]
// Apart from others': each is written all the time by one thread.
#[repr(align(128))]
struct Record {
    /// The address of the [`Memory`] that the thread walks over, with the epoch's last two bits; zero while it walks over none.
    at: AtomicUsize,
    taken: AtomicBool,
    next: AtomicPtr<Record>,
}

/// What of an epoch fits into a record beside an address.
const EPOCH_BITS: usize = 0b11;
const _: () = assert!(align_of::<Memory>() > EPOCH_BITS);

shared_static!(RECORDS: AtomicPtr<Record> = AtomicPtr::new(ptr::null_mut()));

thread_cell!(MINE: Cell<*const Record> = Cell::new(ptr::null()));

fn at(memory: &Memory, epoch: u32) -> usize {
    ptr::from_ref(memory).addr() | epoch as usize & EPOCH_BITS
}

/// Gives this thread a record, unless it has one. Allocates, if all are taken; so this is for operations that may.
#[cold]
pub(super) fn register() {
    let give_back = || {
        let mine = MINE.with(|mine| mine.replace(ptr::null()));
        // SAFETY: null, or a record, which is never freed.
        if let Some(mine) = unsafe { mine.as_ref() } {
            // Ordering: Release, after all walks of this thread.
            mine.taken.store(false, Ordering::Release);
        }
        free_spare();
    };
    // In a thread that ends, what is registered now would never be given back.
    if is_registered() || !at_thread_exit(give_back) {
        return;
    }
    let record = all().find(|record| {
        // Ordering: Relaxed, here and on failure: only a guess. Acquire, after all walks of the thread that had it.
        let free = !record.taken.load(Ordering::Relaxed);
        free && record.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    });
    let record = record.unwrap_or_else(|| {
        let new = leak(Box::new(Record {
            at: AtomicUsize::new(0),
            taken: AtomicBool::new(true),
            next: AtomicPtr::new(ptr::null_mut()),
        }));
        // Ordering: Relaxed, a guess that the CAS below checks.
        let mut first = RECORDS.load(Ordering::Relaxed);
        loop {
            // Ordering: Relaxed, published by the CAS.
            new.next.store(first, Ordering::Relaxed);
            let record = ptr::from_ref(new).cast_mut();
            // Ordering: Release, for the record's content. Relaxed on failure, as above.
            match RECORDS.compare_exchange(first, record, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => break new,
                Err(now) => first = now,
            }
        }
    });
    MINE.with(|mine| mine.set(record));
}

#[inline]
pub(super) fn is_registered() -> bool {
    !MINE.with(Cell::get).is_null()
}

fn all() -> impl Iterator<Item = &'static Record> {
    // Ordering: Acquire, for the record's content. A record that is published later belongs to a thread that has not begun to walk.
    let mut next = RECORDS.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: null, or a record, which is never freed.
        let record = unsafe { next.as_ref() }?;
        // Ordering: Acquire, as above; it never changes.
        next = record.next.load(Ordering::Acquire);
        Some(record)
    })
}

/// A walk over the nodes of one semaphore: what can be reached is not freed before this is dropped.
///
/// From its beginning until the walker's next read-modify-write on one of the semaphore's two words, nothing must be reached for. A thread is on
/// one walk at a time, as it has one place to note it: so foreign code is not called on one.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    memory: &'a Memory,
    /// For a thread without one, which of [`Strangers`] it is, where no record can be. Also what makes this `!Send`.
    // No field of its own, for it would be written on every walk.
    record: *const Record,
}

impl<'a> Walk<'a> {
    #[inline]
    pub(super) fn begin(memory: &'a Memory) -> Self {
        let record = MINE.with(Cell::get);
        // SAFETY: null, or a record, which is never freed.
        let record = match unsafe { record.as_ref() } {
            Some(mine) => {
                // Ordering: Relaxed, made visible by the read-modify-write that the caller does next [R]. An epoch that is out of date only
                // keeps the next one from coming.
                mine.at.store(at(memory, memory.epoch()), Ordering::Relaxed);
                record
            }
            None => ptr::without_provenance(memory.strangers().begin(memory.epoch())),
        };
        Self { memory, record }
    }
}

impl Drop for Walk<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.record.addr() < Strangers::KINDS {
            return self.memory.strangers().end(self.record.addr());
        }
        // SAFETY: a record, which is never freed.
        let record = unsafe { &*self.record };
        // Ordering: Release: all that was read on the walk was read before it is seen to have ended [R].
        record.at.store(0, Ordering::Release);
    }
}

/// Walks of threads that have no record: those that have only ever released, and must not allocate; and those that are ending. Counted by
/// the last bit of the epoch that they noted, which tells the present one from the one before it: or those that take turns would hold back
/// what no single one does.
#[derive(Debug)]
pub(super) struct Strangers([AtomicU32; Self::KINDS]);

impl Strangers {
    const KINDS: usize = 2;

    pub(super) const fn of(walks: [AtomicU32; Self::KINDS]) -> Self {
        Self(walks)
    }

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

/// How many records there are, if no walk that began before `epoch` goes on; to be asked after a read-modify-write on each word that
/// walkers do theirs on.
pub(super) fn none_walks_since_before(memory: &Memory, epoch: u32) -> Option<u32> {
    // Ordering: Acquire, after all that was read on walks that have ended [R].
    if memory.strangers().0[Strangers::kind(epoch.wrapping_sub(1))].load(Ordering::Acquire) != 0 {
        return None;
    }
    let (here, now) = (at(memory, 0), at(memory, epoch));
    let mut records = 0;
    for record in all() {
        records += 1;
        // Ordering: Acquire, as above.
        let at = record.at.load(Ordering::Acquire);
        if at & !EPOCH_BITS == here && at != now {
            return None;
        }
    }
    Some(records)
}

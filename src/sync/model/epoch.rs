//! In a model, the strictest scheme that keeps crossbeam-epoch's promise: what is retired is freed the moment that nobody is
//! pinned.
//!
//! Under loom, freed things are buried and not given back, so that whoever still comes to one meets its dead canary. Under shuttle
//! they are given back, so that AddressSanitizer sees who still comes.
//!
//! All this is made of std's cells, which the model checker does not see, so it adds no order between the model's threads; these
//! all run on one real thread, so a thread-local is shared by them.

use std::cell::{Cell, RefCell};

/// Tells whether what it is part of was freed.
#[derive(Debug)]
pub(crate) struct Canary(Cell<bool>);

// SAFETY: all threads of a model run on one real thread.
unsafe impl Sync for Canary {}

impl Canary {
    pub(crate) const fn new() -> Self {
        Self(Cell::new(true))
    }

    pub(crate) fn assert_alive(&self) {
        assert!(self.0.get(), "read after it was freed");
    }
}

pub(crate) trait Retire: 'static {
    fn canary(&self) -> &Canary;
}

std::thread_local! {
    static PINNED: Cell<usize> = const { Cell::new(0) };
    static RETIRED: RefCell<Vec<Box<dyn Retire>>> = const { RefCell::new(Vec::new()) };
    #[cfg(latchwork_loom)]
    static BURIED: RefCell<Vec<Box<dyn Retire>>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct Guard(());

pub(crate) fn pin() -> Guard {
    PINNED.set(PINNED.get() + 1);
    Guard(())
}

impl Guard {
    /// # Safety
    ///
    /// That of the real one.
    pub(crate) unsafe fn retire<T: Retire>(&self, retired: *mut T) {
        if crate::fault::fault!(NeverFreed) {
            return;
        }
        // SAFETY: the caller's promise.
        let retired = unsafe { Box::from_raw(retired) };
        RETIRED.with_borrow_mut(|all| all.push(retired));
        if crate::fault::fault!(FreedUnderReaders) {
            free();
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        PINNED.set(PINNED.get() - 1);
        if PINNED.get() == 0 {
            free();
        }
    }
}

fn free() {
    for freed in RETIRED.take() {
        freed.canary().0.set(false);
        #[cfg(latchwork_loom)]
        BURIED.with_borrow_mut(|all| all.push(freed));
    }
}

/// Nobody can come any more: the row that the buried ones were part of is gone.
#[cfg(latchwork_loom)]
pub(crate) fn forget_buried() {
    drop(BURIED.take());
}

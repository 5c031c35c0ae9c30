//! [`Origin`]: the process that a client was made in.

use std::sync::Once;

use crate::support::sync::atomic::{AtomicU32, Ordering};

/// Forks that led to this process, counted since the first client was made.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process that a client was made in: a child that used its leases would be a second holder.
pub(crate) struct Origin(u32);

impl Origin {
    pub(crate) fn here() -> Self {
        static WATCH: Once = Once::new();
        WATCH.call_once(watch_forks);
        // Ordering: Relaxed. The count changes only in a child, before anything else runs there.
        Self(FORKS.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn is_same_process(&self) -> bool {
        // Ordering: Relaxed, as above.
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

/// A handler: asking for the process's id is a system call, as long as an acquisition in memory.
#[cfg(unix)]
fn watch_forks() {
    extern "C" fn in_the_child() {
        // Ordering: Relaxed; the child has only this thread.
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the handler is a plain function that lives as long as the process. A child of a process with
    // several threads may run the handler, which only adds to an atomic.
    unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
}

#[cfg(not(unix))]
fn watch_forks() {}

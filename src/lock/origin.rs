//! [`Origin`]: which process a client was made in.

use std::sync::Once;

use crate::support::sync::atomic::{AtomicU32, Ordering};

/// How often this process's memory was copied by a fork, since the first client was made.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Which process a client was made in. Leases are that process's: a child that goes on with them would be a
/// second holder.
pub(crate) struct Origin(u32);

impl Origin {
    pub(crate) fn here() -> Self {
        static WATCH: Once = Once::new();
        WATCH.call_once(watch_forks);
        // Ordering: Relaxed. It changes in a child only, before anything else runs there.
        Self(FORKS.load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn is_same_process(&self) -> bool {
        // Ordering: Relaxed, as above.
        self.0 == FORKS.load(Ordering::Relaxed)
    }
}

/// Asking for the process's id each time would cost a system call, which is as long as a whole acquisition in
/// memory.
#[cfg(unix)]
fn watch_forks() {
    extern "C" fn in_the_child() {
        // Ordering: Relaxed, as the child has this one thread only.
        FORKS.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the handler is a plain function that is there for as long as the process, and does nothing that
    // a child of a process with several threads must not do: it adds to an atomic.
    unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
}

#[cfg(not(unix))]
fn watch_forks() {}

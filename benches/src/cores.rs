//! Pins each thread to a core.

/// Pins this thread to the `nth` of its allowed cores, if there is one.
///
/// Beside a busy program the scheduler tends to put two short-lived threads onto the only free core, where
/// they take turns instead of contending.
#[cfg(target_os = "linux")]
pub fn pin(nth: usize) {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    let Ok(allowed) = sched_getaffinity(None) else { return };
    let Some(core) = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).nth(nth) else { return };
    let mut only = CpuSet::new();
    only.set(core);
    // If the system refuses, the threads run anywhere; the scenario checks for real concurrency.
    let _ = sched_setaffinity(None, &only);
}

/// Does nothing on this system.
#[cfg(not(target_os = "linux"))]
pub fn pin(_nth: usize) {}

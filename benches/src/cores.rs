//! A core for each thread.

/// Keeps this thread on the `nth` core that it may run on, if there is one.
///
/// Beside a busy program the scheduler likes to put two short-lived threads onto the one core that is left,
/// where they take turns instead of contending.
#[cfg(target_os = "linux")]
pub fn pin(nth: usize) {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    let Ok(allowed) = sched_getaffinity(None) else { return };
    let Some(core) = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core)).nth(nth) else { return };
    let mut only = CpuSet::new();
    only.set(core);
    // Refused, the threads run where the system likes; the scenario that asks for this checks that they run
    // at once.
    let _ = sched_setaffinity(None, &only);
}

/// Left to the system here.
#[cfg(not(target_os = "linux"))]
pub fn pin(_nth: usize) {}

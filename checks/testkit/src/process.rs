//! Pausing and resuming child processes.

use std::io;
use std::process::Child;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Stops `child` with SIGSTOP; returns when the child has stopped. Fails with the operating system's error;
/// never for a child that was not reaped.
pub fn pause(child: &Child) -> io::Result<()> {
    let pid = Pid::from_child(child);
    kill_process(pid, Signal::STOP)?;
    // The signal takes effect a moment later; until then the child may still answer.
    let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), stopped)?;
    Ok(())
}

/// Resumes a paused child with SIGCONT. Fails as [`pause`] does.
pub fn resume(child: &Child) -> io::Result<()> {
    kill_process(Pid::from_child(child), Signal::CONT)?;
    Ok(())
}

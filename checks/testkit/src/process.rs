//! Child processes that stand still for a while.

use std::io;
use std::process::Child;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Stops `child` where it stands, with SIGSTOP; it has stopped when this returns.
///
/// # Errors
///
/// Those of the operating system; there are none for a child that was not waited for.
pub fn pause(child: &Child) -> io::Result<()> {
    let pid = Pid::from_child(child);
    kill_process(pid, Signal::STOP)?;
    // The signal takes effect a moment later, long enough for the child to answer something still.
    let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(pid), stopped)?;
    Ok(())
}

/// Lets a paused child go on, with SIGCONT.
///
/// # Errors
///
/// As [`pause`].
pub fn resume(child: &Child) -> io::Result<()> {
    kill_process(Pid::from_child(child), Signal::CONT)?;
    Ok(())
}

//! The end of the pipes that is told what to do.

use std::fmt::Display;
use std::io::{self, BufRead, Write};
use std::process::{abort, exit};
use std::{panic, thread};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The first word of a process.
pub const READY: &str = "ready";

/// What this process is told: a thread, and its words. From now on a panic of any task ends the process, and
/// so do the end of stdin and the death of the process that started this one.
///
/// # Panics
///
/// If the operating system does not promise the latter.
pub fn orders() -> UnboundedReceiver<(String, String)> {
    // However the parent dies, and also while this process is stopped.
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};
        set_parent_process_death_signal(Some(Signal::KILL))
            .expect("cannot ask for the parent's death signal");
    }
    // A runtime would keep the panic of a task to itself.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        hook(panic);
        abort();
    }));
    let (says, said) = unbounded_channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let (thread, words) = line.split_once(' ').unwrap_or((&line, ""));
            // A receiver that is gone wants to hear nothing more.
            let _ = says.send((thread.to_owned(), words.to_owned()));
        }
        exit(0);
    });
    said
}

/// Answers for a thread of this process.
pub fn answer(thread: &str, said: impl Display) {
    // The parent may be gone, which ends this process at once.
    let _ = writeln!(io::stdout(), "{thread} {said}");
}

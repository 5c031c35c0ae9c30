//! The process's end of the pipes.

use std::fmt::Display;
use std::io::{self, BufRead, Write};
use std::process::{abort, exit};
use std::{panic, thread};

use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The first word of a process.
pub const READY: &str = "ready";

/// The orders to this process: a thread, and its words. From now on the process ends with a panic of any
/// task, with stdin, and with its parent. Panics if the system cannot signal the parent's death.
pub fn orders() -> UnboundedReceiver<(String, String)> {
    // However the parent dies, and even while this process is stopped.
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};
        set_parent_process_death_signal(Some(Signal::KILL))
            .expect("cannot ask for the parent's death signal");
    }
    // A runtime would swallow the panic of a task.
    let hook = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        hook(panic);
        abort();
    }));
    let (says, said) = unbounded_channel();
    thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            let (thread, words) = line.split_once(' ').unwrap_or((&line, ""));
            // The receiver may be dropped.
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

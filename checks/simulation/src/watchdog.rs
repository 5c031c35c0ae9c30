//! Ends the process if a program hangs: [`World`](crate::world::World) cannot count the requests of a poll
//! that loops without any, or that waits for a mutex of its own.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, process, thread};

/// Limit in CPU time: a program with the largest number of polls takes some seconds.
const LIMIT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });

/// Limit in real time, as a multiple of `LIMIT`: a deadlocked thread uses no CPU time, but neither does a
/// thread on a busy machine for a while.
const REAL: u32 = 10;

/// Last words for the end of the process, and the program being played.
static UNDER_WAY: Mutex<(String, Option<Play>)> = Mutex::new((String::new(), None));

struct Play {
    since: Instant,
    /// The kernel's file with the thread's CPU time, and the time at the start.
    counted: PathBuf,
    spent: Duration,
}

impl Play {
    fn begin() -> Self {
        let counted = fs::canonicalize("/proc/thread-self/schedstat").unwrap_or_default();
        Self { since: Instant::now(), spent: spent(&counted).unwrap_or_default(), counted }
    }

    fn is_over(&self) -> bool {
        let real = self.since.elapsed();
        spent(&self.counted).unwrap_or(real).saturating_sub(self.spent) > LIMIT || real > LIMIT * REAL
    }
}

/// Returns the CPU time of the thread; `None` if the kernel does not say.
fn spent(counted: &PathBuf) -> Option<Duration> {
    let counted = fs::read_to_string(counted).ok()?;
    counted.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

fn under_way() -> MutexGuard<'static, (String, Option<Play>)> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sets the text to print if one of the following programs hangs.
pub(crate) fn name(lines: String) {
    under_way().0 = lines;
}

pub(crate) fn watch<T>(play: impl FnOnce() -> T) -> T {
    static THREAD: Once = Once::new();
    THREAD.call_once(|| _ = thread::spawn(end_if_over));
    under_way().1 = Some(Play::begin());
    let played = play();
    under_way().1 = None;
    played
}

fn end_if_over() {
    loop {
        thread::sleep(LIMIT / 30);
        let under_way = under_way();
        if under_way.1.as_ref().is_some_and(Play::is_over) {
            println!("{}", under_way.0);
            process::exit(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::{env, hint};

    use super::*;

    #[test]
    fn program_that_loops_for_ever_ends_the_process_by_its_name() {
        const SPINS: &str = "LATCHWORK_SIMULATION_SPINS";
        if env::var_os(SPINS).is_some() {
            name("seed 5".to_owned());
            watch(|| {
                loop {
                    hint::spin_loop();
                }
            })
        }
        let test = "watchdog::tests::program_that_loops_for_ever_ends_the_process_by_its_name";
        let mut run = Command::new(env::current_exe().expect("this program has a file"));
        let run = run.args([test, "--exact", "--nocapture"]).env(SPINS, "1").output();
        let run = run.expect("this program can be started");
        assert_eq!(run.status.code(), Some(1), "{run:?}");
        assert!(String::from_utf8_lossy(&run.stdout).contains("seed 5\n"), "{run:?}");
    }
}

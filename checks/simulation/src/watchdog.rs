//! Ends the process if a program does not come back: a poll that loops and asks the world for nothing, or
//! waits for a mutex of its own, is beyond what [`World`](crate::world::World) counts.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};
use std::{fs, process, thread};

/// In time of a core: a program of as many polls as there may be takes some seconds.
const LIMIT: Duration = Duration::from_secs(if cfg!(test) { 1 } else { 30 });

/// In real time, in multiples of that: a thread that waits for itself takes no time of a core, and on a busy
/// machine neither does any other for a while.
const REAL: u32 = 10;

/// What is printed at the end of the process, and the program that is played, if there is one.
static UNDER_WAY: Mutex<(String, Option<Play>)> = Mutex::new((String::new(), None));

struct Play {
    since: Instant,
    /// What the kernel counts of the thread, and what that was at the beginning.
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

/// The time of a core that the thread has had; `None` where the kernel does not say.
fn spent(counted: &PathBuf) -> Option<Duration> {
    let counted = fs::read_to_string(counted).ok()?;
    counted.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

fn under_way() -> MutexGuard<'static, (String, Option<Play>)> {
    UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Programs are those that `lines` name from now on, should one not come back.
pub(crate) fn name(lines: String) {
    under_way().0 = lines;
}

/// Plays a program.
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

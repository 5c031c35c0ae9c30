//! All runs.

use std::process::exit;
use std::time::Instant;

use clap::Parser;

use crate::counts;
use crate::programs::{OF_PAIRS, PROGRAMS, Program};
use crate::run::{Outcome, Run};
use crate::stage::{self, Schedule, Victim};

/// Stops threads of latchwork's semaphore for ever
#[derive(Debug, Parser)]
struct CommandLine {
    /// Schedules of each program; the first runs the threads one after the other
    #[arg(long, default_value_t = 8)]
    schedules: u64,
    /// Schedules of the programs with two stopped threads
    #[arg(long, default_value_t = 1)]
    of_pairs: u64,
    /// Stops no thread, but counts each operation's accesses to shared memory
    #[arg(long)]
    count: bool,
    /// Only the programs whose name contains this
    #[arg(default_value = "")]
    filter: String,
}

/// Average number of accesses between two switches; zero for no switches.
const SWITCHES: [u64; 4] = [0, 32, 8, 2];

impl Schedule {
    fn number(seed: u64) -> Self {
        Self { seed, switches: SWITCHES[seed as usize % SWITCHES.len()] }
    }
}

#[derive(Default)]
struct Sum {
    runs: usize,
    held_back: isize,
    unwoken: usize,
}

impl Sum {
    /// Adds a run; returns true if all victims were stopped.
    fn add(&mut self, run: &Run) -> bool {
        let Outcome { stopped, held_back, unwoken } = run.run();
        self.runs += 1;
        self.held_back = self.held_back.max(held_back);
        self.unwoken = self.unwoken.max(unwoken);
        stopped == run.victims.len()
    }
}

pub(crate) fn main() {
    // Otherwise the process would wait for a panicked thread, without a reason.
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        eprintln!("{}", stage::played());
        exit(1);
    }));
    let command_line = CommandLine::parse();
    if command_line.count {
        return counts::main();
    }
    let programs = PROGRAMS.iter().filter(|program| program.name.contains(&command_line.filter));
    for program in programs {
        let start = Instant::now();
        let mut sum = Sum::default();
        for schedule in (0..command_line.schedules).map(Schedule::number) {
            stop_one(program, schedule, &mut sum);
        }
        if OF_PAIRS.contains(&program.name) {
            for schedule in (0..command_line.of_pairs).map(|number| Schedule::number(number + 1)) {
                stop_two(program, schedule, &mut sum);
            }
        }
        println!(
            "{}: {} runs in {:.1} s; of each waiter that leaves {} bytes are held back, and at most {} are not woken",
            program.name,
            sum.runs,
            start.elapsed().as_secs_f64(),
            sum.held_back,
            sum.unwoken
        );
    }
}

fn stop_one(program: &'static Program, schedule: Schedule, sum: &mut Sum) {
    for thread in 0..program.threads.len() {
        for access in 1.. {
            // Measuring once for each access suffices. Not of latches: the waiters would consume
            // notifications.
            let weigh = schedule.seed == 0 && program.permits.is_some();
            let victims = vec![Victim { thread, access }];
            if !sum.add(&Run { program, victims, schedule, weigh }) {
                break;
            }
        }
    }
}

fn stop_two(program: &'static Program, schedule: Schedule, sum: &mut Sum) {
    let pairs = [(0, 1), (0, 2), (1, 2)].into_iter().filter(|(_, other)| *other < program.threads.len());
    for (one, other) in pairs {
        for access in 1.. {
            let mut any = false;
            for other_access in 1.. {
                let victims =
                    vec![Victim { thread: one, access }, Victim { thread: other, access: other_access }];
                if !sum.add(&Run { program, victims, schedule, weigh: false }) {
                    break;
                }
                any = true;
            }
            if !any {
                break;
            }
        }
    }
}

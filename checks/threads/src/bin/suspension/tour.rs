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
    /// How many schedules of each program; the first lets one thread after the other run
    #[arg(long, default_value_t = 8)]
    schedules: u64,
    /// How many, where two threads are stopped
    #[arg(long, default_value_t = 1)]
    of_pairs: u64,
    /// Stops no thread, but counts what each operation does to memory that threads share
    #[arg(long)]
    count: bool,
    /// Only those programs whose name contains this
    #[arg(default_value = "")]
    filter: String,
}

/// Between two switches, on average; zero for none.
const SWITCHES: [u64; 4] = [0, 32, 8, 2];

impl Schedule {
    fn number(seed: u64) -> Self {
        Self { seed, switches: SWITCHES[seed as usize % SWITCHES.len()] }
    }
}

/// What came of many runs.
#[derive(Default)]
struct Sum {
    runs: usize,
    held_back: isize,
    unwoken: usize,
}

impl Sum {
    /// Whether so many threads came to where they were to be stopped.
    fn add(&mut self, run: &Run) -> bool {
        let Outcome { stopped, held_back, unwoken } = run.run();
        self.runs += 1;
        self.held_back = self.held_back.max(held_back);
        self.unwoken = self.unwoken.max(unwoken);
        stopped == run.victims.len()
    }
}

pub(crate) fn main() {
    // A thread that panics would be missed, without a word why.
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
            // Once for each access is enough to weigh what is held back. Not of a latch: waiters that come
            // and go use its notifications up.
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

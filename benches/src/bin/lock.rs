//! What the lock on Redis costs, beside its peers: every question of the lock in one table.
//!
//! Starts a Redis server of its own, and processes of itself where a question is about several. Who is compared takes turns
//! with the others, there and back, so that whatever else the machine does meets them all alike.

use std::time::Instant;

use benches::lock::children;
use benches::lock::figure::{Answer, Report};
use benches::lock::questions::QUESTIONS;
use benches::lock::server::Server;
use clap::Parser;

/// What latchwork's lock on Redis costs, beside its peers, and whether that is what it should be
#[derive(Debug, Parser)]
struct CommandLine {
    /// Only these questions; all of them if none is named
    #[arg(value_parser = QUESTIONS.map(|question| question.name))]
    questions: Vec<String>,
    /// Asks everything so often, and shows the medians
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    repeat: u16,
    /// Rounds in which the peers take turns, for each question
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    rounds: u16,
    /// Be one of several processes, and do this
    #[arg(long, hide = true)]
    child: Option<String>,
}

fn main() {
    let options = CommandLine::parse();
    if let Some(assignment) = options.child {
        return children::be_child(&assignment);
    }
    let start = Instant::now();
    let mut server = Server::start();
    let mut answers = Vec::new();
    for _ in 0..options.repeat {
        let mut all = Answer::default();
        for question in QUESTIONS {
            if options.questions.is_empty() || options.questions.iter().any(|name| name == question.name) {
                eprintln!("{} ...", question.name);
                let Answer { figures, notes } = (question.ask)(&mut server, options.rounds.into());
                all.figures.extend(figures);
                all.notes.extend(notes);
            }
        }
        answers.push(all);
    }
    println!("{}\n", Report(&answers));
    for note in answers.last().into_iter().flat_map(|answer| &answer.notes) {
        println!("{note}");
    }
    println!(
        "\nMedians of {} runs over Redis {} on loopback; {:.0} s.",
        options.repeat,
        server.version(),
        start.elapsed().as_secs_f64()
    );
}

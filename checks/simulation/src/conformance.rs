//! `sim conformance`: the suite for every backend over the model, in virtual time, with all habits that a
//! store may have.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Args;
use latchwork_conformance::{Part, Property, Violation, drive, properties};

use crate::store::{Model, Network, Store};
use crate::world::{Clock, Executor, MS, Nanos, SECOND, Step, World};

/// Blocks a real thread, for which virtual time does not wait.
const ON_A_THREAD: &str = "threads_read_and_write";

/// A store that does not know its listeners grants a lock to clients that listen no more.
const NEED_KNOWN_LISTENERS: [&str; 3] = [
    "writer_that_listens_no_more_is_passed_over",
    "lock_that_is_granted_to_no_waiter_is_free_and_a_message_says_so",
    "next_writer_of_the_releasing_client_gets_the_lock_or_a_position",
];

/// A waiter that cannot be told is passed over, and so is a client between two of its waiters if its
/// subscription ends with the first.
const NEEDS_THE_ORDER_WITHIN_A_CLIENT: &str =
    "waiters_of_several_clients_are_served_in_the_order_in_which_they_came";

#[derive(Debug, Args)]
pub(crate) struct Conformance {
    /// Stores of so many seeds, each with habits and a network of its own
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Of a thousand commands, so many may overtake others of their client
    #[arg(long, default_value_t = 0)]
    reordered: u32,
    /// Properties with this in their name
    #[arg(long)]
    only: Option<String>,
}

impl Conformance {
    pub(crate) fn run(self) -> ExitCode {
        let is_asked_for = |property: &Property| {
            property.name() != ON_A_THREAD
                && self.only.as_ref().is_none_or(|only| property.name().contains(&**only))
        };
        let all: Vec<Property> = Part::ALL.into_iter().flat_map(properties).filter(is_asked_for).collect();
        let mut found: BTreeMap<String, (u64, u64, Violation)> = BTreeMap::new();
        for seed in self.seed..self.seed + self.seeds {
            for property in &all {
                let Err(violation) = OfModel::new(seed, self.reordered).check(property) else {
                    continue;
                };
                let key = format!("{}: {}", property.mode(), property.name());
                found.entry(key).or_insert((seed, 0, violation)).1 += 1;
            }
        }
        for (seed, times, violation) in found.values() {
            println!("{times} of {} seeds, the first of them {seed}: {violation}", self.seeds);
        }
        println!("{} properties, {} seeds, {} violated", all.len(), self.seeds, found.len());
        if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

/// A model in a world of its own.
struct OfModel {
    world: World,
    model: Model,
    executor: RefCell<Executor>,
}

impl OfModel {
    fn new(seed: u64, reordered: u32) -> Self {
        let world = World::new(seed, false);
        let network = Network { reordered, ..world.chance(network) };
        let model = Model::new(&world, &network);
        Self { executor: RefCell::new(Executor::new(&world)), world, model }
    }

    /// Checks a property, unless it is of what this store is free not to do.
    fn check(&self, property: &Property) -> Result<(), Violation> {
        let is_free = if NEED_KNOWN_LISTENERS.contains(&property.name()) {
            !self.model.knows_listeners()
        } else {
            property.name() == NEEDS_THE_ORDER_WITHIN_A_CLIENT
                && !self.model.keeps_the_order_within_a_client()
        };
        if is_free { Ok(()) } else { property.check(self) }
    }
}

/// One on which commands, answers and messages are late, though by less than lies between two waiters of the
/// suite, and that loses nothing: a command or a message that is lost costs the time of a timer.
fn network(chance: &mut fastrand::Rng) -> Network {
    const LATENCIES: [Nanos; 3] = [0, MS / 10, MS];
    Network {
        faults_end: 1_000_000 * SECOND,
        latency: LATENCIES[chance.usize(..LATENCIES.len())],
        late: chance.u32(..100),
        late_by: chance.u64(MS..4 * MS),
        ..Network::default()
    }
}

impl latchwork_conformance::Store for OfModel {
    type Backend = <Model as Store>::Backend;

    async fn connect(&self) -> Self::Backend {
        self.model.connect(&self.world.process(Clock::default())).await
    }

    async fn subscribers(&self, channel: &str) -> usize {
        self.model.subscribers(channel)
    }

    fn block_on<T>(&self, property: impl Future<Output = T>) -> T {
        drive(property, || {
            let step = self.executor.borrow_mut().step(Nanos::MAX / 4);
            assert!(step != Step::Idle, "nothing is left that could wake it");
        })
    }
}

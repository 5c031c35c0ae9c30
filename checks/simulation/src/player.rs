//! [`Player`]: the store over which a program is played.

use clap::ValueEnum;

use crate::program::{Program, draw};
use crate::run::{Report, run};
use crate::store::local::LocalStore;
use crate::store::twin::{TwinOf, seeded};
use crate::store::{Model, SimulatedRedis};
use crate::watchdog;
use crate::world::{Nanos, SECOND};

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Player {
    /// A model of the backend contract that uses every liberty of the contract
    Model,
    /// The locks in memory
    Local,
    /// The Redis adapter and its scripts, over links and a small server
    Redis,
    /// All of these, in turn; Redis for each fourth seed
    All,
}

/// A program over Redis takes four times as long as over the others.
const REDIS_ONE_IN: u64 = 4;

/// Over Redis an hour costs thousands of heartbeats: of so many programs one has leases and sleeps of hours.
const HOURS_ONE_IN: u64 = 25;

impl Player {
    /// Returns the single stores for the program of a seed.
    pub(crate) fn each(self, seed: u64) -> Vec<Self> {
        match self {
            Self::All if seed.is_multiple_of(REDIS_ONE_IN) => vec![Self::Model, Self::Local, Self::Redis],
            Self::All => vec![Self::Model, Self::Local],
            one => vec![one],
        }
    }

    /// Draws the seed's program for this store.
    pub(crate) fn draw(self, seed: u64) -> Program {
        let is_short = self == Self::Redis && !seed.is_multiple_of(HOURS_ONE_IN);
        draw(seed, if is_short { 300 * SECOND } else { Nanos::MAX })
    }

    pub(crate) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Model, Self::Local, Self::Redis].into_iter().find(|player| player.name() == name)
    }

    /// Plays a program over this store. `keeps_history`: keep lines for a human reader.
    pub(crate) fn play(self, program: &Program, keeps_history: bool) -> Report {
        watchdog::watch(|| match self {
            Self::Local => run::<LocalStore>(program, keeps_history),
            Self::Redis => run::<SimulatedRedis>(program, keeps_history),
            Self::Model | Self::All if seeded().is_some() => run::<TwinOf<Model>>(program, keeps_history),
            Self::Model | Self::All => run::<Model>(program, keeps_history),
        })
    }
}

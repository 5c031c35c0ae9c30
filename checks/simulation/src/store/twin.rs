//! Broken stores: programs are played over one of them to see that judges find what is wrong. Either the
//! backend is a broken [`Twin`], or the [model](super::Model) has a [`Flaw`].

use std::cell::Cell;

use clap::ValueEnum;
use defects::twin::{Chance, Twin, Twinned};
use latchwork::backend::Mode;
use latchwork::{LockKind, LockOptions};

use super::{Harm, Network, Store, StoredLease};
use crate::world::{Nanos, Process, World};

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Broken {
    /// What a backend says to its store, and hears of it.
    Twin(Twin),
    /// What the model does with a command.
    Model(Flaw),
}

/// What the model does wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Flaw {
    /// The store makes a lease shorter that is taken again.
    ShortensLeases,
    /// The store undoes an attempt before that has come.
    RollsBackTooSoon,
    /// The store runs a command once more after its answer.
    RunsAfterItsAnswer,
}

thread_local! {
    static CURRENT: Cell<Option<Broken>> = const { Cell::new(None) };
}

impl Broken {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let twins = Twin::value_variants().iter().copied().map(Self::Twin);
        twins.chain(Flaw::value_variants().iter().copied().map(Self::Model))
    }

    /// As the command line has it.
    pub(crate) fn name(self) -> String {
        let value = match self {
            Self::Twin(twin) => twin.to_possible_value(),
            Self::Model(flaw) => flaw.to_possible_value(),
        };
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub(crate) fn of_name(name: &str) -> Result<Self, String> {
        let named = |broken: &Self| broken.name() == name;
        let names = || Self::all().map(Self::name).collect::<Vec<_>>().join(", ");
        Self::all().find(named).ok_or_else(|| format!("one of {}", names()))
    }

    /// Of the stores that are made from now on.
    pub(crate) fn set(broken: Option<Self>) {
        CURRENT.set(broken);
    }

    fn twin() -> Option<Twin> {
        match CURRENT.get() {
            Some(Self::Twin(twin)) => Some(twin),
            _ => None,
        }
    }
}

impl Flaw {
    /// Whether the store that is made now has it.
    pub(super) fn is_made(self) -> bool {
        CURRENT.get() == Some(Broken::Model(self))
    }
}

impl Chance for World {
    const RELEASES: u32 = 20;

    fn below(&self, limit: u32) -> u32 {
        self.chance(|chance| chance.u32(..limit))
    }
}

/// A store, sound or broken.
pub(crate) struct TwinOf<S> {
    store: S,
    twin: Option<Twin>,
}

impl<S: Store> Store for TwinOf<S> {
    const APART: bool = S::APART;
    const NOTICES_WITHIN: Nanos = S::NOTICES_WITHIN;
    const HAS_NO_TASKS: bool = S::HAS_NO_TASKS;
    const KNOWS_LAPSED_WRITERS: bool = S::KNOWS_LAPSED_WRITERS;

    type Backend = Twinned<S::Backend, World>;

    fn new(world: &World, network: &Network) -> Self {
        Self { store: S::new(world, network), twin: Broken::twin() }
    }

    fn connect(&self, process: &Process) -> impl Future<Output = Self::Backend> + Send + 'static {
        let (connects, twin, world) = (self.store.connect(process), self.twin, process.world().clone());
        async move { Twinned::new(connects.await, twin, world) }
    }

    fn options(&self, options: LockOptions) -> LockOptions {
        Twin::options(self.twin, options)
    }

    fn leases(&self, kind: LockKind, name: &str) -> Vec<StoredLease> {
        self.store.leases(kind, name)
    }

    fn harm(&self, harm: &Harm) -> bool {
        self.store.harm(harm)
    }

    fn died(&self, process: &Process) {
        self.store.died(process);
    }

    fn under_way(&self, process: &Process) -> usize {
        self.store.under_way(process)
    }

    fn left_over(&self) -> Vec<String> {
        self.store.left_over()
    }

    fn breach(&self) -> Option<String> {
        self.store.breach()
    }

    fn may_have_refused(&self, process: &Process, name: &str, since: Nanos) -> bool {
        self.store.may_have_refused(process, name, since)
    }

    fn told_held(&self, process: &Process, mode: Mode, name: &str) -> Option<Nanos> {
        self.store.told_held(process, mode, name)
    }

    fn commands(&self) -> u64 {
        self.store.commands()
    }

    fn changes(&self) -> u64 {
        self.store.changes()
    }
}

//! [`TwinOf`]: a store with a seeded defect, for judges to find.

use std::sync::OnceLock;

use defects::twin::{Chance, Twin, Twinned};
use latchwork::backend::Mode;
use latchwork::{LockKind, LockOptions};
use latchwork_conformance::Intercept;

use super::{Harm, Network, Store, StoredLease};
use crate::world::{Nanos, Process, World};

static TWIN: OnceLock<Twin> = OnceLock::new();

pub(crate) fn seed(twin: Twin) {
    let _ = TWIN.set(twin);
}

pub(crate) fn seeded() -> Option<Twin> {
    TWIN.get().copied()
}

impl Chance for World {
    const RELEASES: u32 = 20;

    fn below(&self, limit: u32) -> u32 {
        self.chance(|chance| chance.u32(..limit))
    }
}

/// A store, possibly with a defect.
pub(crate) struct TwinOf<S>(S);

impl<S: Store> Store for TwinOf<S> {
    const APART: bool = S::APART;
    const NOTICES_WITHIN: Nanos = S::NOTICES_WITHIN;
    const HAS_NO_TASKS: bool = S::HAS_NO_TASKS;
    const KNOWS_LAPSED_WRITERS: bool = S::KNOWS_LAPSED_WRITERS;

    type Backend = Intercept<S::Backend, Twinned<World>>;

    fn new(world: &World, network: &Network) -> Self {
        Self(S::new(world, network))
    }

    fn connect(&self, process: &Process) -> impl Future<Output = Self::Backend> + Send + 'static {
        let (connects, world) = (self.0.connect(process), process.world().clone());
        async move { Intercept::new(connects.await, Twinned::new(seeded(), world)) }
    }

    fn options(&self, options: LockOptions) -> LockOptions {
        Twin::options(seeded(), options)
    }

    fn leases(&self, kind: LockKind, name: &str) -> Vec<StoredLease> {
        self.0.leases(kind, name)
    }

    fn harm(&self, harm: &Harm) -> bool {
        self.0.harm(harm)
    }

    fn died(&self, process: &Process) {
        self.0.died(process);
    }

    fn under_way(&self, process: &Process) -> usize {
        self.0.under_way(process)
    }

    fn left_over(&self) -> Vec<String> {
        self.0.left_over()
    }

    fn breach(&self) -> Option<String> {
        self.0.breach()
    }

    fn may_have_refused(&self, process: &Process, name: &str, since: Nanos) -> bool {
        self.0.may_have_refused(process, name, since)
    }

    fn told_held(&self, client: &str, mode: Mode, name: &str) -> Option<Nanos> {
        self.0.told_held(client, mode, name)
    }

    fn is_idle(&self, process: &Process) -> bool {
        self.0.is_idle(process)
    }

    fn subscriptions(&self, process: &Process) -> Option<usize> {
        self.0.subscriptions(process)
    }

    fn counts_listeners(&self) -> bool {
        self.0.counts_listeners()
    }

    fn asked(&self, process: &Process) -> u64 {
        self.0.asked(process)
    }

    fn commands(&self) -> u64 {
        self.0.commands()
    }

    fn changes(&self) -> u64 {
        self.0.changes()
    }
}

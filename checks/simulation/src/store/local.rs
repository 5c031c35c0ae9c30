//! [`LocalStore`]: the locks in memory, [`latchwork::local::Local`]. All processes of a program are clients
//! of one `Local` in one process: they share a clock, and cannot be killed separately.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use latchwork::backend::Backend;
use latchwork::local::Local;
use latchwork::lock::{LockName, Mode};
use latchwork::{Holder, LockKind};

use super::{Harm, Network, Store, StoredLease, nanos};
use crate::world::{Clock, Nanos, Process, World};

pub(crate) struct LocalStore {
    world: World,
    local: Local<Process>,
}

impl Store for LocalStore {
    type Backend = Local<Process>;

    const APART: bool = false;

    fn new(world: &World, _network: &Network) -> Self {
        let process = world.process(Clock::default());
        Self { world: world.clone(), local: Local::with_runtime(process) }
    }

    fn connect(&self, _process: &Process) -> impl Future<Output = Local<Process>> + Send + 'static {
        std::future::ready(self.local.clone())
    }

    fn leases(&self, kind: LockKind, name: &str) -> Vec<StoredLease> {
        let Ok(name) = LockName::new(name) else { return Vec::new() };
        let modes: &[Mode] = match kind {
            LockKind::ReadWrite => &[Mode::Write, Mode::Read],
            LockKind::Semaphore => &[Mode::Permits],
            _ => &[Mode::Plain],
        };
        let holders = |mode: &Mode| at_once(self.local.holders(*mode, &name)).unwrap_or_default();
        let is_shared = |mode: Mode| matches!(mode, Mode::Read | Mode::Permits);
        let each = modes.iter().flat_map(|mode| holders(mode).into_iter().map(|it| (it, is_shared(*mode))));
        each.filter_map(|(holder, is_shared)| self.stored(holder, is_shared)).collect()
    }

    fn harm(&self, _harm: &Harm) -> bool {
        false
    }

    fn under_way(&self, _process: &Process) -> usize {
        0
    }

    fn left_over(&self) -> Vec<String> {
        Vec::new()
    }

    fn may_have_refused(&self, _process: &Process, _name: &str, _since: Nanos) -> bool {
        false
    }

    /// Always 0: calls are not counted.
    fn commands(&self) -> u64 {
        0
    }

    fn changes(&self) -> u64 {
        self.world.steps()
    }
}

impl LocalStore {
    fn stored(&self, holder: Holder, is_shared: bool) -> Option<StoredLease> {
        let id = holder.id?;
        let ends = self.world.now().saturating_add(nanos(holder.left));
        let (client, number, permits) = (id.client_id(), id.number(), holder.permits);
        Some(StoredLease { client, number, ends, is_shared, permits })
    }
}

/// Polls a future of a store in memory, which is ready at the first poll.
fn at_once<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => unreachable!("a store in memory answers at once"),
    }
}

//! Broken twins of a store: programs are played over one of them to see that judges find what is wrong.

use std::cell::Cell;
use std::time::Duration;

use clap::ValueEnum;
use latchwork::{
    AcquireOutcome, AcquireRequest, Backend, Channels, Failure, Holder, LeaseId, LeaseKey, LockKind,
    LockName, LockOptions, Mode, NameError, NextWaiter, QueuePosition, Registry, ReleaseOutcome,
};

use super::{Harm, Network, Store, StoredLease};
use crate::world::{Process, World};

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Twin {
    /// Every 20th lock that another has is given all the same.
    TakesWhatIsHeld,
    /// No renewal is sent, and each is taken for granted.
    RenewsNothing,
    /// Who waits listens to another channel than the one on which a release is told.
    ListensElsewhere,
    /// Every 20th release is not sent, and taken for granted.
    KeepsWhatIsReleased,
    /// Every 20th attempt is not sent, and taken for granted.
    AcquiresInName,
    /// Tokens are made up, and do not rise.
    TokensFall,
    /// Who waits for a fair lock is said to have waited for no time at all.
    ForgetsTheWait,
    /// Who waits for a fair lock listens to another channel than the one on which it is granted.
    GrantsInSilence,
    /// Every 20th reader that is refused is let in all the same.
    ReadsBesideAWriter,
    /// Who waits to read says that it came before all others.
    ReadersComeFirst,
    /// Who waits to read does not say so, and is not remembered when a writer leaves.
    ForgetsTheReaders,
    /// Not the store's, but the client's: its tenure does not end.
    KeepsTheLease,
    /// Nor this one: who is not polled keeps its turn.
    WaitsForWhoIsNotPolled,
    /// The store makes a lease shorter that is taken again.
    ShortensLeases,
    /// The store undoes an attempt before that has come.
    RollsBackTooSoon,
    /// The store runs a command once more after its answer.
    RunsAfterItsAnswer,
    /// A waiter that leaves is not taken out of the queue.
    KeepsPlaces,
    /// Every other question is answered by that the lock is free.
    SaysItIsFree,
}

thread_local! {
    static CURRENT: Cell<Option<Twin>> = const { Cell::new(None) };
}

impl Twin {
    /// Of the stores that are made from now on.
    pub(crate) fn set(twin: Option<Self>) {
        CURRENT.set(twin);
    }

    /// Whether the store that is made now is this one.
    pub(super) fn is_made(self) -> bool {
        CURRENT.get() == Some(self)
    }
}

/// A store, sound or broken.
pub(crate) struct TwinOf<S> {
    store: S,
    twin: Option<Twin>,
}

/// Its backend.
pub(crate) struct Twinned<B> {
    backend: B,
    twin: Option<Twin>,
    world: World,
}

impl<S: Store> Store for TwinOf<S> {
    const APART: bool = S::APART;
    type Backend = Twinned<S::Backend>;

    fn new(world: &World, network: &Network) -> Self {
        Self { store: S::new(world, network), twin: CURRENT.get() }
    }

    fn connect(&self, process: &Process) -> impl Future<Output = Self::Backend> + Send + 'static {
        let (connects, twin, world) = (self.store.connect(process), self.twin, process.world().clone());
        async move { Twinned { backend: connects.await, twin, world } }
    }

    fn options(&self, options: LockOptions) -> LockOptions {
        let hour = Duration::from_secs(3600);
        match self.twin {
            Some(Twin::KeepsTheLease) => options.tenure(hour),
            Some(Twin::WaitsForWhoIsNotPolled) => options.unpolled_limit(hour),
            _ => options,
        }
    }

    fn leases(&self, kind: LockKind, name: &str) -> Vec<StoredLease> {
        self.store.leases(kind, name)
    }

    fn harm(&self, harm: &Harm) -> bool {
        self.store.harm(harm)
    }

    fn under_way(&self, process: &Process) -> usize {
        self.store.under_way(process)
    }

    fn left_over(&self) -> Vec<String> {
        self.store.left_over()
    }

    fn commands(&self) -> u64 {
        self.store.commands()
    }

    fn changes(&self) -> u64 {
        self.store.changes()
    }
}

impl<B> Twinned<B> {
    /// Whether it is this one's turn to go wrong.
    fn goes_wrong(&self, twin: Twin, one_in: u32) -> bool {
        self.twin == Some(twin) && self.world.chance(|chance| chance.u32(..one_in)) == 0
    }

    /// What the store is said to have answered.
    fn twisted(&self, outcome: AcquireOutcome, tokens: u64) -> AcquireOutcome {
        match outcome {
            AcquireOutcome::Held { .. } if self.goes_wrong(Twin::TakesWhatIsHeld, 20) => {
                AcquireOutcome::Acquired { last_token: 0 }
            }
            AcquireOutcome::Acquired { last_token: 1.. } if self.goes_wrong(Twin::TokensFall, 20) => {
                AcquireOutcome::Acquired { last_token: tokens }
            }
            outcome => outcome,
        }
    }

    fn position(&self, position: QueuePosition) -> QueuePosition {
        match self.goes_wrong(Twin::ForgetsTheWait, 1) {
            true => QueuePosition { waited: Duration::ZERO, ..position },
            false => position,
        }
    }

    fn next(&self, next: Option<&NextWaiter>) -> Option<NextWaiter> {
        next.map(|next| NextWaiter { position: self.position(next.position), ..next.clone() })
    }

    /// The channel on which the client is told that it was granted a lock, which has this name.
    fn grants(&self, channel: String) -> String {
        if self.goes_wrong(Twin::GrantsInSilence, 1) { format!("{channel}:elsewhere") } else { channel }
    }

    /// The channel on which all are told, which has this name.
    fn tells(&self, channel: String) -> String {
        if self.goes_wrong(Twin::ListensElsewhere, 1) { format!("{channel}:elsewhere") } else { channel }
    }
}

impl<B: Backend> Backend for Twinned<B> {
    type Error = B::Error;
    type Transport = B::Transport;
    type Runtime = B::Runtime;

    const ANSWERS_AT_ONCE: bool = B::ANSWERS_AT_ONCE;

    fn registry(&self) -> &Registry<B::Transport> {
        self.backend.registry()
    }

    fn runtime(&self) -> &B::Runtime {
        self.backend.runtime()
    }

    fn supports(&self, mode: Mode) -> bool {
        self.backend.supports(mode)
    }

    fn channels(&self, mode: Mode, name: &LockName, client: &str) -> Channels {
        let Channels { own, common } = self.backend.channels(mode, name, client);
        match mode {
            Mode::Plain | Mode::Read => Channels { own: self.tells(own), common },
            // What others than the store's clients say is told all the same.
            Mode::Fair => Channels { own: self.grants(own), common },
            _ => Channels { own: self.grants(own), common: common.map(|common| self.tells(common)) },
        }
    }

    fn grants_suffice(&self) -> bool {
        self.backend.grants_suffice()
    }

    fn reconnects(&self) -> u64 {
        self.backend.reconnects()
    }

    fn failure(&self, error: &B::Error) -> Failure {
        self.backend.failure(error)
    }

    fn check_name(&self, name: &LockName) -> Result<(), NameError> {
        self.backend.check_name(name)
    }

    fn renewal_group(&self, name: &LockName) -> u64 {
        self.backend.renewal_group(name)
    }

    async fn acquire(
        &self,
        mode: Mode,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, B::Error> {
        if mode == Mode::Plain && request.tokens == 0 && self.goes_wrong(Twin::AcquiresInName, 20) {
            return Ok(AcquireOutcome::Acquired { last_token: 0 });
        }
        let position = match (request.position, mode, self.twin) {
            (Some(position), Mode::Read, Some(Twin::ReadersComeFirst)) => {
                Some(QueuePosition { waited: Duration::from_secs(3600), ..position })
            }
            (_, Mode::Read, Some(Twin::ForgetsTheReaders)) => None,
            (Some(position), Mode::Fair | Mode::Write, _) => Some(self.position(position)),
            (position, ..) => position,
        };
        match self.backend.acquire(mode, name, &request.clone().position(position)).await? {
            AcquireOutcome::Held { .. }
                if mode == Mode::Read && self.goes_wrong(Twin::ReadsBesideAWriter, 20) =>
            {
                Ok(AcquireOutcome::Acquired { last_token: 0 })
            }
            outcome => Ok(self.twisted(outcome, request.tokens)),
        }
    }

    async fn release(
        &self,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
    ) -> Result<ReleaseOutcome, B::Error> {
        if self.goes_wrong(Twin::KeepsWhatIsReleased, 20) {
            return Ok(ReleaseOutcome::Released { heard: 0 });
        }
        self.backend.release(mode, name, id, self.next(next).as_ref()).await
    }

    async fn roll_back(&self, mode: Mode, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, B::Error> {
        if matches!(mode, Mode::Fair | Mode::Write) && self.goes_wrong(Twin::KeepsPlaces, 1) {
            return Ok(ReleaseOutcome::NotHeld);
        }
        self.backend.roll_back(mode, name, id).await
    }

    async fn renew(&self, mode: Mode, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, B::Error> {
        if self.goes_wrong(Twin::RenewsNothing, 1) {
            return Ok(vec![true; leases.len()]);
        }
        self.backend.renew(mode, leases, lease).await
    }

    async fn force_release(&self, mode: Mode, name: &LockName) -> Result<bool, B::Error> {
        self.backend.force_release(mode, name).await
    }

    async fn holders(&self, mode: Mode, name: &LockName) -> Result<Vec<Holder>, B::Error> {
        let holders = self.backend.holders(mode, name).await?;
        let is_said_free = matches!(mode, Mode::Plain | Mode::Fair) && self.goes_wrong(Twin::SaysItIsFree, 2);
        Ok(if is_said_free { Vec::new() } else { holders })
    }
}

//! Broken twins of a store: a check is made over one of them to see that it finds what is wrong.

use std::time::Duration;

use clap::ValueEnum;
use latchwork::backend::{
    AcquireOutcome, AcquireRequest, Backend, Channels, Failure, LeaseKey, LockName, Mode, NextWaiter,
    QueuePosition, Registry, ReleaseOutcome,
};
use latchwork::{Holder, LeaseId, LockOptions, NameError};

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Twin {
    /// Every 20th lock that another has is given all the same.
    TakesWhatIsHeld,
    /// No renewal is sent, and each is taken for granted.
    RenewsNothing,
    /// A waiter listens to another channel than the one on which a release is told.
    ListensElsewhere,
    /// Now and then a release is not sent, and taken for granted.
    KeepsWhatIsReleased,
    /// Every 20th attempt is not sent, and taken for granted.
    AcquiresInName,
    /// Tokens are made up, and do not rise.
    TokensFall,
    /// A waiter for a fair lock is said to have waited for no time at all.
    ForgetsTheWait,
    /// A waiter for a fair lock listens to another channel than the one on which it is granted.
    GrantsInSilence,
    /// Every 20th reader that is refused is let in all the same.
    ReadsBesideAWriter,
    /// A waiter that is to read says that it came before all others.
    ReadersComeFirst,
    /// A waiter that is to read does not say so, and is not remembered when a writer leaves.
    ForgetsTheReaders,
    /// A waiter that leaves is not taken out of the queue.
    KeepsPlaces,
    /// Every other question is answered by that the lock is free.
    SaysItIsFree,
    /// Not the store's, but the client's: its tenure does not end.
    KeepsTheLease,
    /// Nor this one: a waiter that is not polled keeps its turn.
    WaitsForUnpolled,
}

/// Where it is drawn which calls go wrong.
pub trait Chance: Send + Sync + 'static {
    /// Of so many releases that [`Twin::KeepsWhatIsReleased`] makes, one is not sent: it costs the others a
    /// lease.
    const RELEASES: u32;

    /// A number below `limit`.
    fn below(&self, limit: u32) -> u32;
}

/// The thread's own random numbers.
#[derive(Debug)]
pub struct OfThread;

impl Chance for OfThread {
    const RELEASES: u32 = 50;

    fn below(&self, limit: u32) -> u32 {
        fastrand::u32(..limit)
    }
}

impl Twin {
    /// The options of a client over this twin.
    pub fn options(twin: Option<Self>, options: LockOptions) -> LockOptions {
        let hour = Duration::from_secs(3600);
        match twin {
            Some(Self::KeepsTheLease) => options.tenure(hour),
            Some(Self::WaitsForUnpolled) => options.unpolled_limit(hour),
            _ => options,
        }
    }
}

/// A backend, sound or broken.
#[derive(Debug)]
pub struct Twinned<B, C> {
    backend: B,
    twin: Option<Twin>,
    chance: C,
}

impl<B, C: Chance> Twinned<B, C> {
    /// `backend`, with what is wrong with it.
    pub fn new(backend: B, twin: Option<Twin>, chance: C) -> Self {
        Self { backend, twin, chance }
    }

    /// Whether this call goes wrong.
    fn goes_wrong(&self, twin: Twin, one_in: u32) -> bool {
        self.twin == Some(twin) && self.chance.below(one_in) == 0
    }

    /// What the store is said to have answered.
    fn twisted(&self, mode: Mode, outcome: AcquireOutcome, tokens: u64) -> AcquireOutcome {
        match outcome {
            AcquireOutcome::Held { .. }
                if mode == Mode::Read && self.goes_wrong(Twin::ReadsBesideAWriter, 20) =>
            {
                AcquireOutcome::Acquired { last_token: 0 }
            }
            AcquireOutcome::Held { .. } if self.goes_wrong(Twin::TakesWhatIsHeld, 20) => {
                AcquireOutcome::Acquired { last_token: 0 }
            }
            AcquireOutcome::Acquired { last_token: 1.. } if self.goes_wrong(Twin::TokensFall, 20) => {
                AcquireOutcome::Acquired { last_token: tokens }
            }
            outcome => outcome,
        }
    }

    /// The position that the store is told of.
    fn position(&self, mode: Mode, position: QueuePosition) -> Option<QueuePosition> {
        let waited = match (mode, self.twin) {
            (Mode::Read, Some(Twin::ForgetsTheReaders)) => return None,
            (Mode::Read, Some(Twin::ReadersComeFirst)) => Duration::from_secs(3600),
            (Mode::Fair | Mode::Write, Some(Twin::ForgetsTheWait)) => Duration::ZERO,
            _ => position.waited,
        };
        Some(QueuePosition { waited, ..position })
    }

    /// As the store is told of it.
    fn next(&self, mode: Mode, next: &NextWaiter) -> NextWaiter {
        let position = self.position(mode, next.position).unwrap_or(next.position);
        NextWaiter { position, ..next.clone() }
    }
}

impl<B: Backend, C: Chance> Backend for Twinned<B, C> {
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
        let mut channels = self.backend.channels(mode, name, client);
        // Where all are told, and where this client is. What others than the store's clients say of fair
        // locks is told all the same.
        let (all, own) = match mode {
            Mode::Fair => (None, Some(&mut channels.own)),
            Mode::Write => (channels.common.as_mut(), Some(&mut channels.own)),
            _ => (Some(&mut channels.own), None),
        };
        for (channel, twin) in [(all, Twin::ListensElsewhere), (own, Twin::GrantsInSilence)] {
            if let Some(channel) = channel.filter(|_| self.twin == Some(twin)) {
                channel.push_str(":elsewhere");
            }
        }
        channels
    }

    fn grants_suffice(&self) -> bool {
        self.backend.grants_suffice()
    }

    fn may_run_again(&self, id: &LeaseId) -> bool {
        self.backend.may_run_again(id)
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
        let position = request.position.and_then(|position| self.position(mode, position));
        let outcome = self.backend.acquire(mode, name, &request.clone().position(position)).await?;
        Ok(self.twisted(mode, outcome, request.tokens))
    }

    async fn release(
        &self,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
    ) -> Result<ReleaseOutcome, B::Error> {
        if self.goes_wrong(Twin::KeepsWhatIsReleased, C::RELEASES) {
            return Ok(ReleaseOutcome::Released { receivers: 0 });
        }
        let next = next.map(|next| self.next(mode, next));
        self.backend.release(mode, name, id, next.as_ref()).await
    }

    async fn roll_back(&self, mode: Mode, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, B::Error> {
        if matches!(mode, Mode::Fair | Mode::Write) && self.twin == Some(Twin::KeepsPlaces) {
            return Ok(ReleaseOutcome::NotHeld);
        }
        self.backend.roll_back(mode, name, id).await
    }

    async fn renew(&self, mode: Mode, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, B::Error> {
        if self.twin == Some(Twin::RenewsNothing) {
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

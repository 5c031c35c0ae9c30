//! Broken twins of a store: a check over a twin must find the defect.

use std::time::Duration;

use clap::ValueEnum;
use latchwork::backend::{
    AcquireOutcome, AcquireRequest, Backend, Channels, Failure, LeaseKey, LockName, Mode, NextWaiter,
    QueuePosition, ReleaseOutcome,
};
use latchwork::{Holder, Lease, LeaseId, LockOptions};
use latchwork_conformance::Interceptor;

/// A defect of a store, or of its clients' commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Twin {
    /// Now and then, an attempt gets a lock that another owner holds.
    TakesWhatIsHeld,
    /// Now and then, an attempt is reported as successful without being sent.
    AcquiresInName,
    /// Renewals are reported as successful without being sent.
    RenewsNothing,
    /// Each renewal is reported as successful, even without a lease.
    RenewsForStrangers,
    /// Now and then, a release is reported as successful without being sent.
    KeepsWhatIsReleased,
    /// A release by another id than the holder's frees the lock.
    ReleasesForStrangers,
    /// Rollbacks are not sent: leases stay, and so do queue positions.
    RollsNothingBack,
    /// A forced release is not sent.
    ForcesNothing,
    /// Half of the queries for holders report a free lock.
    SaysItIsFree,
    /// Leases never end.
    LeasesForEver,
    /// Leases last for a third of their time.
    EndsLeasesEarly,
    /// A repeated acquisition may shorten the lease.
    ShortensLeases,
    /// Waiters listen to a wrong channel for releases.
    ListensElsewhere,
    /// Waiters listen to a wrong channel for their grants.
    GrantsInSilence,
    /// Tokens are invented, and do not rise.
    TokensFall,
    /// The reported last token is half of the store's.
    FallsBehindItsTokens,
    /// Every error is reported as a refusal.
    MixesKinds,
    /// Waiters for a fair lock, or to write, claim not to have waited at all.
    ForgetsTheWait,
    /// Attempts that do not wait join the queue.
    QueuesWhatDoesNotWait,
    /// Now and then, a refused reader gets the lock.
    ReadsBesideAWriter,
    /// Now and then, a refused writer gets the lock.
    WritesBesideReaders,
    /// Waiting readers claim to have come before all others.
    ReadersComeFirst,
    /// Waiting readers do not queue, so that no writer's release lets them in.
    ForgetsTheReaders,
    /// An owner that reads under its own write lock does not say so.
    ForgetsWhatIsReadUnderAWriter,
    /// Only one of the holders is reported.
    SaysOneReader,
    /// A semaphore's requests claim a capacity of one more.
    AllowsOneMore,
    /// A semaphore's requests take one permit, however many are wanted.
    TakesOnePermit,
    /// The simulator's store rolls an attempt back before the attempt has arrived.
    RollsBackTooSoon,
    /// The simulator's store runs a command once more after its answer.
    RunsAfterItsAnswer,
    /// A client's defect: its tenure never ends.
    KeepsTheLease,
    /// A client's defect: an unpolled waiter keeps its turn.
    WaitsForUnpolled,
}

/// The source of chance for defective calls.
pub trait Chance: Send + Sync + 'static {
    /// [`Twin::KeepsWhatIsReleased`] loses one release in this many; each costs the others a lease.
    const RELEASES: u32;

    /// Draws a number below `limit`.
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

/// Makes each call defective.
#[derive(Debug)]
pub struct Always;

impl Chance for Always {
    const RELEASES: u32 = 1;

    fn below(&self, _: u32) -> u32 {
        0
    }
}

const HOUR: Duration = Duration::from_secs(3600);

impl Twin {
    /// Returns the options of a client over this twin.
    pub fn options(twin: Option<Self>, options: LockOptions) -> LockOptions {
        match twin {
            Some(Self::KeepsTheLease) => options.tenure(HOUR),
            Some(Self::WaitsForUnpolled) => options.unpolled_limit(HOUR),
            _ => options,
        }
    }
}

/// The defect of a backend, if any, as an interceptor for [`Intercept`](latchwork_conformance::Intercept).
#[derive(Clone, Debug)]
pub struct Twinned<C> {
    twin: Option<Twin>,
    chance: C,
}

impl<C: Chance> Twinned<C> {
    /// `chance` selects the defective calls.
    pub fn new(twin: Option<Twin>, chance: C) -> Self {
        Self { twin, chance }
    }

    fn is(&self, twin: Twin) -> bool {
        self.twin == Some(twin)
    }

    /// True if this call is defective.
    fn goes_wrong(&self, twin: Twin, one_in: u32) -> bool {
        self.is(twin) && self.chance.below(one_in) == 0
    }

    /// Returns the request for the store.
    fn request(&self, mode: Mode, request: &AcquireRequest) -> AcquireRequest {
        let mut request = request.clone();
        let position = request.position.and_then(|position| self.position(mode, position));
        match self.twin {
            Some(Twin::LeasesForEver) => request.lease = Lease::MAX,
            Some(Twin::EndsLeasesEarly) => request.lease = (request.lease / 3).max(Duration::from_millis(1)),
            Some(Twin::ForgetsWhatIsReadUnderAWriter) => request.under = None,
            Some(Twin::AllowsOneMore) => request.permits.iter_mut().for_each(|it| it.capacity += 1),
            Some(Twin::TakesOnePermit) => request.permits.iter_mut().for_each(|it| it.count = 1),
            _ => {}
        }
        let queues = mode != Mode::Read && self.is(Twin::QueuesWhatDoesNotWait);
        let kept = Duration::from_secs(1);
        request.position(position.or(queues.then_some(QueuePosition { waited: HOUR, kept })))
    }

    /// Returns the outcome for the client.
    fn answer(&self, mode: Mode, outcome: AcquireOutcome, tokens: u64) -> AcquireOutcome {
        let is_let_in = match (mode, &outcome) {
            (_, AcquireOutcome::Acquired { .. }) => false,
            (Mode::Read, _) if self.goes_wrong(Twin::ReadsBesideAWriter, 20) => true,
            (Mode::Write, _) if self.goes_wrong(Twin::WritesBesideReaders, 20) => true,
            _ => self.goes_wrong(Twin::TakesWhatIsHeld, 20),
        };
        match outcome {
            AcquireOutcome::Held { .. } if is_let_in => AcquireOutcome::Acquired { last_token: tokens },
            AcquireOutcome::Acquired { last_token: 1.. } if self.goes_wrong(Twin::TokensFall, 20) => {
                AcquireOutcome::Acquired { last_token: tokens }
            }
            AcquireOutcome::Acquired { last_token: last @ 2.. } if self.is(Twin::FallsBehindItsTokens) => {
                AcquireOutcome::Acquired { last_token: last / 2 }
            }
            outcome => outcome,
        }
    }

    /// Returns the queue position for the store.
    fn position(&self, mode: Mode, position: QueuePosition) -> Option<QueuePosition> {
        let waited = match (mode, self.twin) {
            (Mode::Read, Some(Twin::ForgetsTheReaders)) => return None,
            (Mode::Read, Some(Twin::ReadersComeFirst)) => HOUR,
            (Mode::Fair | Mode::Write | Mode::Permits, Some(Twin::ForgetsTheWait)) => Duration::ZERO,
            _ => position.waited,
        };
        Some(QueuePosition { waited, ..position })
    }
}

impl<B: Backend, C: Chance> Interceptor<B> for Twinned<C> {
    type Error = B::Error;

    const ANSWERS_AT_ONCE: bool = B::ANSWERS_AT_ONCE;

    fn error(&self, error: B::Error) -> B::Error {
        error
    }

    fn failure(&self, backend: &B, error: &B::Error) -> Failure {
        if self.is(Twin::MixesKinds) { Failure::Refused } else { backend.failure(error) }
    }

    fn channels(&self, backend: &B, mode: Mode, name: &LockName, client: &str) -> Channels {
        let mut channels = backend.channels(mode, name, client);
        // The channel of all waiters, and the channel of this client. The common channel of fair locks, for
        // messages of foreign clients, stays as it is.
        let (all, own) = match mode {
            Mode::Fair | Mode::Permits => (None, Some(&mut channels.own)),
            Mode::Write => (channels.common.as_mut(), Some(&mut channels.own)),
            _ => (Some(&mut channels.own), None),
        };
        for (channel, twin) in [(all, Twin::ListensElsewhere), (own, Twin::GrantsInSilence)] {
            if let Some(channel) = channel.filter(|_| self.is(twin)) {
                channel.push_str(":elsewhere");
            }
        }
        channels
    }

    async fn acquire(
        &self,
        backend: &B,
        mode: Mode,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, B::Error> {
        if mode == Mode::Plain && request.tokens == 0 && self.goes_wrong(Twin::AcquiresInName, 20) {
            return Ok(AcquireOutcome::Acquired { last_token: 0 });
        }
        if mode != Mode::Read && self.is(Twin::ShortensLeases) {
            let holders = backend.holders(mode, name).await?;
            if holders.iter().any(|holder| holder.id.as_ref() == Some(&request.id)) {
                backend.release(mode, name, &request.id, None).await?;
            }
        }
        let outcome = backend.acquire(mode, name, &self.request(mode, request)).await?;
        Ok(self.answer(mode, outcome, request.tokens))
    }

    async fn release(
        &self,
        backend: &B,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
    ) -> Result<ReleaseOutcome, B::Error> {
        if self.goes_wrong(Twin::KeepsWhatIsReleased, C::RELEASES) {
            return Ok(ReleaseOutcome::Released { receivers: 0 });
        }
        let next = next.map(|next| {
            let position = self.position(mode, next.position).unwrap_or(next.position);
            NextWaiter { position, ..next.clone() }
        });
        let released = backend.release(mode, name, id, next.as_ref()).await?;
        if released == ReleaseOutcome::NotHeld && self.is(Twin::ReleasesForStrangers) {
            let was_held = backend.force_release(mode, name).await?;
            return Ok(if was_held { ReleaseOutcome::Released { receivers: 0 } } else { released });
        }
        Ok(released)
    }

    async fn roll_back(
        &self,
        backend: &B,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
    ) -> Result<ReleaseOutcome, B::Error> {
        match self.is(Twin::RollsNothingBack) {
            true => Ok(ReleaseOutcome::NotHeld),
            false => backend.roll_back(mode, name, id).await,
        }
    }

    async fn renew(
        &self,
        backend: &B,
        mode: Mode,
        leases: &[LeaseKey],
        lease: Duration,
    ) -> Result<Vec<bool>, B::Error> {
        let found = match self.is(Twin::RenewsNothing) {
            true => vec![true; leases.len()],
            false => backend.renew(mode, leases, lease).await?,
        };
        Ok(found.into_iter().map(|found| found || self.is(Twin::RenewsForStrangers)).collect())
    }

    async fn force_release(&self, backend: &B, mode: Mode, name: &LockName) -> Result<bool, B::Error> {
        match self.is(Twin::ForcesNothing) {
            true => Ok(!backend.holders(mode, name).await?.is_empty()),
            false => backend.force_release(mode, name).await,
        }
    }

    async fn holders(&self, backend: &B, mode: Mode, name: &LockName) -> Result<Vec<Holder>, B::Error> {
        let mut holders = backend.holders(mode, name).await?;
        holders.truncate(if self.is(Twin::SaysOneReader) { 1 } else { usize::MAX });
        Ok(if self.goes_wrong(Twin::SaysItIsFree, 2) { Vec::new() } else { holders })
    }
}

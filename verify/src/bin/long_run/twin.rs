//! Broken twins of the store's: the run is made over one of them to see that it finds what is wrong.

use std::time::Duration;

use clap::ValueEnum;
use latchwork::redis::{Error, Redis, RedisTransport, TokioRuntime};
use latchwork::{
    AcquireOutcome, AcquireRequest, Backend, Channels, Failure, Holder, LeaseId, LeaseKey, LockName, Mode,
    NextWaiter, QueuePosition, Registry, ReleaseOutcome,
};

/// What is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Twin {
    /// Every 20th lock that another has is given all the same.
    TakesWhatIsHeld,
    /// No renewal is sent, and each is taken for granted.
    RenewsNothing,
    /// Who waits listens to another channel than the one on which a release is told.
    ListensElsewhere,
    /// Every 50th release is not sent, and taken for granted.
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
}

/// The Redis backend, sound or broken.
#[derive(Debug)]
pub(crate) struct Twinned {
    redis: Redis,
    twin: Option<Twin>,
}

impl Twinned {
    pub(crate) fn new(redis: Redis, twin: Option<Twin>) -> Self {
        Self { redis, twin }
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
        let waited = match mode {
            Mode::Read if self.goes_wrong(Twin::ForgetsTheReaders, 1) => return None,
            Mode::Read if self.goes_wrong(Twin::ReadersComeFirst, 1) => Duration::from_secs(3600),
            Mode::Fair | Mode::Write if self.goes_wrong(Twin::ForgetsTheWait, 1) => Duration::ZERO,
            _ => position.waited,
        };
        Some(QueuePosition { waited, ..position })
    }

    /// As the store is told of it.
    fn next(&self, mode: Mode, next: &NextWaiter) -> NextWaiter {
        let position = self.position(mode, next.position).unwrap_or(next.position);
        NextWaiter { position, ..next.clone() }
    }

    /// Whether it is this one's turn to go wrong.
    fn goes_wrong(&self, twin: Twin, one_in: u32) -> bool {
        self.twin == Some(twin) && fastrand::u32(..one_in) == 0
    }
}

impl Backend for Twinned {
    type Error = Error;
    type Transport = RedisTransport;
    type Runtime = TokioRuntime;

    fn registry(&self) -> &Registry<RedisTransport> {
        self.redis.registry()
    }

    fn runtime(&self) -> &TokioRuntime {
        self.redis.runtime()
    }

    fn supports(&self, mode: Mode) -> bool {
        self.redis.supports(mode)
    }

    fn channels(&self, mode: Mode, name: &LockName, client: &str) -> Channels {
        let mut channels = self.redis.channels(mode, name, client);
        // Where all are told, and where this client is.
        let (all, own) = match mode {
            Mode::Fair | Mode::Write => (channels.common.as_mut(), Some(&mut channels.own)),
            _ => (Some(&mut channels.own), None),
        };
        for (channel, twin) in [(all, Twin::ListensElsewhere), (own, Twin::GrantsInSilence)] {
            if let Some(channel) = channel.filter(|_| self.goes_wrong(twin, 1)) {
                channel.push_str(":elsewhere");
            }
        }
        channels
    }

    fn grants_suffice(&self) -> bool {
        self.redis.grants_suffice()
    }

    fn reconnects(&self) -> u64 {
        self.redis.reconnects()
    }

    fn failure(&self, error: &Error) -> Failure {
        self.redis.failure(error)
    }

    async fn acquire(
        &self,
        mode: Mode,
        name: &LockName,
        request: &AcquireRequest,
    ) -> Result<AcquireOutcome, Error> {
        if mode == Mode::Plain && request.tokens == 0 && self.goes_wrong(Twin::AcquiresInName, 20) {
            return Ok(AcquireOutcome::Acquired { last_token: 0 });
        }
        let position = request.position.and_then(|position| self.position(mode, position));
        let outcome = self.redis.acquire(mode, name, &request.clone().position(position)).await?;
        Ok(self.twisted(mode, outcome, request.tokens))
    }

    async fn release(
        &self,
        mode: Mode,
        name: &LockName,
        id: &LeaseId,
        next: Option<&NextWaiter>,
    ) -> Result<ReleaseOutcome, Error> {
        if self.goes_wrong(Twin::KeepsWhatIsReleased, 50) {
            return Ok(ReleaseOutcome::Released { heard: 0 });
        }
        let next = next.map(|next| self.next(mode, next));
        self.redis.release(mode, name, id, next.as_ref()).await
    }

    async fn roll_back(&self, mode: Mode, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, Error> {
        self.redis.roll_back(mode, name, id).await
    }

    async fn renew(&self, mode: Mode, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, Error> {
        if self.goes_wrong(Twin::RenewsNothing, 1) {
            return Ok(vec![true; leases.len()]);
        }
        self.redis.renew(mode, leases, lease).await
    }

    async fn force_release(&self, mode: Mode, name: &LockName) -> Result<bool, Error> {
        self.redis.force_release(mode, name).await
    }

    async fn holders(&self, mode: Mode, name: &LockName) -> Result<Vec<Holder>, Error> {
        self.redis.holders(mode, name).await
    }
}

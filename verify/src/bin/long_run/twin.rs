//! Broken twins of the store's: the run is made over one of them to see that it finds what is wrong.

use std::time::Duration;

use clap::ValueEnum;
use latchwork::redis::{Error, Redis, RedisTransport, TokioRuntime};
use latchwork::{
    AcquireOutcome, Backend, Failure, FairBackend, FairReleaseOutcome, Holder, LeaseId, LeaseKey, LockName,
    Moment, Next, Position, ReadRequest, ReadWriteBackend, ReadWriteHolders, Registry, ReleaseOutcome,
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

    /// The position that the store is told of.
    fn position(&self, position: Position) -> Position {
        match self.goes_wrong(Twin::ForgetsTheWait, 1) {
            true => Position { waited: Duration::ZERO, ..position },
            false => position,
        }
    }

    /// As the store is told of it.
    fn next(&self, next: Option<&Next>) -> Option<Next> {
        next.map(|next| Next { position: self.position(next.position), ..next.clone() })
    }

    /// The channel on which the client is told that it was granted a lock, which has this name.
    fn grants(&self, channel: String) -> String {
        if self.goes_wrong(Twin::GrantsInSilence, 1) { format!("{channel}:elsewhere") } else { channel }
    }

    /// The channel on which all are told, which has this name.
    fn tells(&self, channel: String) -> String {
        if self.goes_wrong(Twin::ListensElsewhere, 1) { format!("{channel}:elsewhere") } else { channel }
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

    fn channel(&self, name: &LockName) -> String {
        self.tells(self.redis.channel(name))
    }

    fn reconnects(&self) -> u64 {
        self.redis.reconnects()
    }

    fn failure(&self, error: &Error) -> Failure {
        self.redis.failure(error)
    }

    async fn try_acquire(
        &self,
        name: &LockName,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
        now: Moment,
    ) -> Result<AcquireOutcome, Error> {
        if tokens == 0 && self.goes_wrong(Twin::AcquiresInName, 20) {
            return Ok(AcquireOutcome::Acquired { last_token: 0 });
        }
        Ok(self.twisted(self.redis.try_acquire(name, id, lease, tokens, now).await?, tokens))
    }

    async fn release(&self, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, Error> {
        if self.goes_wrong(Twin::KeepsWhatIsReleased, 50) {
            return Ok(ReleaseOutcome::Released { heard: 0 });
        }
        self.redis.release(name, id).await
    }

    async fn roll_back(&self, name: &LockName, id: &LeaseId) -> Result<ReleaseOutcome, Error> {
        self.redis.roll_back(name, id).await
    }

    async fn force_release(&self, name: &LockName) -> Result<bool, Error> {
        self.redis.force_release(name).await
    }

    async fn renew(&self, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, Error> {
        if self.goes_wrong(Twin::RenewsNothing, 1) {
            return Ok(vec![true; leases.len()]);
        }
        self.redis.renew(leases, lease).await
    }

    async fn holder(&self, name: &LockName) -> Result<Option<Holder>, Error> {
        self.redis.holder(name).await
    }
}

impl FairBackend for Twinned {
    fn grant_channel(&self, name: &LockName, client: &str) -> String {
        self.grants(self.redis.grant_channel(name, client))
    }

    fn grants_suffice(&self) -> bool {
        self.redis.grants_suffice()
    }

    async fn try_acquire_fair(
        &self,
        name: &LockName,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
        position: Option<Position>,
        now: Moment,
    ) -> Result<AcquireOutcome, Error> {
        let position = position.map(|position| self.position(position));
        let outcome = self.redis.try_acquire_fair(name, id, lease, tokens, position, now).await?;
        Ok(self.twisted(outcome, tokens))
    }

    async fn release_fair(
        &self,
        name: &LockName,
        id: &LeaseId,
        next: Option<&Next>,
    ) -> Result<FairReleaseOutcome, Error> {
        if self.goes_wrong(Twin::KeepsWhatIsReleased, 50) {
            return Ok(FairReleaseOutcome::Released);
        }
        self.redis.release_fair(name, id, self.next(next).as_ref()).await
    }

    async fn roll_back_fair(&self, name: &LockName, id: &LeaseId) -> Result<FairReleaseOutcome, Error> {
        self.redis.roll_back_fair(name, id).await
    }

    async fn force_release_fair(&self, name: &LockName) -> Result<bool, Error> {
        self.redis.force_release_fair(name).await
    }
}

impl ReadWriteBackend for Twinned {
    fn read_write_channel(&self, name: &LockName) -> String {
        self.tells(self.redis.read_write_channel(name))
    }

    fn write_grant_channel(&self, name: &LockName, client: &str) -> String {
        self.grants(self.redis.write_grant_channel(name, client))
    }

    fn write_grants_suffice(&self) -> bool {
        self.redis.write_grants_suffice()
    }

    async fn try_write(
        &self,
        name: &LockName,
        id: &LeaseId,
        lease: Duration,
        tokens: u64,
        position: Option<Position>,
        now: Moment,
    ) -> Result<AcquireOutcome, Error> {
        let position = position.map(|position| self.position(position));
        let outcome = self.redis.try_write(name, id, lease, tokens, position, now).await?;
        Ok(self.twisted(outcome, tokens))
    }

    async fn release_write(
        &self,
        name: &LockName,
        id: &LeaseId,
        next: Option<&Next>,
    ) -> Result<FairReleaseOutcome, Error> {
        if self.goes_wrong(Twin::KeepsWhatIsReleased, 50) {
            return Ok(FairReleaseOutcome::Released);
        }
        self.redis.release_write(name, id, self.next(next).as_ref()).await
    }

    async fn roll_back_write(&self, name: &LockName, id: &LeaseId) -> Result<FairReleaseOutcome, Error> {
        self.redis.roll_back_write(name, id).await
    }

    async fn try_read(
        &self,
        name: &LockName,
        id: &LeaseId,
        read: &ReadRequest<'_>,
        now: Moment,
    ) -> Result<AcquireOutcome, Error> {
        let position = match (read.position, self.twin) {
            (Some(position), Some(Twin::ReadersComeFirst)) => {
                Some(Position { waited: Duration::from_secs(3600), ..position })
            }
            (_, Some(Twin::ForgetsTheReaders)) => None,
            (position, _) => position,
        };
        match self.redis.try_read(name, id, &ReadRequest { position, ..*read }, now).await? {
            AcquireOutcome::Held { .. } if self.goes_wrong(Twin::ReadsBesideAWriter, 20) => {
                Ok(AcquireOutcome::Acquired { last_token: 0 })
            }
            outcome => Ok(self.twisted(outcome, u64::from(read.fenced))),
        }
    }

    async fn release_read(&self, name: &LockName, id: &LeaseId) -> Result<bool, Error> {
        if self.goes_wrong(Twin::KeepsWhatIsReleased, 50) {
            return Ok(true);
        }
        self.redis.release_read(name, id).await
    }

    async fn roll_back_read(&self, name: &LockName, id: &LeaseId) -> Result<bool, Error> {
        self.redis.roll_back_read(name, id).await
    }

    async fn renew_writes(&self, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, Error> {
        if self.goes_wrong(Twin::RenewsNothing, 1) {
            return Ok(vec![true; leases.len()]);
        }
        self.redis.renew_writes(leases, lease).await
    }

    async fn renew_reads(&self, leases: &[LeaseKey], lease: Duration) -> Result<Vec<bool>, Error> {
        if self.goes_wrong(Twin::RenewsNothing, 1) {
            return Ok(vec![true; leases.len()]);
        }
        self.redis.renew_reads(leases, lease).await
    }

    async fn force_release_read_write(&self, name: &LockName) -> Result<bool, Error> {
        self.redis.force_release_read_write(name).await
    }

    async fn read_write_holders(&self, name: &LockName) -> Result<ReadWriteHolders, Error> {
        self.redis.read_write_holders(name).await
    }
}

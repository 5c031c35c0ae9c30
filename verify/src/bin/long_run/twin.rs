//! Broken twins of the store's: the run is made over one of them to see that it finds what is wrong.

use std::time::Duration;

use clap::ValueEnum;
use latchwork::redis::{Error, Redis, RedisTransport, TokioRuntime};
use latchwork::{Backend, HandedOver, HoldKey, LockName, Owner, Registry, Released, Tried};

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
    /// Every 20th hand-over is not sent, and taken for granted.
    HandsOverInName,
    /// Tokens are made up, and do not rise.
    TokensFall,
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
        let channel = self.redis.channel(name);
        if self.goes_wrong(Twin::ListensElsewhere, 1) { format!("{channel}:elsewhere") } else { channel }
    }

    fn reconnects(&self) -> u64 {
        self.redis.reconnects()
    }

    fn may_have_run(&self, error: &Error) -> bool {
        self.redis.may_have_run(error)
    }

    async fn try_acquire(
        &self,
        name: &LockName,
        owner: &Owner,
        holds: u64,
        lease: Duration,
        fenced: bool,
    ) -> Result<Tried, Error> {
        let tried = self.redis.try_acquire(name, owner, holds, lease, fenced).await?;
        Ok(match tried {
            Tried::Held { .. } if self.goes_wrong(Twin::TakesWhatIsHeld, 20) => {
                Tried::Acquired { token: fenced.then_some(0) }
            }
            Tried::Acquired { token: Some(_) } if self.goes_wrong(Twin::TokensFall, 20) => {
                Tried::Acquired { token: Some(1) }
            }
            tried => tried,
        })
    }

    async fn release(&self, name: &LockName, owner: &Owner, left: u64) -> Result<Released, Error> {
        if self.goes_wrong(Twin::KeepsWhatIsReleased, 50) {
            return Ok(if left == 0 { Released::Free } else { Released::StillHeld });
        }
        self.redis.release(name, owner, left).await
    }

    async fn take_back(&self, name: &LockName, owner: &Owner, left: u64) -> Result<Released, Error> {
        self.redis.take_back(name, owner, left).await
    }

    async fn hand_over(
        &self,
        name: &LockName,
        owner: &Owner,
        next: &Owner,
        lease: Duration,
        fenced: bool,
    ) -> Result<HandedOver, Error> {
        if !fenced && self.goes_wrong(Twin::HandsOverInName, 20) {
            return Ok(HandedOver::Done { token: None });
        }
        self.redis.hand_over(name, owner, next, lease, fenced).await
    }

    async fn force_release(&self, name: &LockName) -> Result<bool, Error> {
        self.redis.force_release(name).await
    }

    async fn renew(&self, holds: &[HoldKey], lease: Duration) -> Result<Vec<bool>, Error> {
        if self.goes_wrong(Twin::RenewsNothing, 1) {
            return Ok(vec![true; holds.len()]);
        }
        self.redis.renew(holds, lease).await
    }

    async fn hold_count(&self, name: &LockName, owner: &Owner) -> Result<u64, Error> {
        self.redis.hold_count(name, owner).await
    }

    async fn remaining(&self, name: &LockName) -> Result<Option<Duration>, Error> {
        self.redis.remaining(name).await
    }
}

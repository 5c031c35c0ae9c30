//! A read-write lock on a real server, its backend, and a bystander that sees each key and message.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use latchwork::backend::{
    AcquireOutcome, AcquireRequest, Backend as _, Mode, NextWaiter, QueuePosition, ReleaseOutcome,
};
use latchwork::redis::Error;
use latchwork::{Holder, LeaseId};

use super::super::stage::{self, Kind, Message};
pub(crate) use super::super::stage::{KEPT, LEASE, STEP, id, position};
use latchwork_conformance::commands::{Commands as _, did_read, left};

/// A client of Redisson.
pub(crate) const THEM: &str = "99999999-0795-4907-87fd-6c719a6b4586:7";

pub(crate) fn next(id: &LeaseId, steps: u32) -> NextWaiter {
    NextWaiter { id: id.clone(), lease: LEASE, tokens: 0, position: position(steps) }
}

/// A read-write lock, as the scripts know it.
static READ_WRITE: Kind = Kind { mode: Mode::Write, channel: "redisson_rwlock", grants: "rw_grant" };

pub(crate) struct Stage(stage::Stage);

impl Deref for Stage {
    type Target = stage::Stage;

    fn deref(&self) -> &stage::Stage {
        &self.0
    }
}

impl DerefMut for Stage {
    fn deref_mut(&mut self) -> &mut stage::Stage {
        &mut self.0
    }
}

impl Stage {
    pub(crate) async fn set(name: &str) -> Self {
        Self(stage::Stage::set(&READ_WRITE, name).await)
    }

    /// What was published since the last look: a message to all, or a grant, as the client's uuid, `:`, and
    /// the number.
    pub(crate) async fn heard(&mut self) -> Vec<String> {
        let told = |message| match message {
            Message::Grant { client, said } => said.replace("granted", &client),
            Message::ToAll(said) | Message::Other { said, .. } => said,
        };
        self.published().await.into_iter().map(told).collect()
    }

    pub(crate) async fn assert_heard(&mut self, expected: &[&str]) {
        assert_eq!(self.heard().await, expected);
    }

    pub(crate) async fn assert_granted(&mut self, id: &LeaseId) {
        assert_eq!(self.heard().await, [id.to_string()]);
    }

    pub(crate) async fn ask_to_write(
        &self,
        id: &LeaseId,
        position: Option<QueuePosition>,
    ) -> Result<AcquireOutcome, Error> {
        let request = self.redis.request(id, LEASE).position(position);
        self.redis.acquire(Mode::Write, &self.name, &request).await
    }

    pub(crate) async fn ask_to_read(
        &self,
        id: &LeaseId,
        position: Option<QueuePosition>,
    ) -> Result<AcquireOutcome, Error> {
        self.ask(&self.redis.request(id, LEASE).position(position)).await
    }

    /// As one that writes already, under the lease of that.
    pub(crate) async fn ask_beside(
        &self,
        id: &LeaseId,
        writer: &LeaseId,
        position: Option<QueuePosition>,
    ) -> Result<AcquireOutcome, Error> {
        self.ask(&self.redis.request(id, LEASE).position(position).under(writer.clone())).await
    }

    /// To read, as the request says.
    pub(crate) async fn ask(&self, request: &AcquireRequest) -> Result<AcquireOutcome, Error> {
        self.redis.acquire(Mode::Read, &self.name, request).await
    }

    pub(crate) async fn writer(&self) -> Option<Holder> {
        self.redis.holder(Mode::Write, &self.name).await.unwrap()
    }

    pub(crate) async fn readers(&self) -> Vec<Holder> {
        self.redis.holders(Mode::Read, &self.name).await.unwrap()
    }

    pub(crate) async fn write(&self, id: &LeaseId) {
        assert_eq!(left(self.ask_to_write(id, None).await.unwrap()), None, "{id}");
    }

    pub(crate) async fn read(&self, id: &LeaseId) {
        assert_eq!(left(self.ask_to_read(id, Some(position(0))).await.unwrap()), None, "{id}");
    }

    /// Asks to write, and does not get it.
    pub(crate) async fn wait_to_write(&self, id: &LeaseId, steps: u32) -> Duration {
        left(self.ask_to_write(id, Some(position(steps))).await.unwrap()).expect("somebody has it")
    }

    pub(crate) async fn wait_to_read(&self, id: &LeaseId, steps: u32) -> Duration {
        left(self.ask_to_read(id, Some(position(steps))).await.unwrap()).expect("somebody has it")
    }

    pub(crate) async fn release_write(&self, id: &LeaseId) -> ReleaseOutcome {
        self.redis.release(Mode::Write, &self.name, id, None).await.unwrap()
    }

    pub(crate) async fn release_read(&self, id: &LeaseId) -> bool {
        did_read(self.redis.release(Mode::Read, &self.name, id, None).await.unwrap())
    }

    /// The lock's fields and values, in order.
    pub(crate) async fn fields(&mut self) -> Vec<String> {
        let all: Vec<(String, String)> = self.run("HGETALL {}").await;
        let mut all: Vec<_> = all.into_iter().map(|(field, value)| format!("{field}={value}")).collect();
        all.sort();
        all
    }

    pub(crate) async fn assert_fields(&mut self, fields: &[String]) {
        assert_eq!(self.fields().await, fields);
    }

    /// That a key, with `{}` for the lock's name, lasts for so long.
    pub(crate) async fn assert_lasts(&mut self, key: &str, left: Duration) {
        let lasts: i64 = self.run(&format!("PTTL {key}")).await;
        let lasts = Duration::from_millis(lasts.try_into().unwrap_or(0));
        let is_so = lasts <= left && lasts > left.saturating_sub(left.min(Duration::from_secs(30)) / 2);
        assert!(is_so, "{key}: {lasts:?} instead of {left:?}");
    }

    /// All keys of the lock, but its counter of tokens. None of them stays for ever.
    pub(crate) async fn keys(&mut self) -> Vec<String> {
        let keys = self.lasting_keys().await;
        for (key, lasts) in &keys {
            // What is not there has ended meanwhile.
            assert_ne!(*lasts, -1, "{key} stays for ever");
        }
        keys.into_iter().map(|(key, _)| key).collect()
    }

    /// Nothing is left.
    pub(crate) async fn end(mut self) {
        assert_eq!(self.keys().await, [""; 0]);
    }
}

/// The key of a reader's lease, of its hold with that number.
pub(crate) fn lease_key(reader: &str, hold: u32) -> String {
    format!("{{{{}}}}:{reader}:rwlock_timeout:{hold}")
}

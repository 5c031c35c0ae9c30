//! A fair lock on a real server, its backend, and a bystander that sees each key and message.

use std::ops::{Deref, DerefMut};
use std::time::Duration;

use latchwork::LeaseId;
use latchwork::backend::{AcquireOutcome, Backend as _, Mode, NextWaiter, QueuePosition, ReleaseOutcome};
use latchwork::redis::Error;

use super::super::stage::{self, Kind, Message};
pub(crate) use super::super::stage::{KEPT, LEASE, id, position};
use latchwork_conformance::commands::Commands as _;

pub(crate) const NOT_WANTED: AcquireOutcome = AcquireOutcome::Acquired { last_token: 0 };

pub(crate) fn next(id: &LeaseId, steps: u32, tokens: u64) -> NextWaiter {
    NextWaiter { id: id.clone(), lease: LEASE, tokens, position: position(steps) }
}

/// A fair lock, as the scripts know it.
static FAIR: Kind = Kind { mode: Mode::Fair, channel: "redisson_lock__channel", grants: "fair_grant" };

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
        Self(stage::Stage::set(&FAIR, name).await)
    }

    /// What was published since the last look: to which client, without what all channels of the lock begin
    /// with, and what.
    pub(crate) async fn heard(&mut self) -> Vec<(String, String)> {
        let plain = format!("{}:{{{}}}", FAIR.channel, self.name);
        let told = |message| match message {
            Message::Grant { client, said } => (client, said),
            Message::ToAll(said) => ("plain".to_owned(), said),
            Message::Other { channel, said } => (channel.replace(&plain, "plain"), said),
        };
        self.published().await.into_iter().map(told).collect()
    }

    /// That these ids were granted the lock, and nothing else was published.
    pub(crate) async fn assert_granted(&mut self, ids: &[&LeaseId]) {
        let expected: Vec<_> =
            ids.iter().map(|id| (id.client_id(), format!("granted:{}", id.number()))).collect();
        assert_eq!(self.heard().await, expected);
    }

    /// That the lock's channel was told so often that it is free, and no grant was sent.
    pub(crate) async fn assert_freed(&mut self, times: usize) {
        assert_eq!(self.heard().await, vec![("plain".to_owned(), "0".to_owned()); times]);
    }

    pub(crate) async fn ask(
        &self,
        id: &LeaseId,
        position: Option<QueuePosition>,
    ) -> Result<AcquireOutcome, Error> {
        self.redis.acquire(Mode::Fair, &self.name, &self.redis.request(id, LEASE).position(position)).await
    }

    /// Asks for a lock that is free for the id.
    pub(crate) async fn take(&self, id: &LeaseId) {
        assert_eq!(self.ask(id, Some(position(0))).await.unwrap(), NOT_WANTED, "{id}");
    }

    /// Asks for a lock that the id does not get, and says how long another has it.
    pub(crate) async fn wait(&self, id: &LeaseId, steps: u32) -> Duration {
        match self.ask(id, Some(position(steps))).await.unwrap() {
            AcquireOutcome::Held { left } => left,
            outcome => panic!("{id}: {outcome:?}"),
        }
    }

    pub(crate) async fn release(&self, id: &LeaseId, next: Option<&NextWaiter>) -> ReleaseOutcome {
        self.redis.release(Mode::Fair, &self.name, id, next).await.unwrap()
    }

    /// The holder, as of a fair lock.
    pub(crate) async fn holder(&mut self) -> Option<LeaseId> {
        let fields: Vec<String> = self.run("HKEYS {}").await;
        if fields.is_empty() {
            return None;
        }
        assert_eq!(fields.len(), 2, "{fields:?}");
        assert_eq!(self.run::<String>("HGET {} mode").await, "fair");
        Some(fields.iter().find(|field| *field != "mode").unwrap().parse().unwrap())
    }

    pub(crate) async fn assert_holder(&mut self, id: &LeaseId, left: Duration) {
        assert_eq!(self.holder().await.as_ref(), Some(id));
        let lasts = Duration::from_millis(self.run("PTTL {}").await);
        assert!(lasts <= left && lasts > left - Duration::from_secs(30), "{lasts:?} instead of {left:?}");
    }

    /// The ids in the queue, in order.
    pub(crate) async fn queue(&mut self) -> Vec<LeaseId> {
        let ids: Vec<String> = self.run("ZRANGE {}:latchwork:{{}}:fair_queue 0 -1").await;
        let mut kept: Vec<String> = self.run("ZRANGE {}:latchwork:{{}}:fair_kept 0 -1").await;
        let mut sorted = ids.clone();
        sorted.sort();
        kept.sort();
        assert_eq!(sorted, kept, "each position is kept until some time");
        ids.iter().map(|id| id.parse().unwrap()).collect()
    }

    pub(crate) async fn assert_queue(&mut self, ids: &[&LeaseId]) {
        assert_eq!(self.queue().await.iter().collect::<Vec<_>>(), ids);
    }

    /// The id's position is over.
    pub(crate) async fn end_position(&mut self, id: &LeaseId) {
        let () = self.run(&format!("ZADD {{}}:latchwork:{{{{}}}}:fair_kept XX 1 {id}")).await;
    }

    /// All keys of the lock, but its counter of tokens. None of them stays for ever.
    pub(crate) async fn keys(&mut self) -> Vec<String> {
        let keys = self.lasting_keys().await;
        for (key, lasts) in &keys {
            assert!(*lasts > 0, "{key} stays for ever");
        }
        keys.into_iter().map(|(key, _)| key).collect()
    }

    /// Nothing is left.
    pub(crate) async fn end(mut self) {
        assert_eq!(self.keys().await, [""; 0]);
    }
}

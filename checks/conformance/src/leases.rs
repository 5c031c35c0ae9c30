//! The tables of [`Backend`](latchwork::backend::Backend), for the modes that one id holds at a time.

use std::time::Duration;

use latchwork::backend::{AcquireOutcome, LeaseKey, LockName, QueuePosition, ReleaseOutcome};
use latchwork::subscription::{Subscription, Transport};
use latchwork::{LeaseId, LockClient};

use crate::commands::{is_acquired, left, token};
use crate::lock::{fresh_name, lease_ids};
use crate::probe::Probe;
use crate::store::Subject;
use crate::tasks::{eventually, now, since, soon};

const LEASE: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(200);

/// A name, and the commands on the name in the property's mode.
struct Stage<'s> {
    of: &'s Subject<'s>,
    client: LockClient,
    name: LockName,
}

impl<'s> Stage<'s> {
    async fn new(of: &'s Subject<'s>) -> Self {
        let client = of.client().await;
        Self { of, client, name: LockName::new(&fresh_name()).unwrap() }
    }

    fn backend(&self) -> &dyn Probe {
        self.of.backend(&self.client)
    }

    async fn acquire(&self, id: &LeaseId, lease: Duration, tokens: u64) -> AcquireOutcome {
        let request = self.backend().request(id, lease).tokens(tokens);
        self.backend().acquire(self.of.mode, &self.name, &request).await.unwrap()
    }

    async fn takes(&self, id: &LeaseId) -> bool {
        is_acquired(self.acquire(id, LEASE, 0).await)
    }

    async fn release(&self, id: &LeaseId) -> ReleaseOutcome {
        self.backend().release(self.of.mode, &self.name, id, None).await.unwrap()
    }

    async fn roll_back(&self, id: &LeaseId) -> ReleaseOutcome {
        self.backend().roll_back(self.of.mode, &self.name, id).await.unwrap()
    }

    async fn force_release(&self) -> bool {
        self.backend().force_release(self.of.mode, &self.name).await.unwrap()
    }

    async fn renew(&self, ids: &[&LeaseId], lease: Duration) -> Vec<bool> {
        let keys: Vec<_> = ids.iter().map(|id| self.key(id)).collect();
        self.backend().renew(self.of.mode, &keys, lease).await.unwrap()
    }

    fn key(&self, id: &LeaseId) -> LeaseKey {
        LeaseKey { name: self.name.clone(), id: id.clone() }
    }

    async fn lease(&self) -> Option<(LeaseId, Duration)> {
        let holder = self.backend().holder(self.of.mode, &self.name).await.unwrap()?;
        Some((holder.id.expect("the store knows which id it leased the name to"), holder.left))
    }

    async fn holder(&self) -> Option<LeaseId> {
        self.lease().await.map(|(id, _)| id)
    }

    async fn waits(&self, id: &LeaseId, seconds: u64) -> AcquireOutcome {
        let request = self.backend().request(id, LEASE).position(waited(seconds));
        self.backend().acquire(self.of.mode, &self.name, &request).await.unwrap()
    }

    /// Subscribes to the channel on which the client of `id` is granted the lock.
    async fn can_tell(&self, id: &LeaseId) -> Subscription<dyn Transport> {
        self.subscribe(&self.backend().channels(self.of.mode, &self.name, &id.client_id()).own).await
    }

    /// Hears each release, on the channel of all clients if there is one.
    async fn hears_releases(&self) -> Subscription<dyn Transport> {
        let channels = self.backend().channels(self.of.mode, &self.name, self.client.id());
        self.subscribe(&channels.common.unwrap_or(channels.own)).await
    }

    async fn subscribe(&self, channel: &str) -> Subscription<dyn Transport> {
        let listens = self.client.registry().subscribe(channel);
        soon("the confirmation of the subscription", listens.subscribed()).await.unwrap();
        listens
    }
}

/// The position of an id after a wait of some seconds, kept for far longer than a property takes.
fn waited(seconds: u64) -> QueuePosition {
    QueuePosition { waited: Duration::from_secs(seconds), kept: Duration::from_secs(20) }
}

fn released(outcome: ReleaseOutcome) -> bool {
    matches!(outcome, ReleaseOutcome::Released { .. })
}

pub(crate) async fn name_is_leased_to_one_id(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [one, other] = lease_ids();
    assert_eq!(stage.holder().await, None, "expected no holder of a name without commands");
    assert!(stage.takes(&one).await, "expected a lease of a free name, and the store refused it");
    for _ in 0..4 {
        let asked = stage.acquire(&other, LEASE, 0).await;
        let left = left(asked).expect("a held name was leased to another id as well");
        assert!(left <= LEASE, "expected a lease of {LEASE:?} at most, and the store says {left:?}");
        assert_eq!(stage.holder().await, Some(one.clone()));
    }
    assert!(released(stage.release(&one).await));
    assert!(stage.takes(&other).await, "expected a lease of a released name, and the store refused it");
    assert_eq!(stage.holder().await, Some(other.clone()));
    stage.release(&other).await;
}

pub(crate) async fn release_by_another_id_finds_nothing(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [one, stranger] = lease_ids();
    assert_eq!(
        stage.release(&stranger).await,
        ReleaseOutcome::NotHeld,
        "expected NotHeld for the release of a free name"
    );
    assert_eq!(
        stage.roll_back(&stranger).await,
        ReleaseOutcome::NotHeld,
        "expected NotHeld for the rollback of a free name"
    );
    assert!(stage.takes(&one).await);
    assert_eq!(
        stage.release(&stranger).await,
        ReleaseOutcome::NotHeld,
        "expected NotHeld for the release of another id's lease"
    );
    assert_eq!(
        stage.roll_back(&stranger).await,
        ReleaseOutcome::NotHeld,
        "expected NotHeld for the rollback of another id's lease"
    );
    assert_eq!(
        stage.holder().await,
        Some(one.clone()),
        "expected another id's release to leave the lease alone"
    );
    assert!(!stage.takes(&stranger).await);
    assert!(released(stage.release(&one).await));
    assert_eq!(
        stage.release(&one).await,
        ReleaseOutcome::NotHeld,
        "expected NotHeld for the second release of a name"
    );
}

pub(crate) async fn renewal_answers_for_each_lease_in_order(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let other =
        Stage { of: store, client: stage.client.clone(), name: LockName::new(&fresh_name()).unwrap() };
    let [one, two, stranger] = lease_ids();
    assert!(stage.takes(&one).await && other.takes(&two).await);
    let keys = [stage.key(&stranger), stage.key(&one), other.key(&one), other.key(&two)];
    let renewed = stage.backend().renew(store.mode, &keys, LEASE * 2).await.unwrap();
    assert_eq!(
        renewed,
        [false, true, false, true],
        "expected renewals of the holder's leases only, in the order: stranger, holder, stranger, holder"
    );
    for (stage, id) in [(&stage, &one), (&other, &two)] {
        let (holder, left) = stage.lease().await.expect("the name is leased");
        assert!(holder == *id && left > LEASE, "{holder} for {left:?}");
        stage.release(id).await;
        assert_eq!(stage.renew(&[id], LEASE).await, [false], "expected no renewal of a free name");
        assert_eq!(stage.holder().await, None);
    }
}

pub(crate) async fn no_command_but_a_release_shortens_a_lease(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [one] = lease_ids();
    assert!(stage.takes(&one).await);
    assert!(
        is_acquired(stage.acquire(&one, SHORT, 0).await),
        "expected the holder's id to acquire again, and the store refused it"
    );
    assert_eq!(stage.renew(&[&one], SHORT).await, [true]);
    let (_, left) = stage.lease().await.expect("the name is leased");
    assert!(left > LEASE / 2, "expected a lease of {LEASE:?}, and it ends in {left:?}");
    assert!(is_acquired(stage.acquire(&one, LEASE * 2, 0).await));
    let (_, left) = stage.lease().await.expect("the name is leased");
    assert!(left > LEASE, "expected a lease of {:?} anew, and it ends in {left:?}", LEASE * 2);
    stage.release(&one).await;
}

pub(crate) async fn lease_that_is_over_is_free_for_others(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [one, other] = lease_ids();
    let begun = now();
    assert!(is_acquired(stage.acquire(&one, SHORT, 0).await));
    eventually("the end of the lease", async || stage.holder().await.is_none()).await;
    assert!(since(begun) >= SHORT, "expected a lease of {SHORT:?}, and it was over after {:?}", since(begun));
    assert!(
        stage.takes(&other).await,
        "expected a lease of a name with an expired lease, and the store refused it"
    );
    assert_eq!(stage.renew(&[&one], LEASE).await, [false], "expected no renewal of an expired lease");
    assert_eq!(stage.release(&one).await, ReleaseOutcome::NotHeld);
    assert_eq!(stage.holder().await, Some(other.clone()));
    stage.release(&other).await;
}

pub(crate) async fn tokens_are_reserved_in_blocks_that_rise(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let ids: [LeaseId; 2] = lease_ids();
    let mut last = 0;
    for (round, tokens) in [1, 5, 1, 8].into_iter().enumerate() {
        let id = &ids[round % 2];
        let next = token(stage.acquire(id, LEASE, tokens).await);
        assert!(next >= last + tokens, "expected {tokens} tokens after {last}, and they end with {next}");
        let again = token(stage.acquire(id, LEASE, 1).await);
        assert!(again > next, "expected a token after {next}, and got {again}");
        last = again;
        stage.release(id).await;
    }
}

pub(crate) async fn forced_release_frees_whichever_id_has_the_name(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [one, other] = lease_ids();
    assert!(!stage.force_release().await, "expected a forced release of a free name to report no holder");
    assert!(stage.takes(&one).await);
    assert!(stage.force_release().await, "expected a forced release of a held name to report a holder");
    assert_eq!(stage.holder().await, None);
    assert_eq!(stage.renew(&[&one], LEASE).await, [false]);
    assert!(stage.takes(&other).await);
    assert_eq!(stage.release(&one).await, ReleaseOutcome::NotHeld);
    stage.release(&other).await;
}

pub(crate) async fn release_is_published_to_subscribers(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [one] = lease_ids();
    for forced in [false, true] {
        assert!(stage.takes(&one).await);
        let listens = stage.hears_releases().await;
        match forced {
            true => assert!(stage.force_release().await),
            false => assert!(released(stage.release(&one).await)),
        }
        let said = if forced { "the message of a forced release" } else { "the message of a release" };
        soon(said, listens.wait()).await.consume();
    }
}

pub(crate) async fn release_calls_the_client_that_has_waited_longest(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    if !stage.backend().calls_waiters() {
        return;
    }
    let [holder] = lease_ids();
    let of_client = |number: u8| format!("0b1a3a5e-4bd2-4b4b-9f0e-2a8f5b0f7f0{number}:1").parse::<LeaseId>();
    let [first, second] = [1, 2].map(|number| of_client(number).unwrap());
    assert!(stage.takes(&holder).await);
    let called = [stage.can_tell(&first).await, stage.can_tell(&second).await];
    for (id, seconds) in [(&second, 5), (&first, 7)] {
        assert!(!is_acquired(stage.waits(id, seconds).await));
    }
    assert!(released(stage.release(&holder).await));
    soon("the call of the first", called[0].wait()).await.consume();
    assert!(called[1].try_wait().is_none(), "expected one woken client, and the release woke both");
    // The first leaves without a question.
    assert_eq!(stage.roll_back(&first).await, ReleaseOutcome::NotHeld);
    soon("the call of the second", called[1].wait()).await.consume();
    assert!(
        is_acquired(stage.waits(&second, 5).await),
        "expected the woken client to acquire the free lock, and the store refused it"
    );
    assert!(released(stage.release(&second).await));
}

pub(crate) async fn attempt_without_a_position_does_not_queue(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [holder, asks] = lease_ids();
    assert!(stage.takes(&holder).await);
    let _told = stage.can_tell(&asks).await;
    assert!(!stage.takes(&asks).await);
    assert!(released(stage.release(&holder).await));
    assert_eq!(stage.holder().await, None, "expected no grant for an id without a position");
}

pub(crate) async fn queue_is_ordered_by_how_long_each_has_waited(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [holder, first, second, third, newcomer] = lease_ids();
    assert!(stage.takes(&holder).await);
    let told = stage.can_tell(&first).await;
    for (id, seconds) in [(&second, 5), (&first, 7), (&third, 3)] {
        assert!(!is_acquired(stage.waits(id, seconds).await));
    }
    assert!(
        !is_acquired(stage.waits(&first, 0).await),
        "expected the first waiter to keep its position behind the holder"
    );
    let mut holds = holder;
    for id in [first, second, third] {
        assert!(released(stage.release(&holds).await));
        assert_eq!(
            stage.holder().await,
            Some(id.clone()),
            "expected the holder's lease after the release of {holds} of its holds"
        );
        soon("the message of the grant", told.wait()).await.consume();
        assert!(
            !stage.takes(&newcomer).await,
            "expected no lock for a newcomer beside a grant to another id"
        );
        assert!(
            is_acquired(stage.waits(&id, 0).await),
            "expected the granted id to acquire, and the store refused it"
        );
        holds = id;
    }
    assert!(released(stage.release(&holds).await));
    assert_eq!(stage.holder().await, None);
}

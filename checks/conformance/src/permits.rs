//! Semaphores: the sentences of [`Backend`](latchwork::backend::Backend) by single commands, and the promises
//! of [`NamedSemaphore`](latchwork::NamedSemaphore) by clients.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use latchwork::backend::{
    AcquireOutcome, AcquireRequest, Failure, LeaseKey, LockName, Mode, Permits, QueuePosition, ReleaseOutcome,
};
use latchwork::subscription::{Subscription, Transport};
use latchwork::{Lease, LeaseId, LockClient, LockOptions, LossReason};

use crate::commands::{RELEASED, is_acquired, left};
use crate::lock::fresh_name;
use crate::probe::Probe;
use crate::store::Subject;
use crate::tasks::{eventually, now, since, sleep, soon, spawn, yield_now};

const LEASE: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(200);
/// The store may end leases in steps.
const STEP: Duration = Duration::from_millis(100);

/// A name, and the commands on the name.
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

    fn request(&self, id: &LeaseId, count: u32, capacity: u32) -> AcquireRequest {
        self.backend().request(id, LEASE).permits(Permits { count, capacity })
    }

    async fn send(&self, request: &AcquireRequest) -> AcquireOutcome {
        self.backend().acquire(Mode::Permits, &self.name, request).await.unwrap()
    }

    async fn takes(&self, id: &LeaseId, count: u32, capacity: u32) -> bool {
        is_acquired(self.send(&self.request(id, count, capacity)).await)
    }

    /// Queues the id, after a wait of some seconds, with a position for far longer than a property takes.
    async fn waits(&self, id: &LeaseId, count: u32, capacity: u32, seconds: u64) -> Option<Duration> {
        let position = QueuePosition { waited: Duration::from_secs(seconds), kept: Duration::from_secs(20) };
        left(self.send(&self.request(id, count, capacity).position(position)).await)
    }

    async fn release(&self, id: &LeaseId) -> ReleaseOutcome {
        self.backend().release(Mode::Permits, &self.name, id, None).await.unwrap()
    }

    async fn renew(&self, ids: &[&LeaseId], lease: Duration) -> Vec<bool> {
        let key = |id: &&LeaseId| LeaseKey { name: self.name.clone(), id: (*id).clone() };
        let keys: Vec<_> = ids.iter().map(key).collect();
        self.backend().renew(Mode::Permits, &keys, lease).await.unwrap()
    }

    /// The numbers of the ids that hold permits, and their permits, by number.
    async fn held(&self) -> Vec<(u64, u32)> {
        let holders = self.backend().holders(Mode::Permits, &self.name).await.unwrap();
        let mut held: Vec<_> = holders
            .into_iter()
            .map(|holder| {
                assert_eq!(holder.mode, Some(Mode::Permits));
                (holder.id.expect("the store knows the id").number(), holder.permits)
            })
            .collect();
        held.sort_unstable();
        held
    }

    /// Subscribes to the channel on which the client of `id` is granted permits.
    async fn can_tell(&self, id: &LeaseId) -> Subscription<dyn Transport> {
        let channel = self.backend().channels(Mode::Permits, &self.name, &id.client_id()).own;
        let listens = self.client.registry().subscribe(&channel);
        soon("the confirmation of the subscription", listens.subscribed()).await.unwrap();
        listens
    }

    async fn hears_no_more(&self, id: &LeaseId, listens: Subscription<dyn Transport>) {
        let channel = self.backend().channels(Mode::Permits, &self.name, &id.client_id()).own;
        drop(listens);
        eventually("the end of the subscription", async || self.of.subscribers(&channel).await == 0).await;
    }

    fn grants(&self) -> u64 {
        self.client.registry().stats().grant_messages
    }
}

fn ids<const N: usize>() -> [LeaseId; N] {
    std::array::from_fn(|number| {
        format!("8743c9c0-0795-4907-87fd-6c719a6b4586:{}", number + 1).parse().unwrap()
    })
}

pub(crate) async fn permits_are_granted_up_to_the_capacity(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [one, two, three, four] = ids();
    assert!(stage.held().await.is_empty());
    assert!(stage.takes(&one, 2, 4).await && stage.takes(&two, 1, 4).await);
    assert!(!stage.takes(&three, 2, 4).await, "expected a refusal of two permits, as one is free");
    assert_eq!(stage.held().await, [(1, 2), (2, 1)]);
    assert!(stage.takes(&three, 1, 4).await);
    for _ in 0..3 {
        let asked = left(stage.send(&stage.request(&four, 1, 4)).await);
        assert!(
            asked.is_some_and(|left| left <= LEASE + STEP),
            "expected a refusal, and the store says {asked:?}"
        );
    }
    assert_eq!(stage.release(&one).await, RELEASED);
    assert!(stage.takes(&four, 2, 4).await, "expected the released permits");
    assert_eq!(stage.held().await, [(2, 1), (3, 1), (4, 2)]);
    for id in [&two, &three, &four] {
        assert_eq!(stage.release(id).await, RELEASED);
    }
    assert!(stage.held().await.is_empty());
}

pub(crate) async fn commands_on_permits_that_run_twice_mean_the_same(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [one, other, stranger] = ids();
    for _ in 0..2 {
        assert!(stage.takes(&one, 2, 3).await);
    }
    assert_eq!(stage.held().await, [(1, 2)]);
    assert!(stage.takes(&other, 1, 3).await, "expected the second command to take no further permits");
    let short = stage.backend().request(&one, SHORT).permits(Permits { count: 2, capacity: 3 });
    assert!(is_acquired(stage.send(&short).await));
    sleep(SHORT * 2).await;
    assert_eq!(stage.renew(&[&one, &stranger, &other], SHORT).await, [true, false, true]);
    assert_eq!(stage.release(&stranger).await, ReleaseOutcome::NotHeld);
    assert_eq!(stage.held().await, [(1, 2), (2, 1)]);
    for expected in [RELEASED, ReleaseOutcome::NotHeld] {
        assert_eq!(stage.release(&one).await, expected);
    }
    let rolled_back = stage.backend().roll_back(Mode::Permits, &stage.name, &one).await.unwrap();
    assert_eq!((rolled_back, stage.held().await), (ReleaseOutcome::NotHeld, vec![(2, 1)]));
    stage.release(&other).await;
}

pub(crate) async fn each_request_brings_its_own_capacity(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [one, two, three] = ids();
    assert!(stage.takes(&one, 1, 2).await);
    assert!(!stage.takes(&two, 1, 1).await, "expected a refusal, as one permit is in use and one is allowed");
    assert!(stage.takes(&two, 1, 2).await && stage.takes(&three, 1, 3).await);
    stage.release(&one).await;
    assert!(!stage.takes(&one, 1, 2).await, "expected a refusal, as two permits are in use");
    stage.release(&two).await;
    stage.release(&three).await;
}

pub(crate) async fn permits_go_to_the_first_of_the_queue_that_fits(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [holder, first, second, third, newcomer] = ids();
    let _listens = stage.can_tell(&holder).await;
    assert!(stage.takes(&holder, 2, 3).await);
    assert!(stage.waits(&first, 3, 3, 20).await.is_some_and(|left| left <= LEASE + STEP));
    // One permit is free, but the first of the queue wants three. The second asks after the third.
    assert!(stage.waits(&third, 1, 3, 0).await.is_some());
    assert!(stage.waits(&second, 3, 3, 10).await.is_some());
    assert!(!stage.takes(&newcomer, 1, 3).await, "expected no permit for a newcomer before the waiters");
    assert_eq!(stage.held().await, [(1, 2)], "expected no permit before the first of the queue");
    let before = stage.grants();
    assert_eq!(stage.release(&holder).await, RELEASED);
    eventually("one grant", async || stage.grants() == before + 1).await;
    assert_eq!(stage.held().await, [(2, 3)]);
    assert_eq!(stage.release(&first).await, RELEASED);
    eventually("the grant of the second", async || stage.grants() == before + 2).await;
    assert_eq!(stage.held().await, [(3, 3)]);
    assert_eq!(stage.release(&second).await, RELEASED);
    eventually("the grant of the third", async || stage.grants() == before + 3).await;
    assert!(stage.takes(&newcomer, 2, 3).await);
    assert_eq!(stage.held().await, [(4, 1), (5, 2)]);
    stage.release(&third).await;
    stage.release(&newcomer).await;
}

pub(crate) async fn one_release_serves_as_many_as_fit(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let all = ids::<102>();
    let [holder, waiters @ .., last] = &all;
    let _listens = stage.can_tell(holder).await;
    assert!(stage.takes(holder, 100, 100).await);
    for (at, id) in waiters.iter().enumerate() {
        assert!(stage.waits(id, 1, 100, 1000 - at as u64).await.is_some());
    }
    assert!(stage.waits(last, 1, 100, 0).await.is_some());
    let before = stage.grants();
    assert_eq!(stage.release(holder).await, RELEASED);
    eventually("a grant for each permit", async || stage.grants() == before + 100).await;
    assert_eq!(stage.held().await.len(), 100);
    assert_eq!(stage.release(&waiters[0]).await, RELEASED);
    eventually("the grant of the last one", async || stage.grants() == before + 101).await;
    for id in &all {
        stage.release(id).await;
    }
    assert!(stage.held().await.is_empty());
}

pub(crate) async fn waiter_for_permits_leaves_the_queue(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [holder, many, few] = ids();
    let _listens = stage.can_tell(&holder).await;
    assert!(stage.takes(&holder, 1, 2).await);
    assert!(stage.waits(&many, 2, 2, 20).await.is_some() && stage.waits(&few, 1, 2, 10).await.is_some());
    let before = stage.grants();
    assert_eq!(stage.release(&many).await, ReleaseOutcome::NotHeld);
    eventually("the grant behind the waiter", async || stage.grants() == before + 1).await;
    assert_eq!(stage.held().await, [(1, 1), (3, 1)]);
    // A request without a position leaves nothing in the queue.
    assert!(!stage.takes(&many, 2, 2).await);
    stage.release(&holder).await;
    stage.release(&few).await;
    assert!(stage.held().await.is_empty());
}

pub(crate) async fn waiter_for_permits_that_listens_no_more_is_passed_over(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [holder, next] = ids();
    let away: LeaseId = "0b1a3a5e-4bd2-4b4b-9f0e-2a8f5b0f7f11:9".parse().unwrap();
    let _listens = stage.can_tell(&holder).await;
    let listens = stage.can_tell(&away).await;
    assert!(stage.takes(&holder, 1, 1).await);
    assert!(stage.waits(&away, 1, 1, 20).await.is_some() && stage.waits(&next, 1, 1, 10).await.is_some());
    stage.hears_no_more(&away, listens).await;
    if store.store.probe()(&stage.client).grants_suffice() {
        stage.release(&holder).await;
        eventually("the grant of the one that listens", async || stage.held().await == [(next.number(), 1)])
            .await;
    }
    for id in [&holder, &next, &away] {
        stage.release(id).await;
    }
}

pub(crate) async fn each_lease_of_permits_ends_by_itself(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [short, long, waits] = ids();
    let lease = Duration::from_secs(1);
    let permits = Permits { count: 1, capacity: 2 };
    let begun = now();
    assert!(is_acquired(stage.send(&stage.backend().request(&short, lease).permits(permits)).await));
    assert!(stage.takes(&long, 1, 2).await);
    let asked = stage.waits(&waits, 1, 2, 5).await.expect("both permits are in use");
    assert!(asked <= lease + STEP, "expected a waiter to be told the earliest end, and not {asked:?}");
    sleep(SHORT).await;
    assert_eq!(stage.renew(&[&long], LEASE).await, [true]);
    eventually("the end of the lease", async || stage.waits(&waits, 1, 2, 5).await.is_none()).await;
    let took = since(begun);
    assert!(took >= lease, "expected the lease to last for {lease:?}, and it ended after {took:?}");
    assert_eq!(stage.renew(&[&short, &long, &waits], LEASE).await, [false, true, true]);
    assert_eq!(stage.release(&short).await, ReleaseOutcome::NotHeld);
    assert_eq!(stage.held().await, [(2, 1), (3, 1)]);
    stage.release(&long).await;
    stage.release(&waits).await;
}

pub(crate) async fn forced_release_of_permits_serves_the_waiters(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let force = async || stage.backend().force_release(Mode::Permits, &stage.name).await.unwrap();
    assert!(!force().await);
    let [one, other, first, second, third] = ids();
    let _listens = stage.can_tell(&one).await;
    assert!(stage.takes(&one, 1, 3).await && stage.takes(&other, 2, 3).await);
    for (id, permits, seconds) in [(&first, 2, 9), (&second, 1, 6), (&third, 3, 3)] {
        assert!(stage.waits(id, permits, 3, seconds).await.is_some());
    }
    assert!(force().await);
    eventually("grants to all that fit", async || stage.held().await == [(3, 2), (4, 1)]).await;
    assert_eq!(stage.renew(&[&one, &other], LEASE).await, [false, false]);
    for id in [&third, &first, &second] {
        stage.release(id).await;
    }
}

pub(crate) async fn semaphores_and_locks_refuse_each_other(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [one, other] = ids();
    let probe = stage.backend();
    assert!(stage.takes(&one, 1, 1).await);
    let asked = probe.acquire(Mode::Plain, &stage.name, &probe.request(&other, LEASE)).await;
    match asked {
        Err(error) => assert!(matches!(error.failure, Failure::OtherKind(_)), "{error:?}"),
        Ok(outcome) => panic!("expected a refusal by a name that is a semaphore, and got {outcome:?}"),
    }
    assert_eq!(stage.held().await, [(1, 1)]);
    stage.release(&one).await;
    assert!(is_acquired(
        probe.acquire(Mode::Plain, &stage.name, &probe.request(&other, LEASE)).await.unwrap()
    ));
    let asked = probe.acquire(Mode::Permits, &stage.name, &stage.request(&one, 1, 1)).await;
    match asked {
        Err(error) => assert!(matches!(error.failure, Failure::OtherKind(_)), "{error:?}"),
        Ok(outcome) => panic!("expected a refusal by a name that is a lock, and got {outcome:?}"),
    }
    assert_eq!(stage.release(&one).await, ReleaseOutcome::NotHeld);
    probe.release(Mode::Plain, &stage.name, &other, None).await.unwrap();
}

pub(crate) async fn tasks_of_two_clients_never_exceed_the_capacity(store: &Subject<'_>) {
    const CAPACITY: u32 = 4;
    let name = fresh_name();
    let clients = [store.client().await, store.client().await];
    let (used, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let mut tasks = Vec::new();
    for task in 0..12_u32 {
        let jobs = clients[task as usize % 2].get_semaphore(&name, CAPACITY).unwrap();
        let (used, most) = (Rc::clone(&used), Rc::clone(&most));
        tasks.push(spawn(async move {
            for round in 0..5 {
                let permits = (task + round) % CAPACITY + 1;
                let guard = jobs.acquire_many(permits).await.unwrap();
                used.set(used.get() + permits);
                most.set(most.get().max(used.get()));
                yield_now().await;
                assert!(guard.is_held() && guard.permits() == permits);
                used.set(used.get() - permits);
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        soon("each task's permits", task).await.unwrap();
    }
    assert!(most.get() <= CAPACITY, "expected {CAPACITY} permits at most, and {} were in use", most.get());
    assert_eq!(clients[0].get_semaphore(&name, CAPACITY).unwrap().usage().await.unwrap().used, 0);
}

pub(crate) async fn waiter_for_permits_is_woken_by_a_release(store: &Subject<'_>) {
    let name = fresh_name();
    let clients = [store.client().await, store.client().await];
    let [ours, theirs] = clients.each_ref().map(|client| client.get_semaphore(&name, 2).unwrap());
    let held = ours.acquire_many(2).await.unwrap();
    let waiter = spawn(async move { theirs.acquire().await.unwrap() });
    eventually("the waiter's question", async || {
        clients[1].registry().stats().interest > 0 && clients[1].waiting().len() == 1
    })
    .await;
    sleep(SHORT).await;
    let begun = now();
    held.release().await.unwrap();
    let permit = soon("the released permit", waiter).await.unwrap();
    assert!(since(begun) < Duration::from_secs(3), "expected a message, and no timer");
    drop(permit);
}

pub(crate) async fn lost_permits_are_noticed(store: &Subject<'_>) {
    let name = fresh_name();
    let options = LockOptions::default().watchdog_timeout(Duration::from_millis(1500));
    let client = store.client_with(&options).await;
    let jobs = client.get_semaphore(&name, 1).unwrap();
    let permit = jobs.acquire().await.unwrap();
    assert_eq!(permit.lost_timeout(Duration::from_secs(3)).await, None, "expected renewals by the watchdog");
    permit.ensure_held().await.unwrap();
    let other = store.client().await;
    assert!(other.get_semaphore(&name, 1).unwrap().force_release().await.unwrap());
    assert_eq!(soon("the loss", permit.lost()).await, LossReason::Gone);
    let short = jobs.try_acquire_for(Duration::ZERO, Lease::For(SHORT)).await.unwrap().expect("it is free");
    assert_eq!(soon("the end of the lease", short.lost()).await, LossReason::Expired);
    drop(soon("free permits", other.get_semaphore(&name, 1).unwrap().acquire()).await.unwrap());
}

//! The read-write locks of [`Backend`](latchwork::backend::Backend)'s page, sentence by sentence.

use std::time::Duration;

use latchwork::backend::{
    AcquireOutcome, AcquireRequest, Failure, LockName, Mode, NextWaiter, QueuePosition, ReleaseOutcome,
};
use latchwork::subscription::{Subscription, Transport};
use latchwork::{Holder, LeaseId, LockClient, LockKind};

use crate::commands::{self, RELEASED, did_read, is_acquired, keys, token};
use crate::lock::fresh_name;
use crate::probe::{Failed, Probe};
use crate::store::Subject;
use crate::tasks::{eventually, now, since, sleep, soon};

const LEASE: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(300);
/// Pause after a writer's end: an arrival in the same millisecond is no newcomer to the store.
const APART: Duration = Duration::from_millis(10);
/// How long no writer gets in after readers were let in.
const TURN: Duration = Duration::from_secs(1);

fn ids<const N: usize>() -> [LeaseId; N] {
    std::array::from_fn(|number| format!("8743c9c0-0795-4907-87fd-6c719a6b45{number:02}:1").parse().unwrap())
}

/// The position of an id after a wait of some seconds, kept for far longer than a test takes.
fn waited(seconds: u64) -> Option<QueuePosition> {
    Some(QueuePosition { waited: Duration::from_secs(seconds), kept: Duration::from_secs(20) })
}

const NO_WAIT: Option<QueuePosition> = None;

#[derive(Clone, Copy, Debug)]
enum Said {
    Unlock,
    ReadUnlock,
    /// Either of the two: a store need not know the waiting readers when it frees the lock for a writer.
    Free,
    Granted,
}

/// The writers, and the readers.
type Holders = (Vec<Holder>, Vec<Holder>);
const FREE: Holders = (Vec::new(), Vec::new());

/// A lock, and a subscription to all its messages.
struct Stage<'s> {
    of: &'s Subject<'s>,
    client: LockClient,
    name: LockName,
    _listens: Subscription<dyn Transport>,
}

impl<'s> Stage<'s> {
    async fn new(store: &'s Subject<'s>) -> Self {
        let client = store.client().await;
        let name = LockName::new(&fresh_name()).unwrap();
        let listens =
            client.registry().subscribe(&store.backend(&client).channels(Mode::Read, &name, client.id()).own);
        soon("the subscription", listens.subscribed()).await.unwrap();
        Self { of: store, client, name, _listens: listens }
    }

    fn store(&self) -> &dyn Probe {
        self.of.backend(&self.client)
    }

    /// Subscribes to the channel on which the client of `id` is granted the lock.
    async fn listens(&self, id: &LeaseId) -> Subscription<dyn Transport> {
        let channel = self.store().channels(Mode::Write, &self.name, &id.client_id()).own;
        let listens = self.client.registry().subscribe(&channel);
        soon("the subscription", listens.subscribed()).await.unwrap();
        listens
    }

    async fn deaf(&self, id: &LeaseId, listens: Subscription<dyn Transport>) {
        drop(listens);
        let channel = self.store().channels(Mode::Write, &self.name, &id.client_id()).own;
        eventually("the end of the subscription", async || self.of.subscribers(&channel).await == 0).await;
    }

    async fn says<T>(&self, said: Said, act: impl Future<Output = T>) -> T {
        let count = || {
            let stats = self.client.registry().stats();
            match said {
                Said::Unlock => stats.unlock_messages,
                Said::ReadUnlock => stats.read_unlock_messages,
                Said::Free => stats.unlock_messages + stats.read_unlock_messages,
                Said::Granted => stats.grant_messages,
            }
        };
        let before = count();
        let done = act.await;
        eventually(&format!("{said:?}"), async || count() > before).await;
        done
    }

    async fn acquire(&self, mode: Mode, request: &AcquireRequest) -> AcquireOutcome {
        self.store().acquire(mode, &self.name, request).await.unwrap()
    }

    async fn try_write(
        &self,
        id: &LeaseId,
        lease: Duration,
        position: Option<QueuePosition>,
    ) -> AcquireOutcome {
        self.acquire(Mode::Write, &self.store().request(id, lease).position(position)).await
    }

    async fn try_read(
        &self,
        id: &LeaseId,
        lease: Duration,
        position: Option<QueuePosition>,
    ) -> AcquireOutcome {
        self.acquire(Mode::Read, &self.store().request(id, lease).position(position)).await
    }

    async fn read_fenced(&self, id: &LeaseId, under: Option<&LeaseId>) -> u64 {
        token(
            self.acquire(Mode::Read, &self.store().request(id, LEASE).tokens(1).under(under.cloned())).await,
        )
    }

    async fn writes(&self, id: &LeaseId, position: Option<QueuePosition>) -> bool {
        is_acquired(self.try_write(id, LEASE, position).await)
    }

    async fn reads(&self, id: &LeaseId, position: Option<QueuePosition>) -> bool {
        is_acquired(self.try_read(id, LEASE, position).await)
    }

    async fn reads_under(&self, id: &LeaseId, writer: &LeaseId) -> bool {
        let request = self.store().request(id, LEASE).under(writer.clone());
        is_acquired(self.acquire(Mode::Read, &request).await)
    }

    async fn release_write(&self, id: &LeaseId) -> ReleaseOutcome {
        self.store().release(Mode::Write, &self.name, id, None).await.unwrap()
    }

    async fn release_read(&self, id: &LeaseId) -> bool {
        did_read(self.store().release(Mode::Read, &self.name, id, None).await.unwrap())
    }

    async fn roll_back(&self, mode: Mode, id: &LeaseId) -> ReleaseOutcome {
        self.store().roll_back(mode, &self.name, id).await.unwrap()
    }

    async fn holders(&self) -> Holders {
        let holders = async |mode| self.store().holders(mode, &self.name).await.unwrap();
        (holders(Mode::Write).await, holders(Mode::Read).await)
    }

    async fn lease_to_write(&self) -> Option<Holder> {
        self.store().holder(Mode::Write, &self.name).await.unwrap()
    }

    async fn writer(&self) -> Option<LeaseId> {
        self.lease_to_write().await.map(|writer| writer.id.unwrap())
    }

    async fn readers(&self) -> Vec<LeaseId> {
        let readers = self.holders().await.1.into_iter();
        let mut readers: Vec<_> = readers.map(|reader| reader.id.unwrap()).collect();
        readers.sort_by_key(LeaseId::to_string);
        readers
    }

    async fn renew_writes(&self, lease: Duration, ids: &[&LeaseId]) -> Vec<bool> {
        self.store().renew(Mode::Write, &keys(&self.name, ids), lease).await.unwrap()
    }

    async fn renew_reads(&self, lease: Duration, ids: &[&LeaseId]) -> Vec<bool> {
        self.store().renew(Mode::Read, &keys(&self.name, ids), lease).await.unwrap()
    }

    /// Asserts that the lock is free, and that all of its waiters can be notified.
    async fn is_free_for(&self, newcomer: &LeaseId) {
        assert_eq!(self.holders().await, FREE);
        assert!(
            self.writes(newcomer, NO_WAIT).await,
            "expected a free lock for the newcomer, and the store refused it"
        );
        self.release_write(newcomer).await;
    }
}

fn left(outcome: AcquireOutcome) -> Duration {
    commands::left(outcome).unwrap_or_else(|| panic!("{outcome:?}"))
}

pub(crate) async fn free_lock_is_nobodys(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [one, other] = ids();
    for _ in 0..2 {
        assert_eq!(stage.holders().await, FREE);
        assert_eq!(stage.release_write(&one).await, ReleaseOutcome::NotHeld);
        let rolled_back = stage.roll_back(Mode::Write, &one).await;
        assert_eq!(rolled_back, ReleaseOutcome::NotHeld);
        assert!(!stage.release_read(&one).await);
        assert_eq!(stage.roll_back(Mode::Read, &one).await, ReleaseOutcome::NotHeld);
        assert_eq!(stage.renew_writes(LEASE, &[&one, &other]).await, [false; 2]);
        assert_eq!(stage.renew_reads(LEASE, &[&one, &other]).await, [false; 2]);
        assert!(!stage.store().force_release(Mode::Write, &stage.name).await.unwrap());
    }
    stage.is_free_for(&other).await;
}

pub(crate) async fn writers_commands_that_run_twice_mean_the_same(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [one, other, reader] = ids();
    let ends = async || stage.lease_to_write().await.unwrap().left;
    for _ in 0..2 {
        assert_eq!(stage.try_write(&one, LEASE, NO_WAIT).await, AcquireOutcome::Acquired { last_token: 0 });
        assert_eq!(stage.writer().await, Some(one.clone()));
        assert!(left(stage.try_write(&other, LEASE, NO_WAIT).await) <= LEASE);
        assert!(left(stage.try_read(&reader, LEASE, None).await) <= LEASE);
        assert_eq!(stage.release_write(&other).await, ReleaseOutcome::NotHeld);
        assert!(
            !stage.release_read(&one).await,
            "expected NotHeld for the release of an id without a read lease"
        );
        assert!(stage.readers().await.is_empty());
    }
    for _ in 0..2 {
        assert_eq!(stage.renew_writes(LEASE * 2, &[&other, &one]).await, [false, true]);
        assert_eq!(stage.renew_reads(LEASE * 3, &[&one]).await, [false]);
        assert!(ends().await > LEASE && ends().await <= LEASE * 2);
    }
    // Neither a renewal nor another acquisition to write shortens a lease: both may arrive late.
    assert_eq!(stage.renew_writes(LEASE / 3, &[&one]).await, [true]);
    assert!(is_acquired(stage.try_write(&one, LEASE / 3, NO_WAIT).await));
    assert!(ends().await > LEASE);
    assert!(is_acquired(stage.try_write(&one, LEASE * 3, NO_WAIT).await));
    assert!(ends().await > LEASE * 2);
    assert_eq!(stage.release_write(&one).await, RELEASED);
    for _ in 0..2 {
        assert_eq!(stage.release_write(&one).await, ReleaseOutcome::NotHeld);
        assert_eq!(stage.renew_writes(LEASE, &[&one]).await, [false]);
    }
    assert!(stage.writes(&other, NO_WAIT).await);
    let rolled_back = stage.roll_back(Mode::Write, &other).await;
    assert_eq!(rolled_back, RELEASED);
    stage.is_free_for(&reader).await;
}

pub(crate) async fn readers_commands_that_run_twice_mean_the_same(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [one, other, writer] = ids();
    let ends = async || stage.holders().await.1[0].left;
    for _ in 0..2 {
        let read = stage.try_read(&one, LEASE, None).await;
        assert_eq!(read, AcquireOutcome::Acquired { last_token: 0 });
        assert_eq!(stage.readers().await, std::slice::from_ref(&one));
        assert_eq!(stage.writer().await, None);
        assert!(left(stage.try_write(&writer, LEASE, NO_WAIT).await) <= LEASE);
        assert!(!stage.release_read(&other).await);
        assert_eq!(
            stage.release_write(&one).await,
            ReleaseOutcome::NotHeld,
            "expected NotHeld for the release of an id without the write lease"
        );
    }
    for _ in 0..2 {
        assert_eq!(stage.renew_reads(LEASE * 2, &[&other, &one]).await, [false, true]);
        assert_eq!(stage.renew_writes(LEASE * 3, &[&one]).await, [false]);
        assert!(ends().await > LEASE && ends().await <= LEASE * 2);
    }
    // Neither a renewal nor another acquisition to read shortens a lease.
    assert_eq!(stage.renew_reads(LEASE / 3, &[&one]).await, [true]);
    assert!(is_acquired(stage.try_read(&one, LEASE / 3, None).await));
    assert!(ends().await > LEASE);
    assert!(stage.release_read(&one).await);
    for _ in 0..2 {
        assert!(!stage.release_read(&one).await);
        assert_eq!(stage.renew_reads(LEASE, &[&one]).await, [false]);
    }
    assert!(stage.reads(&other, None).await);
    assert_eq!(stage.roll_back(Mode::Read, &other).await, RELEASED);
    stage.is_free_for(&writer).await;
}

pub(crate) async fn readers_share_the_lock_and_keep_writers_out(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [one, other, third, writer] = ids();
    for reader in [&one, &other, &third] {
        assert!(stage.reads(reader, None).await);
        assert!(!stage.writes(&writer, NO_WAIT).await);
    }
    assert_eq!(stage.readers().await, [one.clone(), other.clone(), third.clone()]);
    for reader in [&other, &third, &one] {
        assert!(!stage.writes(&writer, NO_WAIT).await);
        assert!(stage.release_read(reader).await);
    }
    assert!(stage.writes(&writer, NO_WAIT).await);
    for reader in [&one, &other] {
        assert!(!stage.reads(reader, None).await);
    }
    assert_eq!(stage.release_write(&writer).await, RELEASED);
    stage.is_free_for(&one).await;
}

pub(crate) async fn each_lease_ends_by_itself(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [short, long, writer] = ids();
    let begun = now();
    assert!(is_acquired(stage.try_read(&short, SHORT, None).await));
    assert!(stage.reads(&long, None).await);
    // Commands on other leases do not extend the short lease.
    eventually("the end of a reader's lease", async || {
        assert_eq!(stage.renew_reads(LEASE, &[&long]).await, [true]);
        stage.readers().await == [long.clone()]
    })
    .await;
    assert!(since(begun) >= SHORT);
    assert_eq!(stage.renew_reads(LEASE, &[&short, &long]).await, [false, true]);
    assert!(!stage.release_read(&short).await);
    assert!(!stage.writes(&writer, NO_WAIT).await, "expected no writer beside the remaining reader");
    assert!(stage.release_read(&long).await);
    assert!(is_acquired(stage.try_read(&short, SHORT, None).await));
    eventually("the end of the last reader's lease", async || {
        is_acquired(stage.try_write(&writer, SHORT, NO_WAIT).await)
    })
    .await;
    eventually("the end of the writer's lease", async || stage.reads(&long, None).await).await;
    assert_eq!(stage.renew_writes(LEASE, &[&writer]).await, [false]);
    assert_eq!(stage.release_write(&writer).await, ReleaseOutcome::NotHeld);
    assert_eq!(stage.readers().await, std::slice::from_ref(&long));
    assert!(stage.release_read(&long).await);
    stage.is_free_for(&short).await;
}

pub(crate) async fn writer_reads_beside_itself(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [writer, own, other, newcomer] = ids();
    assert!(stage.writes(&writer, NO_WAIT).await);
    assert!(
        !stage.reads(&own, None).await,
        "expected no read lease beside a writer for a request that does not name it"
    );
    assert!(
        !stage.reads_under(&other, &newcomer).await,
        "expected no read lease for a request that names another id as the writer"
    );
    for _ in 0..2 {
        assert!(stage.reads_under(&own, &writer).await);
        assert_eq!((stage.writer().await, stage.readers().await), (Some(writer.clone()), vec![own.clone()]));
        assert!(!stage.reads(&other, None).await && !stage.writes(&newcomer, NO_WAIT).await);
    }
    // A waiting writer is no obstacle.
    let _told = stage.listens(&newcomer).await;
    assert!(!stage.writes(&newcomer, waited(0)).await);
    assert!(stage.release_read(&own).await);
    assert!(stage.reads_under(&own, &writer).await);
    assert!(stage.release_read(&own).await);
    assert!(!stage.reads(&other, None).await, "expected no reader of another owner beside the writer");
    assert_eq!(stage.renew_writes(LEASE, &[&writer]).await, [true]);
    stage.says(Said::Granted, stage.release_write(&writer)).await;
    assert_eq!(stage.writer().await, Some(newcomer.clone()));
    stage.release_write(&newcomer).await;
    stage.is_free_for(&own).await;
}

pub(crate) async fn reads_go_on_when_their_writer_leaves(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [writer, own, waits, next] = ids();
    assert!(stage.writes(&writer, NO_WAIT).await);
    assert!(stage.reads_under(&own, &writer).await);
    let _told = stage.listens(&next).await;
    assert!(!stage.writes(&next, waited(0)).await);
    assert!(!stage.reads(&waits, waited(0)).await);
    let released = stage.says(Said::ReadUnlock, stage.release_write(&writer)).await;
    assert_eq!(released, RELEASED);
    assert_eq!((stage.writer().await, stage.readers().await), (None, vec![own.clone()]));
    assert!(!stage.writes(&next, waited(0)).await);
    assert!(stage.reads(&waits, waited(1)).await, "expected the admitted reader to acquire in its turn");
    assert!(stage.release_read(&own).await);
    assert!(!stage.writes(&next, waited(0)).await, "expected no writer beside the remaining reader");
    stage.says(Said::Granted, stage.release_read(&waits)).await;
    assert_eq!(stage.writer().await, Some(next.clone()));
    stage.release_write(&next).await;
    stage.is_free_for(&own).await;
}

pub(crate) async fn reads_go_on_when_the_lease_of_their_writer_ends(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [writer, own, reader, newcomer] = ids();
    assert!(is_acquired(stage.try_write(&writer, SHORT, NO_WAIT).await));
    assert!(stage.reads_under(&own, &writer).await);
    let refused = left(stage.try_read(&reader, LEASE, None).await);
    assert!(
        refused <= TURN,
        "expected the writer's next attempt within {TURN:?}, and it is due in {refused:?}"
    );
    eventually("the end of the writer's lease", async || stage.writer().await.is_none()).await;
    assert_eq!(stage.readers().await, std::slice::from_ref(&own));
    assert_eq!(stage.renew_writes(LEASE, &[&writer]).await, [false]);
    assert!(!stage.writes(&newcomer, NO_WAIT).await);
    assert!(stage.reads(&reader, None).await);
    assert!(stage.release_read(&own).await && stage.release_read(&reader).await);
    stage.is_free_for(&own).await;
}

pub(crate) async fn token_rises_with_each_change_between_reading_and_writing(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [one, other, writer] = ids();
    let write = async |tokens| {
        token(stage.acquire(Mode::Write, &stage.store().request(&writer, LEASE).tokens(tokens)).await)
    };
    let first = stage.read_fenced(&one, None).await;
    assert!(first > 0, "expected a token greater than 0, which stands for none");
    assert_eq!(
        stage.read_fenced(&other, None).await,
        first,
        "expected one token for all readers of a generation"
    );
    assert_eq!(token(stage.try_read(&other, LEASE, None).await), 0);
    assert!(stage.release_read(&one).await && stage.release_read(&other).await);
    let mut last = first;
    for tokens in [1, 10, 1] {
        let written = write(tokens).await;
        assert!(
            written - (tokens - 1) > last,
            "expected {tokens} tokens after {last}, and they end with {written}"
        );
        last = stage.read_fenced(&one, Some(&writer)).await;
        assert!(
            last > written,
            "expected a reader's token greater than the writer's, so that late writes are refused"
        );
        stage.release_write(&writer).await;
        for reader in [&other, &one, &other] {
            assert_eq!(stage.read_fenced(reader, None).await, last);
        }
        assert!(stage.release_read(&one).await && stage.release_read(&other).await);
    }
    // No reader comes in between.
    let (one_write, other_write) = (write(1).await, write(1).await);
    assert!(last < one_write && one_write < other_write);
    assert_eq!(write(0).await, 0);
}

pub(crate) async fn reader_waits_behind_writers_that_came_before_it(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [reader, writer, newcomer, older] = ids();
    assert!(stage.reads(&reader, None).await);
    let _told = stage.listens(&writer).await;
    assert!(!stage.writes(&writer, waited(5)).await);
    for position in [None, waited(0), waited(4)] {
        assert!(!stage.reads(&newcomer, position).await, "{position:?}");
    }
    assert!(
        stage.reads(&older, waited(6)).await,
        "expected a read lease for a reader that waits longer than the writer"
    );
    assert!(stage.reads(&reader, None).await, "expected the present reader to acquire again");
    assert!(stage.release_read(&older).await);
    // Nor does an older reader that comes after the last reader left.
    stage.says(Said::Granted, stage.release_read(&reader)).await;
    assert_eq!(stage.writer().await, Some(writer.clone()));
    assert!(!stage.reads(&older, waited(60)).await, "expected no reader beside the granted writer");
    stage.release_read(&older).await;
    stage.release_read(&newcomer).await;
    stage.release_write(&writer).await;
    stage.is_free_for(&reader).await;
}

pub(crate) async fn position_of_a_writer_ends_by_itself(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [reader, writer, newcomer] = ids();
    assert!(stage.reads(&reader, None).await);
    let _told = stage.listens(&writer).await;
    let position = QueuePosition { kept: SHORT, ..waited(0).unwrap() };
    assert!(!stage.writes(&writer, Some(position)).await);
    let begun = now();
    eventually("the end of its position", async || stage.reads(&newcomer, None).await).await;
    assert!(since(begun) > SHORT / 2);
    assert!(stage.release_read(&newcomer).await && stage.release_read(&reader).await);
    assert_eq!(stage.writer().await, None, "expected no grant to a writer whose position has expired");
    // Kept for as long as the last attempt says.
    assert!(stage.reads(&reader, None).await);
    assert!(!stage.writes(&writer, Some(position)).await);
    assert!(!stage.writes(&writer, waited(0)).await);
    sleep(SHORT * 2).await;
    assert!(!stage.reads(&newcomer, None).await);
    stage.says(Said::Granted, stage.release_read(&reader)).await;
    // A granted lease ends when the position would have ended.
    assert!(stage.lease_to_write().await.unwrap().left <= waited(0).unwrap().kept);
    stage.release_write(&writer).await;
    stage.is_free_for(&newcomer).await;
}

pub(crate) async fn readers_that_wait_are_let_in_when_a_writer_leaves(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [writer, next, one, other, newcomer] = ids();
    assert!(stage.writes(&writer, NO_WAIT).await);
    let _told = stage.listens(&next).await;
    assert!(!stage.writes(&next, waited(5)).await);
    for reader in [&one, &other] {
        assert!(!stage.reads(reader, waited(1)).await);
    }
    let released = stage.says(Said::ReadUnlock, stage.release_write(&writer)).await;
    assert_eq!((released, stage.writer().await), (RELEASED, None));
    sleep(APART).await;
    assert!(left(stage.try_write(&next, LEASE, waited(5)).await) <= TURN);
    for reader in [&one, &other] {
        assert!(stage.reads(reader, waited(2)).await, "expected the admitted reader to acquire in its turn");
    }
    assert!(!stage.reads(&newcomer, None).await && !stage.reads(&newcomer, waited(0)).await);
    assert!(!stage.writes(&next, waited(5)).await);
    assert!(stage.release_read(&one).await);
    stage.says(Said::Granted, stage.release_read(&other)).await;
    assert_eq!(stage.writer().await, Some(next.clone()));
    stage.says(Said::ReadUnlock, stage.release_write(&next)).await;
    assert!(stage.reads(&newcomer, waited(0)).await);
    assert!(stage.release_read(&newcomer).await);
    stage.is_free_for(&one).await;
}

/// Queues two writers, then readers; the first writer leaves. Returns the second's grant channel.
async fn let_in(
    stage: &Stage<'_>,
    writer: &LeaseId,
    next: &LeaseId,
    readers: &[&LeaseId],
) -> Subscription<dyn Transport> {
    assert!(stage.writes(writer, NO_WAIT).await);
    let told = stage.listens(next).await;
    assert!(!stage.writes(next, waited(5)).await);
    for reader in readers {
        assert!(!stage.reads(reader, waited(1)).await);
    }
    stage.says(Said::ReadUnlock, stage.release_write(writer)).await;
    sleep(APART).await;
    told
}

pub(crate) async fn turn_of_readers_lasts_until_all_that_were_let_in_have_come(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [writer, next, quick, slow] = ids();
    let begun = now();
    let _told = let_in(&stage, &writer, &next, &[&quick, &slow]).await;
    assert!(stage.reads(&quick, waited(1)).await);
    assert!(stage.release_read(&quick).await);
    let is_in = stage.reads(&slow, waited(1)).await;
    assert!(
        is_in || since(begun) >= TURN,
        "expected the slow reader's turn to last, and a quick reader ended it"
    );
    stage.says(Said::Granted, stage.release_read(&slow)).await;
    assert_eq!(stage.writer().await, Some(next.clone()));
    stage.release_write(&next).await;
    stage.is_free_for(&slow).await;
}

pub(crate) async fn turn_of_readers_ends_with_the_last_that_gives_up(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [writer, next, one, other] = ids();
    let told = let_in(&stage, &writer, &next, &[&one, &other]).await;
    assert!(!stage.release_read(&one).await);
    stage.says(Said::Granted, stage.roll_back(Mode::Read, &other)).await;
    assert_eq!(stage.writer().await, Some(next.clone()));
    soon("the message", told.wait()).await.consume();
    stage.release_write(&next).await;
    stage.is_free_for(&one).await;
}

pub(crate) async fn turn_of_readers_ends_after_a_second(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [writer, next, reader, newcomer] = ids();
    for by_reader in [false, true] {
        let begun = now();
        let _told = let_in(&stage, &writer, &next, &[&reader]).await;
        // The reader that was let in does not come.
        let granted = stage.says(
            Said::Granted,
            eventually("the end of the second", async || {
                // Another id asks: a reader that has to wait behind the writer, or another writer.
                let asked = match by_reader {
                    true => stage.try_read(&newcomer, LEASE, None).await,
                    false => stage.try_write(&newcomer, LEASE, NO_WAIT).await,
                };
                let _ = left(asked);
                stage.writer().await == Some(next.clone())
            }),
        );
        granted.await;
        assert!(since(begun) >= TURN, "after {:?}", since(begun));
        stage.release_read(&reader).await;
        stage.release_write(&next).await;
    }
    stage.is_free_for(&newcomer).await;
}

pub(crate) async fn writers_are_granted_the_lock_in_order(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [holder, first, second, third, newcomer] = ids();
    assert!(stage.writes(&holder, NO_WAIT).await);
    // The order is by time waited, not by time of the request.
    let mut told = Vec::new();
    for (writer, seconds) in [(&second, 5), (&first, 7), (&third, 3)] {
        told.push(stage.listens(writer).await);
        assert!(!stage.writes(writer, waited(seconds)).await);
    }
    // A repeated request does not move a position: the time of the request does not count.
    assert!(!stage.writes(&first, waited(0)).await);
    let mut holds = holder;
    for (writer, told) in [&first, &second, &third].into_iter().zip([&told[1], &told[0], &told[2]]) {
        assert_eq!(stage.says(Said::Granted, stage.release_write(&holds)).await, RELEASED);
        assert_eq!(stage.writer().await, Some(writer.clone()));
        soon("the message", told.wait()).await.consume();
        assert!(!stage.writes(&newcomer, NO_WAIT).await);
        assert!(stage.writes(writer, waited(0)).await, "expected the granted writer to acquire");
        holds = writer.clone();
    }
    stage.release_write(&holds).await;
    stage.is_free_for(&newcomer).await;
}

pub(crate) async fn writer_without_a_position_does_not_wait(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [holder, asks, gives_up, reader] = ids();
    assert!(stage.writes(&holder, NO_WAIT).await);
    let _told = (stage.listens(&asks).await, stage.listens(&gives_up).await);
    assert!(!stage.writes(&asks, NO_WAIT).await);
    assert!(!stage.writes(&gives_up, waited(5)).await);
    for _ in 0..2 {
        assert_eq!(stage.release_write(&gives_up).await, ReleaseOutcome::NotHeld);
    }
    assert!(!stage.reads(&reader, None).await);
    stage.says(Said::Free, stage.release_write(&holder)).await;
    assert_eq!(stage.holders().await, FREE);
    stage.is_free_for(&reader).await;
}

pub(crate) async fn releasing_clients_next_writer_gets_the_lock_or_a_position(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [holder, next, other, reader] = ids();
    let named = |id: &LeaseId, seconds| NextWaiter {
        id: id.clone(),
        lease: LEASE / 2,
        tokens: 3,
        position: waited(seconds).unwrap(),
    };
    let release = async |id: &LeaseId, next: &NextWaiter| {
        stage.store().release(Mode::Write, &stage.name, id, Some(next)).await.unwrap()
    };
    let is_granted = |outcome| match outcome {
        ReleaseOutcome::GrantedToNext { last_token } => last_token,
        other => panic!("{other:?}"),
    };
    assert!(stage.writes(&holder, NO_WAIT).await);
    let first = is_granted(release(&holder, &named(&next, 0)).await);
    assert_eq!(stage.writer().await, Some(next.clone()));
    let left = stage.lease_to_write().await.unwrap().left;
    assert!(left <= LEASE / 2 && left > LEASE / 4, "{left:?}");
    // A waiter of another client that came later, then an earlier one.
    let told = (stage.listens(&other).await, stage.listens(&next).await);
    assert!(!stage.writes(&other, waited(2)).await);
    let second = is_granted(release(&next, &named(&holder, 5)).await);
    assert!(second >= first + 3);
    assert_eq!(stage.says(Said::Granted, release(&holder, &named(&next, 1))).await, RELEASED);
    assert_eq!(stage.writer().await, Some(other.clone()));
    stage.says(Said::Granted, stage.release_write(&other)).await;
    assert_eq!(
        stage.writer().await,
        Some(next.clone()),
        "expected the released writer's next waiter in the queue, and granted the lock"
    );
    assert!(!stage.reads(&reader, waited(0)).await);
    let released = stage.says(Said::ReadUnlock, release(&next, &named(&holder, 9))).await;
    assert_eq!(released, RELEASED);
    assert!(stage.reads(&reader, waited(0)).await);
    let _told = (told, stage.listens(&holder).await);
    stage.says(Said::Granted, stage.release_read(&reader)).await;
    assert_eq!(stage.writer().await, Some(holder.clone()));
    // A release by an owner that did not have the lock changes nothing in the queue.
    assert_eq!(release(&other, &named(&next, 9)).await, ReleaseOutcome::NotHeld);
    stage.says(Said::Free, stage.release_write(&holder)).await;
    stage.is_free_for(&reader).await;
}

pub(crate) async fn writer_that_listens_no_more_is_passed_over(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [holder, deaf, second, reader] = ids();
    assert!(stage.reads(&holder, None).await);
    let listens = stage.listens(&deaf).await;
    assert!(!stage.writes(&deaf, waited(7)).await);
    assert!(!stage.reads(&reader, None).await);
    stage.deaf(&deaf, listens).await;
    assert!(
        stage.reads(&reader, None).await,
        "expected a read lease beside a waiting writer that does not listen"
    );
    assert!(stage.release_read(&reader).await);
    let _told = stage.listens(&second).await;
    assert!(!stage.writes(&second, waited(5)).await);
    stage.says(Said::Granted, stage.release_read(&holder)).await;
    assert_eq!(stage.writer().await, Some(second.clone()));
    // The deaf writer has kept its position.
    let _listens = stage.listens(&deaf).await;
    stage.says(Said::Granted, stage.release_write(&second)).await;
    assert_eq!(stage.writer().await, Some(deaf.clone()));
    stage.release_write(&deaf).await;
    stage.is_free_for(&reader).await;
}

pub(crate) async fn lock_granted_to_no_waiter_is_free_and_announced_by_a_message(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [holder, writer, reader] = ids();
    assert!(stage.writes(&holder, NO_WAIT).await);
    stage.says(Said::Free, stage.release_write(&holder)).await;
    assert!(stage.reads(&holder, None).await && stage.reads(&reader, None).await);
    assert!(stage.release_read(&reader).await);
    stage.says(Said::Unlock, stage.release_read(&holder)).await;
    // A waiting writer that cannot be notified.
    for by_reader in [false, true] {
        let listens = stage.listens(&writer).await;
        assert!(if by_reader {
            stage.reads(&holder, None).await
        } else {
            stage.writes(&holder, NO_WAIT).await
        });
        assert!(!stage.writes(&writer, waited(5)).await);
        if by_reader {
            assert!(!stage.reads(&reader, waited(0)).await);
        }
        stage.deaf(&writer, listens).await;
        match by_reader {
            true => _ = stage.says(Said::ReadUnlock, stage.release_read(&holder)).await,
            false => _ = stage.says(Said::Free, stage.release_write(&holder)).await,
        }
        assert_eq!(stage.holders().await, FREE);
        let _listens = stage.listens(&writer).await;
        assert!(stage.writes(&writer, waited(6)).await, "expected the writer to acquire by its own attempt");
        stage.release_read(&reader).await;
        stage.release_write(&writer).await;
    }
    stage.is_free_for(&reader).await;
}

pub(crate) async fn writer_that_leaves_the_queue_tells_readers(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [holder, first, last, reader] = ids();
    assert!(stage.reads(&holder, None).await);
    let _told = (stage.listens(&first).await, stage.listens(&last).await);
    for writer in [&first, &last] {
        assert!(!stage.writes(writer, waited(5)).await);
    }
    assert!(!stage.reads(&reader, waited(0)).await);
    assert_eq!(stage.release_write(&first).await, ReleaseOutcome::NotHeld);
    assert!(!stage.reads(&reader, waited(0)).await);
    stage.says(Said::ReadUnlock, stage.roll_back(Mode::Write, &last)).await;
    assert!(stage.reads(&reader, waited(0)).await);
    assert!(stage.release_read(&reader).await && stage.release_read(&holder).await);
    stage.is_free_for(&reader).await;
}

pub(crate) async fn kinds_are_not_mixed(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let (backend, name) = (stage.store(), &stage.name);
    let [holder, stranger] = ids();
    let held_as = |error: Failed| match error.failure {
        Failure::OtherKind(kind) => kind,
        other => panic!("{other:?}: {error:?}"),
    };
    let acquire = async |mode, id, position| {
        let request = backend.request(id, LEASE).position(position);
        backend.acquire(mode, name, &request).await
    };
    for (mode, kind) in [(Mode::Plain, LockKind::Plain), (Mode::Fair, LockKind::Fair)] {
        assert!(is_acquired(acquire(mode, &holder, None).await.unwrap()));
        for id in [&holder, &stranger] {
            for position in [None, waited(0)] {
                assert_eq!(held_as(acquire(Mode::Write, id, position).await.unwrap_err()), kind);
                let read = backend.request(id, LEASE).position(position).under(holder.clone());
                assert_eq!(held_as(backend.acquire(Mode::Read, name, &read).await.unwrap_err()), kind);
            }
            assert_eq!(stage.release_write(id).await, ReleaseOutcome::NotHeld);
            assert!(!stage.release_read(id).await);
            assert_eq!(stage.renew_writes(LEASE * 2, &[id]).await, [false]);
            assert_eq!(stage.renew_reads(LEASE * 2, &[id]).await, [false]);
        }
        for side in [Mode::Write, Mode::Read] {
            assert_eq!(held_as(backend.force_release(side, name).await.unwrap_err()), kind);
            assert_eq!(held_as(backend.holders(side, name).await.unwrap_err()), kind);
        }
        let there = backend.holder(mode, name).await.unwrap().expect("the name is leased");
        assert!(there.id == Some(holder.clone()) && there.left <= LEASE);
        assert!(backend.force_release(mode, name).await.unwrap());
    }
    for held in ["written", "read", "kept"] {
        let kept = now();
        match held {
            "read" => assert!(stage.reads(&holder, None).await),
            _ => assert!(stage.writes(&holder, NO_WAIT).await),
        }
        if held == "kept" {
            assert!(!stage.reads(&stranger, waited(0)).await);
            stage.release_write(&holder).await;
        }
        let mut answers = Vec::new();
        for id in [&holder, &stranger] {
            for (mode, position) in [(Mode::Plain, None), (Mode::Fair, None), (Mode::Fair, waited(0))] {
                answers.push(acquire(mode, id, position).await.map(drop));
            }
            for mode in [Mode::Plain, Mode::Fair] {
                let released = backend.release(mode, name, id, None).await.unwrap();
                assert_eq!(released, ReleaseOutcome::NotHeld);
                assert_eq!(backend.renew(mode, &keys(name, &[id]), LEASE * 2).await.unwrap(), [false]);
            }
        }
        let mut there = Vec::new();
        for mode in [Mode::Plain, Mode::Fair] {
            answers.push(backend.force_release(mode, name).await.map(drop));
            there.push(backend.holder(mode, name).await.unwrap());
        }
        if held == "kept" && since(kept) >= TURN {
            continue;
        }
        for answer in answers {
            assert_eq!(held_as(answer.unwrap_err()), LockKind::ReadWrite, "{held}");
        }
        for there in there {
            assert!(
                there.is_some_and(|there| there.left <= LEASE),
                "expected the name to be held, whichever id asks"
            );
        }
        match held {
            "written" => assert_eq!(stage.release_write(&holder).await, RELEASED),
            "read" => assert!(stage.release_read(&holder).await),
            _ => assert!(!stage.release_read(&stranger).await),
        }
    }
    stage.is_free_for(&stranger).await;
    for mode in [Mode::Plain, Mode::Fair] {
        assert!(is_acquired(acquire(mode, &stranger, None).await.unwrap()));
        backend.release(mode, name, &stranger, None).await.unwrap();
        assert!(stage.reads(&holder, None).await && stage.release_read(&holder).await);
    }
    stage.is_free_for(&stranger).await;
}

pub(crate) async fn forced_release_goes_to_the_waiters(store: &Subject<'_>) {
    let stage = Stage::new(store).await;
    let [holder, other, waits] = ids();
    let force = async || stage.store().force_release(Mode::Write, &stage.name).await.unwrap();
    assert!(stage.writes(&holder, NO_WAIT).await && stage.reads_under(&other, &holder).await);
    assert!(stage.says(Said::Free, force()).await);
    assert!(!force().await);
    assert_eq!(stage.holders().await, FREE);
    assert_eq!(stage.renew_writes(LEASE, &[&holder]).await, [false]);
    assert_eq!(stage.renew_reads(LEASE, &[&other]).await, [false]);
    assert!(stage.reads(&holder, None).await && stage.reads(&other, None).await);
    let told = stage.listens(&waits).await;
    assert!(!stage.writes(&waits, waited(1)).await);
    assert!(stage.says(Said::Granted, force()).await);
    assert_eq!((stage.writer().await, stage.readers().await), (Some(waits.clone()), Vec::new()));
    soon("the message", told.wait()).await.consume();
    assert!(!stage.writes(&other, waited(1)).await);
    let _told = stage.listens(&other).await;
    assert!(stage.says(Said::Granted, force()).await);
    assert_eq!(stage.writer().await, Some(other.clone()));
    assert_eq!(stage.release_write(&waits).await, ReleaseOutcome::NotHeld);
    assert!(!stage.reads(&waits, waited(1)).await);
    assert!(stage.says(Said::ReadUnlock, force()).await);
    assert!(stage.reads(&waits, waited(1)).await);
    assert_eq!(stage.release_write(&other).await, ReleaseOutcome::NotHeld);
    assert!(stage.release_read(&waits).await);
    stage.is_free_for(&other).await;
}

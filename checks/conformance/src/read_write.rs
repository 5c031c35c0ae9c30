//! Promises of a read-write lock beyond those of its write side as a [fair lock](crate::fair).

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::future::{join, join_all};
use latchwork::lock::Mode;
use latchwork::{
    Guard, Lease, Lock, LockClient, LockError, LockOptions, LossReason, ReadWriteLock, blocking,
};

use crate::lock::{DropAfter, assert_nothing_left, fresh_name};
use crate::store::Subject;
use crate::tasks::{JoinHandle, eventually, now, on_a_thread, since, sleep, soon, spawn, timeout, yield_now};

/// Shorter than a third of the default watchdog's timeout, and than any lease here: a waiter that needed less
/// time was woken by a message, not by its timer.
const AT_ONCE: Duration = Duration::from_secs(5);
/// How long a store keeps the lock for readers that do not come.
const TURN: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(300);
/// Pause between two checks, or two arrivals: requests take time to the store, which counts in milliseconds.
const APART: Duration = Duration::from_millis(10);

struct One<'s> {
    store: &'s Subject<'s>,
    client: LockClient,
    lock: ReadWriteLock,
}

impl<'s> One<'s> {
    async fn new(store: &'s Subject<'s>) -> Self {
        Self::with(store, &fresh_name(), &LockOptions::default()).await
    }

    async fn several<const N: usize>(store: &'s Subject<'s>) -> [Self; N] {
        Self::several_with(store, &LockOptions::default()).await
    }

    async fn several_with<const N: usize>(store: &'s Subject<'s>, options: &LockOptions) -> [Self; N] {
        let name = fresh_name();
        let mut all = Vec::new();
        for _ in 0..N {
            all.push(Self::with(store, &name, options).await);
        }
        all.try_into().unwrap_or_else(|_| unreachable!("there are as many"))
    }

    async fn with(store: &'s Subject<'s>, name: &str, options: &LockOptions) -> Self {
        let client = store.client_with(options).await;
        let lock = client.get_read_write_lock(name).unwrap();
        Self { store, client, lock }
    }

    fn read(&self) -> Lock {
        self.lock.read().clone()
    }

    fn write(&self) -> Lock {
        self.lock.write().clone()
    }

    async fn reads(&self) -> Guard {
        soon("reading", self.lock.read().lock()).await.unwrap()
    }

    async fn writes(&self) -> Guard {
        soon("writing", self.lock.write().lock()).await.unwrap()
    }

    async fn may_read(&self) -> bool {
        gives_back(self.lock.read().try_lock().await.unwrap()).await
    }

    async fn may_write(&self) -> bool {
        gives_back(self.lock.write().try_lock().await.unwrap()).await
    }

    async fn readers(&self) -> usize {
        self.store.backend(&self.client).holders(Mode::Read, self.lock.name()).await.unwrap().len()
    }

    /// The number of waiters of this client: heads that sleep, and waiters queued behind a head. With a store
    /// in memory, the number for all clients.
    fn waiting(&self) -> usize {
        let (backend, name) = (self.store.backend(&self.client), self.lock.name());
        let heads = [Mode::Read, Mode::Write]
            .map(|mode| backend.channels(mode, name, self.client.id()).own)
            .iter()
            .filter_map(|channel| self.client.registry().join(channel))
            .map(|look| look.waiters())
            .sum::<usize>();
        heads + self.lock.read().waiters() + self.lock.write().waiters()
    }

    /// The number of waiters, once all waiters woken in vain sleep again: a message wakes all of them.
    async fn settled(&self) -> usize {
        let mut before = None;
        soon("quiet", async {
            loop {
                let waiting = self.waiting();
                if before.replace(waiting) == Some(waiting) {
                    return waiting;
                }
                sleep(APART).await;
            }
        })
        .await
    }

    /// Spawns a task that waits through this client; returns when the task sleeps.
    async fn waiter<T: 'static>(&self, wait: impl Future<Output = T> + 'static) -> JoinHandle<T> {
        let before = self.settled().await;
        let polled = Arc::new(AtomicBool::new(false));
        let waiter = spawn({
            let polled = Arc::clone(&polled);
            async move {
                let mut wait = pin!(wait);
                poll_fn(|context| {
                    let outcome = wait.as_mut().poll(context);
                    // Ordering: SeqCst, the easiest to reason about in a test.
                    polled.store(true, Ordering::SeqCst);
                    outcome
                })
                .await
            }
        });
        // Ordering: as above.
        eventually("waiting", async || polled.load(Ordering::SeqCst) && self.settled().await > before).await;
        waiter
    }

    async fn waits_to_read(&self) -> JoinHandle<Guard> {
        let read = self.read();
        self.waiter(async move { read.lock().await.unwrap() }).await
    }

    async fn waits_to_write(&self) -> JoinHandle<Guard> {
        let write = self.write();
        self.waiter(async move { write.lock().await.unwrap() }).await
    }

    async fn assert_nothing_left(&self) {
        for side in [self.read(), self.write()] {
            assert_nothing_left(self.store, &self.client, &side).await;
        }
        // No read lease or departed waiter is left: a newcomer of another client gets in. A rollback may
        // still be in flight, and later commands may overtake it, so the newcomer retries until the store
        // would have ended the turn of a reader that was not rolled back.
        let other = Self::with(self.store, self.lock.name().as_str(), &LockOptions::default()).await;
        let begun = now();
        while !(self.readers().await == 0 && other.may_read().await && other.may_write().await) {
            assert!(
                since(begun) < TURN / 2,
                "expected no trace of a departed reader, and others are kept out"
            );
            sleep(APART).await;
        }
    }
}

async fn gives_back(guard: Option<Guard>) -> bool {
    match guard {
        Some(guard) => {
            guard.unlock().await.unwrap();
            true
        }
        None => false,
    }
}

/// Asserts that the waiter gets its turn now, not by its own timer.
async fn at_once<T>(waiter: JoinHandle<T>) -> T {
    timeout(AT_ONCE, waiter).await.expect("the waiter is notified").unwrap()
}

/// Asserts the same of several waiters, in any order: the store orders commands by how long their waiters
/// have waited, minus the time in transit.
async fn all_at_once<const N: usize>(waiters: [JoinHandle<Guard>; N]) {
    let turns = waiters.map(|waiter| async { at_once(waiter).await.unlock().await.unwrap() });
    join_all(turns).await;
}

pub(crate) async fn many_read_at_once(store: &Subject<'_>) {
    let [one, other] = One::several(store).await;
    let me = one.client.owner();
    let guards = vec![
        one.reads().await,
        one.read().owned_by(&me).lock().await.unwrap(),
        other.reads().await,
        other.read().try_lock().await.unwrap().expect("others read as well"),
        one.read().try_lock_for(SHORT, Lease::Watched).await.unwrap().expect("others read as well"),
        other.read().lock_with_lease(LONG).await.unwrap(),
    ];
    for client in [&one, &other] {
        assert!(!client.may_write().await);
        assert!(client.write().try_lock_for(SHORT, Lease::Watched).await.unwrap().is_none());
    }
    for guard in guards {
        assert!(guard.is_held());
        guard.ensure_held().await.unwrap();
        assert!(!other.may_write().await);
        guard.unlock().await.unwrap();
    }
    assert!(one.may_write().await && other.may_write().await);
    one.assert_nothing_left().await;
    other.assert_nothing_left().await;
}

/// Each attempt would succeed alone; another attempt in flight does not keep a reader out.
pub(crate) async fn readers_that_try_at_once_all_get_in(store: &Subject<'_>) {
    let [one, other] = One::several(store).await;
    let try_together = async || {
        let tries = (0..8).map(|_| {
            let read = one.read();
            async move { soon("the answer", read.try_lock()).await.unwrap() }
        });
        join_all(tries).await
    };
    let readers = try_together().await;
    assert!(readers.iter().all(Option::is_some), "expected all concurrent tries of readers to acquire");
    drop(readers);
    eventually("the end of reading", async || other.readers().await == 0).await;
    let writer = other.writes().await;
    assert!(try_together().await.iter().all(Option::is_none));
    writer.unlock().await.unwrap();
    one.assert_nothing_left().await;
}

/// The owner would wait for itself, even as the first in the queue.
pub(crate) async fn owner_that_waits_to_write_is_told_that_it_reads(store: &Subject<'_>) {
    let [one, other] = One::several(store).await;
    let me = one.client.owner();
    let reader = other.reads().await;
    let waits = one.write().owned_by(&me);
    let waits = one.waiter(async move { waits.lock().await.map(drop) }).await;
    // While a writer waits no other may read, so the owner reads first.
    assert!(!one.may_read().await);
    reader.unlock().await.unwrap();
    at_once(waits).await.unwrap();

    let writer = other.writes().await;
    let reads = one.read().owned_by(&me);
    let reads = one.waiter(async move { reads.lock().await.unwrap() }).await;
    let waits = one.write().owned_by(&me);
    let waits = one.waiter(async move { waits.lock().await.map(drop) }).await;
    writer.unlock().await.unwrap();
    let reads = at_once(reads).await;
    assert!(at_once(waits).await.unwrap_err().is_upgrade());
    reads.unlock().await.unwrap();
    one.assert_nothing_left().await;
    other.assert_nothing_left().await;
}

pub(crate) async fn writer_keeps_all_others_out(store: &Subject<'_>) {
    let [one, other] = One::several(store).await;
    for [writes, others] in [[&one, &other], [&one, &one], [&other, &one]] {
        let guard = writes.writes().await;
        assert!(!others.may_read().await && !others.may_write().await);
        let (reader, writer) = (others.waits_to_read().await, others.waits_to_write().await);
        assert!(!reader.is_finished() && !writer.is_finished());
        guard.unlock().await.unwrap();
        at_once(reader).await.unlock().await.unwrap();
        at_once(writer).await.unlock().await.unwrap();
    }
    one.assert_nothing_left().await;
    other.assert_nothing_left().await;
}

pub(crate) async fn each_side_says_its_holders(store: &Subject<'_>) {
    let [one, other] = One::several(store).await;
    for (has, has_not, mode) in
        [(one.read(), one.write(), Mode::Read), (one.write(), one.read(), Mode::Write)]
    {
        let theirs = other.client.get_read_write_lock(has.name().as_str()).unwrap();
        assert!(!has.is_locked().await.unwrap());
        let guard = has.lock_with_lease(LONG).await.unwrap();
        assert!(has.is_locked().await.unwrap() && !has_not.is_locked().await.unwrap());
        assert!(theirs.read().is_locked().await.unwrap() != theirs.write().is_locked().await.unwrap());
        let left = has.remaining().await.unwrap().unwrap();
        assert!(left > LONG / 2 && left <= LONG, "{left:?}");
        assert_eq!(has_not.remaining().await.unwrap(), None);
        assert!(has.is_held_by(guard.owner()).await.unwrap());
        assert!(!has_not.is_held_by(guard.owner()).await.unwrap());
        let holder = has.holder().await.unwrap().unwrap();
        assert_eq!((&*holder.id.unwrap().client_id(), holder.mode), (one.client.id(), Some(mode)));
        assert_eq!(has_not.holder().await.unwrap(), None);
        assert!(has_not.unlock(guard.owner()).await.unwrap_err().is_not_held());
        guard.unlock().await.unwrap();
    }
    one.assert_nothing_left().await;
}

pub(crate) async fn holder_of_many_that_read_has_the_longest_lease(store: &Subject<'_>) {
    let [one, other] = One::several(store).await;
    for [longer, shorter] in [[&one, &other], [&other, &one]] {
        for [first, second] in [[(longer, 3), (shorter, 1)], [(shorter, 1), (longer, 3)]] {
            let reads = async |(one, times): (&One<'_>, u32)| {
                soon("reading", one.lock.read().lock_with_lease(LONG * times)).await.unwrap()
            };
            let guards = [reads(first).await, reads(second).await];
            for asks in [&one, &other] {
                let holder = asks.read().holder().await.unwrap().unwrap();
                assert_eq!(holder.id.unwrap().client_id(), longer.client.id());
                let left = asks.read().remaining().await.unwrap().unwrap();
                assert!(left > LONG * 2 && left <= LONG * 3, "{left:?}");
            }
            for guard in guards {
                guard.unlock().await.unwrap();
            }
        }
    }
    one.assert_nothing_left().await;
    other.assert_nothing_left().await;
}

pub(crate) async fn readers_of_several_clients_are_woken_by_one_release(store: &Subject<'_>) {
    const EACH: usize = 8;
    let clients: [One<'_>; 4] = One::several(store).await;
    let writer = clients[0].writes().await;
    // No reader goes on before all of them hold the lock at once.
    let (readers_of_all, inside) = (EACH * clients.len(), Arc::new(AtomicUsize::new(0)));
    let mut readers = Vec::new();
    for client in &clients {
        for _ in 0..EACH {
            let (read, inside) = (client.read(), Arc::clone(&inside));
            let reads = client.waiter(async move {
                let guard = read.lock().await.unwrap();
                // Ordering: SeqCst, the easiest to reason about in a test.
                inside.fetch_add(1, Ordering::SeqCst);
                // Ordering: as above.
                eventually("all others' reading", async || inside.load(Ordering::SeqCst) == readers_of_all)
                    .await;
                guard.unlock().await.unwrap();
            });
            readers.push(reads.await);
        }
    }
    writer.unlock().await.unwrap();
    for reader in readers {
        at_once(reader).await;
    }
    for client in &clients {
        client.assert_nothing_left().await;
    }
}

pub(crate) async fn readers_of_one_client_share_one_hold(store: &Subject<'_>) {
    // However slow the machine, newcomers join the lease.
    let options = LockOptions::default().tenure(Duration::from_secs(3600));
    let [one, other] = One::several_with(store, &options).await;
    let mut guards = Vec::new();
    for _ in 0..8 {
        guards.push(one.reads().await);
        assert_eq!(one.readers().await, 1);
    }
    let theirs = other.reads().await;
    assert_eq!(one.readers().await, 2);
    for guard in guards {
        assert_eq!(one.readers().await, 2);
        guard.unlock().await.unwrap();
    }
    assert_eq!(one.readers().await, 1);
    theirs.unlock().await.unwrap();
    one.assert_nothing_left().await;
    other.assert_nothing_left().await;
    // Nor do leases accumulate, one for each tenure.
    let options = LockOptions::default().tenure(Duration::ZERO);
    let one = One::with(store, &fresh_name(), &options).await;
    let guards = [one.reads().await, one.reads().await, one.reads().await];
    eventually("one hold", async || one.readers().await == 1).await;
    for guard in guards {
        guard.ensure_held().await.unwrap();
        guard.unlock().await.unwrap();
    }
    one.assert_nothing_left().await;
}

/// Many tasks read again and again, each for a while, so that some task reads at any time.
async fn stream_of_readers(reads: &One<'_>, writes: &One<'_>) {
    const READERS: usize = 8;
    let (enough, times) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut stream = Vec::new();
    for number in 0..READERS {
        let (read, enough, times) = (reads.read(), Arc::clone(&enough), Arc::clone(&times));
        stream.push(spawn(async move {
            sleep(Duration::from_millis(number as u64)).await;
            // Ordering: Relaxed, both atomics only count and end the stream.
            while !enough.load(Ordering::Relaxed) {
                let guard = read.lock().await.unwrap();
                sleep(Duration::from_millis(READERS as u64)).await;
                guard.unlock().await.unwrap();
                // Ordering: as above.
                times.fetch_add(1, Ordering::Relaxed);
            }
        }));
    }
    for round in 1..=5 {
        // Ordering: as above.
        eventually("the stream", async || times.load(Ordering::Relaxed) > round * READERS * 2).await;
        let guard = writes.writes().await;
        assert_eq!(reads.readers().await, 0);
        guard.unlock().await.unwrap();
    }
    // Ordering: as above.
    enough.store(true, Ordering::Relaxed);
    for reader in stream {
        soon("the end of the stream", reader).await.unwrap();
    }
    reads.assert_nothing_left().await;
    writes.assert_nothing_left().await;
}

pub(crate) async fn stream_of_readers_starves_no_writer_of_another_client(store: &Subject<'_>) {
    let [one, other] = One::several(store).await;
    stream_of_readers(&one, &other).await;
}

pub(crate) async fn stream_of_readers_starves_no_writer_of_its_own_client(store: &Subject<'_>) {
    let one = One::new(store).await;
    stream_of_readers(&one, &one).await;
}

pub(crate) async fn newcomer_waits_behind_a_writer_that_waits(store: &Subject<'_>) {
    // Without a tenure, each newcomer asks the store.
    let options = LockOptions::default().tenure(Duration::ZERO);
    let [one, other] = One::several_with(store, &options).await;
    for [reads, writes, comes] in
        [[&one, &other, &one], [&one, &one, &one], [&one, &one, &other], [&one, &other, &other]]
    {
        let held = reads.reads().await;
        let writer = writes.waits_to_write().await;
        assert!(!comes.may_read().await, "expected the newcomer to wait behind the waiting writer");
        let reader = comes.waits_to_read().await;
        held.unlock().await.unwrap();
        let writer = at_once(writer).await;
        assert!(!reader.is_finished());
        writer.unlock().await.unwrap();
        at_once(reader).await.unlock().await.unwrap();
    }
    one.assert_nothing_left().await;
    other.assert_nothing_left().await;
}

pub(crate) async fn reader_waits_for_one_writer(store: &Subject<'_>) {
    let [one, other, third] = One::several(store).await;
    for reads in [&one, &other, &third] {
        let writer = one.writes().await;
        let writers = [one.waits_to_write().await, other.waits_to_write().await];
        let reader = reads.waits_to_read().await;
        writer.unlock().await.unwrap();
        let reader = at_once(reader).await;
        assert!(writers.iter().all(|writer| !writer.is_finished()));
        reader.unlock().await.unwrap();
        all_at_once(writers).await;
    }
    for client in [one, other, third] {
        client.assert_nothing_left().await;
    }
}

/// The store does not keep the lock for readers that gave up.
pub(crate) async fn readers_that_give_up_delay_no_writer(store: &Subject<'_>) {
    let [one, other, third] = One::several(store).await;
    for by_dropping in [true, false] {
        let held = one.writes().await;
        let writer = other.waits_to_write().await;
        let read = third.read();
        if by_dropping {
            let reader = third.waits_to_read().await;
            reader.abort();
            assert!(reader.await.unwrap_err().is_cancelled());
        } else {
            assert!(read.try_lock_for(SHORT, Lease::Watched).await.unwrap().is_none());
        }
        eventually("the end of the wait", async || third.lock.read().waiters() == 0).await;
        // The client rolls back in the background.
        sleep(SHORT).await;
        let begun = now();
        held.unlock().await.unwrap();
        at_once(writer).await.unlock().await.unwrap();
        let waited = since(begun);
        assert!(
            waited < TURN / 2,
            "expected the readers' turn to end, and the writer waited {waited:?} (dropped: {by_dropping})"
        );
    }
    other.assert_nothing_left().await;
}

pub(crate) async fn owner_that_reads_reads_again_though_a_writer_waits(store: &Subject<'_>) {
    for tenure in [Duration::ZERO, Duration::from_secs(3600)] {
        let [one, other] = One::several_with(store, &LockOptions::default().tenure(tenure)).await;
        let me = one.client.owner();
        let mine = one.read().owned_by(&me);
        let outer = mine.lock().await.unwrap();
        let writers = [one.waits_to_write().await, other.waits_to_write().await];
        let inner =
            timeout(AT_ONCE, mine.lock()).await.expect("the owner does not wait for its own hold").unwrap();
        let tried = mine.try_lock().await.unwrap().expect("the owner has the lock already");
        let fenced = timeout(AT_ONCE, mine.fenced().lock())
            .await
            .expect("the owner does not wait for its own hold")
            .unwrap();
        assert!(fenced.fencing_token().is_some());
        assert_eq!(mine.hold_count(&me).await.unwrap(), 4);
        for guard in [outer, inner, tried, fenced] {
            assert!(writers.iter().all(|writer| !writer.is_finished()));
            guard.unlock().await.unwrap();
        }
        all_at_once(writers).await;
        one.assert_nothing_left().await;
        other.assert_nothing_left().await;
    }
}

pub(crate) async fn owners_that_share_a_hold_end_only_their_own(store: &Subject<'_>) {
    let one = One::new(store).await;
    let owners = [one.client.owner(), one.client.owner(), one.client.owner()];
    let reads = owners.each_ref().map(|owner| one.read().owned_by(owner));
    let counts = async || {
        let mut counts = Vec::new();
        for owner in &owners {
            counts.push(one.lock.read().hold_count(owner).await.unwrap());
            assert_eq!(one.lock.read().is_held_by(owner).await.unwrap(), counts.last() != Some(&0));
        }
        counts
    };
    let first = reads[0].lock().await.unwrap();
    let second = [reads[1].lock().await.unwrap(), reads[1].lock().await.unwrap()];
    let third = reads[2].lock().await.unwrap();
    assert_eq!(counts().await, [1, 2, 1]);
    first.unlock().await.unwrap();
    assert_eq!(counts().await, [0, 2, 1]);
    let [inner, outer] = second;
    assert!(one.lock.read().unlock(&owners[0]).await.unwrap_err().is_not_held());
    drop(third);
    assert_eq!(counts().await, [0, 2, 0]);
    for guard in [inner, outer] {
        assert!(guard.is_held());
        guard.ensure_held().await.unwrap();
        guard.unlock().await.unwrap();
    }
    assert_eq!(counts().await, [0, 0, 0]);
    one.assert_nothing_left().await;
}

pub(crate) async fn hold_of_an_owner_is_given_back_by_name(store: &Subject<'_>) {
    let one = One::new(store).await;
    let [me, you] = [one.client.owner(), one.client.owner()];
    let [mine, yours] = [&me, &you].map(|owner| one.read().owned_by(owner));
    let theirs = one.reads().await;
    mine.lock().await.unwrap().forget();
    let guard = yours.lock().await.unwrap();
    yours.lock().await.unwrap().forget();
    assert_eq!(one.read().hold_count(&you).await.unwrap(), 2);
    one.read().unlock(&you).await.unwrap();
    assert!(guard.is_held(), "expected the release of the forgotten hold to leave the guard's hold alone");
    guard.unlock().await.unwrap();
    assert!(one.read().unlock(&you).await.unwrap_err().is_not_held());
    theirs.unlock().await.unwrap();
    assert!(!one.may_write().await, "expected the forgotten hold to keep writers out");
    one.read().unlock(&me).await.unwrap();
    assert!(one.read().unlock(&me).await.unwrap_err().is_not_held());
    one.assert_nothing_left().await;
}

pub(crate) async fn writer_that_reads_lets_others_read_when_it_writes_no_more(store: &Subject<'_>) {
    let [one, other] = One::several(store).await;
    let me = one.client.owner();
    let (read, write) = (one.read().owned_by(&me), one.write().owned_by(&me));
    for waits in [false, true] {
        let writes = write.lock().await.unwrap();
        let reads =
            timeout(AT_ONCE, read.lock()).await.expect("the owner does not wait for its own hold").unwrap();
        let again =
            timeout(AT_ONCE, read.lock()).await.expect("the owner does not wait for its own hold").unwrap();
        let same = timeout(AT_ONCE, write.lock()).await.expect("the owner has both sides").unwrap();
        assert!(!one.may_read().await && !other.may_read().await, "expected no reader beside the writer");
        let waiting =
            if waits { vec![one.waits_to_read().await, other.waits_to_read().await] } else { Vec::new() };
        let behind = if waits { Some(other.waits_to_write().await) } else { None };
        same.unlock().await.unwrap();
        assert!(
            waiting.iter().all(|reader| !reader.is_finished()),
            "expected all readers to wait for the writer"
        );
        writes.unlock().await.unwrap();
        assert!(!write.is_held_by(&me).await.unwrap() && read.is_held_by(&me).await.unwrap());
        reads.ensure_held().await.unwrap();
        for reader in waiting {
            at_once(reader).await.unlock().await.unwrap();
        }
        if !waits {
            assert!(one.may_read().await && other.may_read().await);
        }
        assert!(!one.may_write().await && !other.may_write().await, "expected no writer beside the reader");
        reads.unlock().await.unwrap();
        assert!(
            behind.as_ref().is_none_or(|writer| !writer.is_finished()),
            "expected the writer to wait for the reader"
        );
        again.unlock().await.unwrap();
        if let Some(writer) = behind {
            at_once(writer).await.unlock().await.unwrap();
        }
    }
    one.assert_nothing_left().await;
    other.assert_nothing_left().await;
}

pub(crate) async fn writer_may_give_its_reads_back_first(store: &Subject<'_>) {
    let [one, other] = One::several(store).await;
    let me = one.client.owner();
    let writes = one.write().owned_by(&me).lock().await.unwrap();
    for _ in 0..2 {
        let reads = one.read().owned_by(&me).lock().await.unwrap();
        assert_eq!(one.readers().await, 1);
        reads.unlock().await.unwrap();
        eventually("the end of its read", async || one.readers().await == 0).await;
        assert!(!one.may_read().await && !other.may_read().await && !other.may_write().await);
        writes.ensure_held().await.unwrap();
    }
    writes.unlock().await.unwrap();
    one.assert_nothing_left().await;
    other.assert_nothing_left().await;
}

/// The owner asked for both sides, and its reader would wait for its writer.
pub(crate) async fn owner_whose_write_lock_comes_first_reads_at_once(store: &Subject<'_>) {
    let [one, other] = One::several(store).await;
    let me = one.client.owner();
    let held = other.reads().await;
    let (read, write) = (one.read().owned_by(&me), one.write().owned_by(&me));
    let writes = one.waiter(async move { write.lock().await.unwrap() }).await;
    let reads = one.waiter(async move { read.lock().await.unwrap() }).await;
    held.unlock().await.unwrap();
    let writes = at_once(writes).await;
    let reads = at_once(reads).await;
    assert!(writes.is_held() && reads.is_held());
    reads.unlock().await.unwrap();
    writes.unlock().await.unwrap();
    one.assert_nothing_left().await;
    other.assert_nothing_left().await;
}

pub(crate) async fn owner_that_reads_is_refused_to_write(store: &Subject<'_>) {
    let [one, other] = One::several(store).await;
    let [me, you] = [one.client.owner(), one.client.owner()];
    let reads = one.read().owned_by(&me).lock().await.unwrap();
    let theirs = one.read().owned_by(&you).lock().await.unwrap();
    let write = one.write().owned_by(&me);
    let refused = |error: LockError| {
        assert!(error.is_upgrade(), "{error:?}");
        assert!(matches!(error, LockError::Upgrade { owner, .. } if owner == me));
    };
    // The first poll is ready: no command was sent.
    let polled = pin!(write.lock()).poll(&mut Context::from_waker(Waker::noop()));
    match polled {
        Poll::Ready(refusal) => refused(refusal.map(drop).unwrap_err()),
        Poll::Pending => panic!("the owner does not wait for its own hold"),
    }
    refused(write.try_lock().await.map(drop).unwrap_err());
    refused(write.try_lock_for(SHORT, Lease::Watched).await.map(drop).unwrap_err());
    refused(write.lock_with_lease(LONG).await.map(drop).unwrap_err());
    reads.ensure_held().await.unwrap();
    // Also after a downgrade.
    reads.unlock().await.unwrap();
    theirs.unlock().await.unwrap();
    let writes = write.lock().await.unwrap();
    let reads = one.read().owned_by(&me).lock().await.unwrap();
    writes.unlock().await.unwrap();
    refused(write.try_lock().await.map(drop).unwrap_err());
    // Another owner waits as ever, and the same owner may write once it has stopped reading.
    assert!(one.write().owned_by(&you).try_lock().await.unwrap().is_none());
    reads.unlock().await.unwrap();
    soon("writing", write.lock()).await.unwrap().unlock().await.unwrap();
    one.assert_nothing_left().await;
    other.assert_nothing_left().await;
}

pub(crate) async fn force_unlock_ends_both_sides(store: &Subject<'_>) {
    let [one, other] = One::several(store).await;
    let me = one.client.owner();
    assert!(!one.read().force_unlock().await.unwrap() && !one.write().force_unlock().await.unwrap());
    for by_reader in [true, false] {
        let forces = || if by_reader { one.read() } else { one.write() };
        let writes = one.write().owned_by(&me).lock().await.unwrap();
        let reads = one.read().owned_by(&me).lock().await.unwrap();
        let (waits, writer) = (other.waits_to_read().await, other.waits_to_write().await);
        assert!(forces().force_unlock().await.unwrap());
        for guard in [writes, reads] {
            assert!(!guard.is_held());
            assert!(guard.unlock().await.unwrap_err().is_not_held());
        }
        at_once(waits).await.unlock().await.unwrap();
        at_once(writer).await.unlock().await.unwrap();
        let (mine, theirs) = (one.reads().await, other.reads().await);
        assert!(forces().force_unlock().await.unwrap());
        assert!(!mine.is_held());
        assert!(theirs.ensure_held().await.unwrap_err().is_not_held());
        drop((mine, theirs));
    }
    one.assert_nothing_left().await;
    other.assert_nothing_left().await;
}

pub(crate) async fn loss_is_told_to_all_readers(store: &Subject<'_>) {
    let options = LockOptions::default().watchdog_timeout(SHORT);
    let [one, other] = One::several_with(store, &options).await;
    let me = one.client.owner();
    let readers = [one.reads().await, one.reads().await, one.read().owned_by(&me).lock().await.unwrap()];
    assert!(other.write().force_unlock().await.unwrap());
    for guard in readers {
        assert_eq!(soon("the notice", guard.lost()).await, LossReason::Gone);
        assert!(!guard.is_held());
        assert!(guard.unlock().await.unwrap_err().is_not_held());
    }
    // A writer that also reads.
    let writes = one.write().owned_by(&me).lock().await.unwrap();
    let reads = one.read().owned_by(&me).lock().await.unwrap();
    assert!(other.read().force_unlock().await.unwrap());
    assert_eq!(soon("the notice", writes.lost()).await, LossReason::Gone);
    assert_eq!(soon("the notice", reads.lost()).await, LossReason::Gone);
    drop((writes, reads));
    assert!(one.may_read().await && other.may_write().await);
    one.assert_nothing_left().await;
    other.assert_nothing_left().await;
}

pub(crate) async fn tokens_of_readers_fence_writers_off_and_no_reader(store: &Subject<'_>) {
    let [one, other] = One::several(store).await;
    let mut last = 0;
    for round in 0..3 {
        let clients = if round % 2 == 0 { [&one, &other] } else { [&other, &one] };
        let (mut readers, written) = (Vec::new(), last);
        for client in [clients[0], clients[0], clients[1], clients[1]] {
            let reads = soon("reading", client.read().fenced().lock()).await.unwrap();
            let token = reads.fencing_token().expect("the token was requested");
            assert!(
                token > written,
                "expected a token above the writer's {written}, which refuses late writes, and got {token}"
            );
            assert!(
                last == written || token == last,
                "expected the readers' token {last}, and got {token}, which refuses a read"
            );
            last = token;
            readers.push(reads);
            assert_eq!(client.reads().await.fencing_token(), None);
        }
        for reads in readers {
            reads.unlock().await.unwrap();
        }
        let writes = soon("writing", clients[1].write().fenced().lock()).await.unwrap();
        let token = writes.fencing_token().expect("the token was requested");
        assert!(token > last, "{token} after {last}");
        last = token;
        writes.unlock().await.unwrap();
    }
    let me = one.client.owner();
    let writes = one.write().owned_by(&me).fenced().lock().await.unwrap();
    let reads = one.read().owned_by(&me).fenced().lock().await.unwrap();
    assert!(reads.fencing_token() > writes.fencing_token());
    writes.unlock().await.unwrap();
    reads.unlock().await.unwrap();
    one.assert_nothing_left().await;
}

pub(crate) async fn lease_of_a_readers_own_is_its_own(store: &Subject<'_>) {
    for tenure in [Duration::ZERO, Duration::from_secs(3600)] {
        let [one, other] = One::several_with(store, &LockOptions::default().tenure(tenure)).await;
        // A short lease beside a renewed one, the renewed one first or last.
        for comes_first in [true, false] {
            let first = if comes_first { None } else { Some(one.reads().await) };
            let begun = now();
            let short = one.read().lock_with_lease(SHORT).await.unwrap();
            let watched = match first {
                Some(watched) => watched,
                None => one.reads().await,
            };
            assert!(short.remaining() <= SHORT);
            assert_eq!(soon("its end", short.lost()).await, LossReason::Expired);
            let lasted = since(begun);
            assert!(lasted >= SHORT - Duration::from_millis(1) && lasted < AT_ONCE, "{lasted:?}");
            assert!(short.unlock().await.unwrap_err().is_not_held());
            watched.ensure_held().await.unwrap();
            assert!(watched.remaining() > SHORT && !other.may_write().await);
            watched.unlock().await.unwrap();
            // The store's lease began later.
            eventually("the end of the short lease in the store", async || other.may_write().await).await;
        }
        // A short lease alone, and two together: none is renewed.
        let short = [
            one.read().lock_with_lease(SHORT).await.unwrap(),
            one.read().lock_with_lease(SHORT).await.unwrap(),
        ];
        let writer = other.waits_to_write().await;
        at_once(writer).await.unlock().await.unwrap();
        for guard in short {
            assert!(!guard.is_held());
            assert!(guard.unlock().await.unwrap_err().is_not_held());
        }
        one.assert_nothing_left().await;
        other.assert_nothing_left().await;
    }
}

pub(crate) async fn long_lease_of_a_reader_outlasts_the_others(store: &Subject<'_>) {
    for tenure in [Duration::ZERO, Duration::from_secs(3600)] {
        let [one, other] = One::several_with(store, &LockOptions::default().tenure(tenure)).await;
        let long = one.read().lock_with_lease(LONG).await.unwrap();
        let short = one.read().lock_with_lease(SHORT).await.unwrap();
        let watched = one.reads().await;
        let again = one.read().lock_with_lease(LONG * 2).await.unwrap();
        soon("its end", short.lost()).await;
        watched.unlock().await.unwrap();
        let is_long = |left: Duration, lease: Duration| left > lease / 2 && left <= lease;
        assert!(is_long(long.remaining(), LONG), "{:?}", long.remaining());
        assert!(is_long(again.remaining(), LONG * 2), "{:?}", again.remaining());
        let left = other.read().remaining().await.unwrap().unwrap();
        assert!(is_long(left, LONG * 2), "{left:?}");
        again.unlock().await.unwrap();
        long.ensure_held().await.unwrap();
        assert!(is_long(long.remaining(), LONG), "{:?}", long.remaining());
        assert!(other.read().remaining().await.unwrap().unwrap() > LONG / 2);
        drop(short);
        assert!(!other.may_write().await);
        long.unlock().await.unwrap();
        one.assert_nothing_left().await;
        other.assert_nothing_left().await;
    }
}

pub(crate) async fn watchdog_keeps_what_is_read_and_written(store: &Subject<'_>) {
    // A machine that stands still for two thirds of this time loses the lock, rightly.
    let lease = Duration::from_secs(3);
    let [one, other] = One::several_with(store, &LockOptions::default().watchdog_timeout(lease)).await;
    let me = one.client.owner();
    let writes = one.write().owned_by(&me).lock().await.unwrap();
    let beside = one.read().owned_by(&me).lock().await.unwrap();
    let elsewhere = One::with(store, &fresh_name(), &LockOptions::default().watchdog_timeout(lease)).await;
    let readers = [elsewhere.reads().await, elsewhere.reads().await];
    let patience = lease + lease / 3;
    let (write, theirs) = (elsewhere.write(), other.write());
    let (in_vain, theirs) =
        join(write.try_lock_for(patience, Lease::Watched), theirs.try_lock_for(patience, Lease::Watched))
            .await;
    assert!(
        in_vain.unwrap().is_none() && theirs.unwrap().is_none(),
        "expected a renewed lease, and another client acquired the lock"
    );
    for guard in [writes, beside].into_iter().chain(readers) {
        guard.ensure_held().await.unwrap();
        guard.unlock().await.unwrap();
    }
    for client in [one, other, elsewhere] {
        client.assert_nothing_left().await;
    }
}

pub(crate) async fn reader_is_lost_alone_when_it_has_read_for_too_long(store: &Subject<'_>) {
    let limit = Duration::from_secs(2);
    let [one, other] = One::several_with(store, &LockOptions::default().max_hold(limit)).await;
    let begun = now();
    let first = one.reads().await;
    sleep(limit / 2).await;
    let second = one.reads().await;
    let own = one.read().lock_with_lease(LONG).await.unwrap();
    assert_eq!(soon("the limit", first.lost()).await, LossReason::HeldTooLong);
    let held = since(begun);
    assert!(held >= limit - Duration::from_millis(1) && held < limit * 2, "{held:?}");
    second.ensure_held().await.unwrap();
    assert_eq!(soon("the limit", second.lost()).await, LossReason::HeldTooLong);
    assert!(since(begun) >= limit + limit / 2 - Duration::from_millis(1));
    own.ensure_held().await.unwrap();
    assert!(!other.may_write().await, "expected a lease of its own to outlast the longest hold");
    own.unlock().await.unwrap();
    for guard in [first, second] {
        assert!(guard.unlock().await.unwrap_err().is_not_held());
    }
    one.assert_nothing_left().await;
    other.assert_nothing_left().await;
}

pub(crate) async fn unpolled_reader_keeps_no_waiter_back(store: &Subject<'_>) {
    let [one, other] = One::several(store).await;
    let held = other.writes().await;
    // Polled until asleep, then never again.
    let read = one.read();
    let mut rests = Box::pin(read.lock());
    eventually("its sleep", async || {
        poll_fn(|context| {
            assert!(rests.as_mut().poll(context).is_pending(), "expected the reader to wait for the writer");
            Poll::Ready(())
        })
        .await;
        one.waiting() > 0
    })
    .await;
    let behind = one.waits_to_read().await;
    let (elsewhere, writer) = (other.waits_to_read().await, other.waits_to_write().await);
    held.unlock().await.unwrap();
    at_once(elsewhere).await.unlock().await.unwrap();
    // The turn ends without the sleeping reader. The reader behind it has waited longer than the writer, so
    // it reads before the writer if its attempt overtakes the rollback of the sleeping reader.
    all_at_once([writer, behind]).await;
    soon("its turn", rests).await.unwrap().unlock().await.unwrap();
    one.assert_nothing_left().await;
    other.assert_nothing_left().await;
}

/// Drops each attempt after its n-th poll, for every n until the attempt gets the lock, behind a writer of
/// its own client and of another one.
pub(crate) async fn readers_dropped_at_any_poll_leave_nothing(store: &Subject<'_>) {
    for same in [false, true] {
        for polls in 0.. {
            assert!(polls < 1000, "expected the lock within a thousand polls");
            let [one, other] = One::several(store).await;
            let held = if same { one.writes().await } else { other.writes().await };
            let reader = |side: &Lock, polls| {
                let read = side.clone();
                spawn(async move { DropAfter::polls(polls, read.lock()).await.is_some() })
            };
            let dropped = [reader(one.lock.read(), polls), reader(one.lock.read(), polls / 2)];
            eventually("waiting", async || {
                let waits = dropped.iter().filter(|reader| !reader.is_finished()).count();
                one.waiting() >= waits
            })
            .await;
            held.unlock().await.unwrap();
            let mut got_it = Vec::new();
            for reader in dropped {
                got_it.push(at_once(reader).await);
            }
            timeout(TURN / 2 + AT_ONCE, other.lock.write().lock())
                .await
                .unwrap()
                .unwrap()
                .unlock()
                .await
                .unwrap();
            one.assert_nothing_left().await;
            if got_it[1] {
                break;
            }
        }
    }
}

pub(crate) async fn reader_dropped_at_any_poll_keeps_no_waiter_back(store: &Subject<'_>) {
    for polls in 0.. {
        assert!(polls < 1000, "expected the lock within a thousand polls");
        let [one, other] = One::several(store).await;
        let held = other.writes().await;
        let read = one.read();
        let dropped = spawn(async move { DropAfter::polls(polls, read.lock()).await.is_some() });
        eventually("waiting", async || dropped.is_finished() || one.waiting() > 0).await;
        // A waiter behind the dropped reader, if that still waits; and another client's waiter.
        let behind = [one.waits_to_read().await, other.waits_to_read().await];
        held.unlock().await.unwrap();
        for reader in behind {
            at_once(reader).await.unlock().await.unwrap();
        }
        let got_it = at_once(dropped).await;
        one.assert_nothing_left().await;
        other.assert_nothing_left().await;
        if got_it {
            return;
        }
    }
}

pub(crate) async fn downgrade_dropped_at_any_poll_leaves_nothing(store: &Subject<'_>) {
    for polls in 0.. {
        assert!(polls < 1000, "expected the lock within a thousand polls");
        let [one, other] = One::several(store).await;
        let me = one.client.owner();
        let writes = one.write().owned_by(&me).lock().await.unwrap();
        let read = one.read().owned_by(&me);
        let reads = DropAfter::polls(polls, read.lock()).await.map(Result::unwrap);
        let got_it = reads.is_some();
        writes.ensure_held().await.unwrap();
        drop(reads);
        eventually("the end of its read", async || one.readers().await == 0).await;
        writes.unlock().await.unwrap();
        let writes = one.write().owned_by(&me).lock().await.unwrap();
        let reads = one.read().owned_by(&me).lock().await.unwrap();
        _ = DropAfter::polls(polls, writes.unlock()).await;
        eventually("the end of its write", async || other.may_read().await).await;
        reads.ensure_held().await.unwrap();
        reads.unlock().await.unwrap();
        one.assert_nothing_left().await;
        other.assert_nothing_left().await;
        if got_it {
            return;
        }
    }
}

pub(crate) async fn shutdown_waits_for_readers_and_writers(store: &Subject<'_>) {
    for side in ["read", "write", "both"] {
        let [one, other] = One::several(store).await;
        let me = one.client.owner();
        let mut guards = Vec::new();
        if side != "read" {
            guards.push(one.write().owned_by(&me).lock().await.unwrap());
        }
        if side != "write" {
            guards.push(one.read().owned_by(&me).lock().await.unwrap());
        }
        if side == "read" {
            guards.push(one.reads().await);
        }
        let left = one.client.shutdown(SHORT).await.unwrap_err();
        assert_eq!(left.held().first(), Some(one.lock.name()), "{side}");
        let waits = other.waits_to_write().await;
        let (ended, ()) = join(one.client.shutdown(AT_ONCE), async {
            for guard in guards {
                guard.unlock().await.unwrap();
            }
        })
        .await;
        ended.unwrap();
        at_once(waits).await.unlock().await.unwrap();
        assert!(one.read().lock().await.unwrap_err().is_shut_down());
        assert!(one.write().try_lock().await.unwrap_err().is_shut_down());
        other.assert_nothing_left().await;
    }
}

pub(crate) async fn shutdown_tells_waiting_readers_and_writers(store: &Subject<'_>) {
    let [one, other] = One::several(store).await;
    let held = other.writes().await;
    let mut told = Vec::new();
    for side in [one.read(), one.read(), one.write(), one.write()] {
        told.push(one.waiter(async move { side.lock().await.map(drop).unwrap_err() }).await);
    }
    soon("the shutdown", one.client.shutdown(AT_ONCE)).await.unwrap();
    for told in told {
        assert!(at_once(told).await.is_shut_down());
    }
    held.unlock().await.unwrap();
    other.assert_nothing_left().await;
}

pub(crate) async fn acquisitions_are_counted(store: &Subject<'_>) {
    let options = LockOptions::default().tenure(Duration::from_secs(3600));
    let one = One::with(store, &fresh_name(), &options).await;
    let readers = [one.reads().await, one.reads().await, one.reads().await];
    assert!(!one.may_write().await);
    for guard in readers {
        guard.unlock().await.unwrap();
    }
    one.writes().await.unlock().await.unwrap();
    assert_eq!(one.lock.read().stats().acquisitions, 3);
    assert_eq!(one.lock.write().stats().acquisitions, 1);
    let metrics = one.client.metrics();
    assert_eq!((metrics.waits.count(), metrics.holds.count()), (4, 4));
    assert_eq!((metrics.given_up, metrics.leases_lost), (1, 0));
    one.assert_nothing_left().await;
}

pub(crate) async fn threads_read_and_write(store: &Subject<'_>) {
    let [one, other] = One::several(store).await;
    let task = other.reads().await;
    let (client, name) = (one.client.clone(), one.lock.name().as_str().to_owned());
    let thread = on_a_thread(move || {
        let client = blocking::LockClient::from_async(client);
        let lock = client.get_read_write_lock(&name).unwrap();
        let readers = [lock.read().lock().unwrap(), lock.read().try_lock().unwrap().expect("many read")];
        assert!(lock.write().try_lock().unwrap().is_none());
        for guard in readers {
            guard.unlock().unwrap();
        }
        let me = client.owner();
        let writes = lock.write().owned_by(&me).lock().unwrap();
        let reads = lock.read().owned_by(&me).lock().unwrap();
        writes.unlock().unwrap();
        assert!(lock.read().try_lock().unwrap().is_some());
        assert!(lock.write().owned_by(&me).lock().unwrap_err().is_upgrade());
        reads.unlock().unwrap();
    });
    // The writer has reached its wait.
    eventually("waiting", async || {
        let channel = store.backend(&one.client).channels(Mode::Write, one.lock.name(), one.client.id()).own;
        one.client.registry().join(&channel).is_some_and(|look| look.waiters() > 0)
    })
    .await;
    task.unlock().await.unwrap();
    soon("the thread", thread).await.unwrap();
    one.assert_nothing_left().await;
    other.assert_nothing_left().await;
}

pub(crate) async fn kinds_refuse_each_other(store: &Subject<'_>) {
    let [one, other] = One::several(store).await;
    let plain = other.client.get_lock(one.lock.name().as_str()).unwrap();
    for side in [one.read(), one.write()] {
        for (held, refused) in [(&side, &plain), (&plain, &side)] {
            let guard = held.lock().await.unwrap();
            assert!(refused.try_lock().await.unwrap_err().is_other_kind());
            assert!(soon("the refusal", refused.lock()).await.unwrap_err().is_other_kind());
            assert!(refused.force_unlock().await.unwrap_err().is_other_kind());
            guard.ensure_held().await.unwrap();
            assert!(refused.is_locked().await.unwrap_or_else(|error| error.is_other_kind()));
            guard.unlock().await.unwrap();
            refused.lock().await.unwrap().unlock().await.unwrap();
        }
    }
    one.assert_nothing_left().await;
    other.assert_nothing_left().await;
}

pub(crate) async fn readers_and_writers_take_turns(store: &Subject<'_>) {
    const WRITER: usize = 1000;
    let clients: [One<'_>; 2] = One::several(store).await;
    // The number of readers inside; a writer counts as a thousand.
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for task in 0..16 {
        let client = &clients[task % 2];
        let (lock, inside) = (client.lock.clone(), Arc::clone(&inside));
        tasks.push(spawn(async move {
            for round in 0..25 {
                let writes = (task + round) % 4 == 0;
                let (side, weight) = if writes { (lock.write(), WRITER) } else { (lock.read(), 1) };
                let guard = side.lock().await.unwrap();
                // Ordering: SeqCst, the easiest to reason about in a test.
                let before = inside.fetch_add(weight, Ordering::SeqCst);
                assert!(
                    if writes { before == 0 } else { before < WRITER },
                    "expected no other holder but readers inside, and found {before}"
                );
                yield_now().await;
                // Ordering: as above.
                inside.fetch_sub(weight, Ordering::SeqCst);
                guard.unlock().await.unwrap();
            }
        }));
    }
    timeout(Duration::from_secs(30), async {
        for task in tasks {
            task.await.unwrap();
        }
    })
    .await
    .expect("a task waits for ever");
    for client in &clients {
        client.assert_nothing_left().await;
    }
}

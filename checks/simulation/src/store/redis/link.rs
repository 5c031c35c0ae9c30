//! [`Links`] between processes and the server. Like TCP, a link never loses bytes in the middle: a loss cuts
//! off the end of the stream, and a delay delays all later bytes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use latchwork::LockKind;
use tokio::io::ReadBuf;

use crate::store::{LATEST_RUN, Network};
use crate::world::{Nanos, Process, Sleep, World};

use super::leases::Leases;
use super::server::{Data, Key, Server};
use super::way::{Parcel, Way};

/// All links, and the server. Clones share them.
#[derive(Clone)]
pub(super) struct Links(Arc<Shared>);

struct Shared {
    world: World,
    faults: Network,
    inner: Mutex<Inner>,
}

pub(super) struct Inner {
    pub(super) world: World,
    pub(super) faults: Network,
    pub(super) server: Server,
    /// Lead of the server's clock over the world's, in microseconds.
    pub(super) clock: i64,
    /// Snapshots of the data, oldest first, for a replica that takes over.
    pub(super) copies: VecDeque<(Nanos, Data)>,
    /// Keys that may outlast partly evicted locks: the locks' own, and those of their readers' leases.
    pub(super) outlasting: BTreeSet<Vec<u8>>,
    pub(super) harms: u64,
    /// True if clients soon notice a cut link by themselves.
    pub(super) has_heartbeats: bool,
    /// Probability, in thousandths of attempts, that a foreign client forges a message.
    pub(super) strangers: u32,
    /// True if clients may not end the server's end of a link.
    refuses_kill: bool,
    pub(super) links: BTreeMap<u64, Link>,
    links_made: u64,
    /// By the server's number of the connection.
    pub(super) by_session: BTreeMap<u64, u64>,
    arrivals: BTreeSet<(Nanos, u64, To)>,
    /// True while a carrier task exists, with its waker while the task waits.
    is_carried: bool,
    carrier: Option<Waker>,
    pub(super) scripts: BTreeMap<usize, u64>,
    pub(super) silent_until: BTreeMap<usize, Nanos>,
    pub(super) silent_to_all_until: Nanos,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum To {
    Server,
    Client,
}

#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) process: usize,
    /// The server's number of the connection, until closed there.
    pub(super) session: Option<u64>,
    /// Bytes at the server that are not yet a complete command.
    pub(super) unread: Vec<u8>,
    pub(super) up: Way,
    pub(super) down: Way,
    inbox: VecDeque<u8>,
    /// The error after the inbox, if the link has ended for the client.
    end: Option<io::ErrorKind>,
    reader: Option<Waker>,
    is_closed: bool,
}

impl Link {
    pub(super) fn way(&mut self, to: To) -> &mut Way {
        match to {
            To::Server => &mut self.up,
            To::Client => &mut self.down,
        }
    }
}

impl Links {
    pub(super) fn new(world: &World, faults: &Network, has_heartbeats: bool) -> Self {
        let inner = Inner {
            world: world.clone(),
            faults: faults.clone(),
            server: Server::new(),
            clock: 0,
            copies: VecDeque::new(),
            outlasting: BTreeSet::new(),
            harms: 0,
            has_heartbeats,
            strangers: 0,
            refuses_kill: false,
            links: BTreeMap::new(),
            links_made: 0,
            by_session: BTreeMap::new(),
            arrivals: BTreeSet::new(),
            is_carried: false,
            carrier: None,
            scripts: BTreeMap::new(),
            silent_until: BTreeMap::new(),
            silent_to_all_until: 0,
        };
        Self(Arc::new(Shared { world: world.clone(), faults: faults.clone(), inner: Mutex::new(inner) }))
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().expect("nothing panics under this lock")
    }

    // === The client's end ===

    /// Opens a link for a process, after a round trip. Returns its number; fails if the server refuses.
    pub(super) fn connect(&self, process: &Process) -> impl Future<Output = io::Result<u64>> + Send + use<> {
        let (links, process) = (self.clone(), process.clone());
        async move {
            let world = &links.0.world;
            for _ in 0..2 {
                let way = links.inner().usual_delay();
                world.sleep(way).await;
                while let Some(until) = links.silence(process.index()) {
                    world.sleep_until(until).await;
                }
            }
            if links.inner().happens(links.0.faults.refused) {
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            Ok(links.open(&process))
        }
    }

    fn silence(&self, process: usize) -> Option<Nanos> {
        let inner = self.inner();
        let until = inner.silent_until.get(&process).copied().unwrap_or(0).max(inner.silent_to_all_until);
        (until > self.0.world.now()).then_some(until)
    }

    fn open(&self, process: &Process) -> u64 {
        let mut inner = self.inner();
        inner.links_made += 1;
        let (link, session) = (inner.links_made, inner.server.connect());
        inner.by_session.insert(session, link);
        inner
            .links
            .insert(link, Link { process: process.index(), session: Some(session), ..Link::default() });
        self.0.world.note(|| format!("process {} has link {link}", process.index()));
        link
    }

    pub(super) fn poll_read(
        &self,
        link: u64,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut inner = self.inner();
        let Some(link) = inner.links.get_mut(&link) else { return Poll::Ready(Ok(())) };
        if link.inbox.is_empty() {
            return match link.end {
                Some(io::ErrorKind::UnexpectedEof) => Poll::Ready(Ok(())),
                Some(error) => Poll::Ready(Err(error.into())),
                None => {
                    link.reader = Some(context.waker().clone());
                    Poll::Pending
                }
            };
        }
        let (first, _) = link.inbox.as_slices();
        let bytes = first.len().min(buffer.remaining());
        buffer.put_slice(&first[..bytes]);
        link.inbox.drain(..bytes);
        Poll::Ready(Ok(()))
    }

    pub(super) fn write(&self, link: u64, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.inner();
        if inner.links.get(&link).is_none_or(|link| link.end.is_some()) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        inner.send(link, To::Server, Parcel::Bytes(bytes.to_vec()));
        self.see_to_carrier(inner);
        Ok(())
    }

    pub(super) fn close(&self, link: u64) {
        if self.0.world.is_over() {
            return;
        }
        let mut inner = self.inner();
        inner.close(link);
        self.see_to_carrier(inner);
    }

    /// Closes the ends of a killed process, as the operating system does.
    pub(super) fn die(&self, process: &Process) {
        let mut inner = self.inner();
        inner.links_of(process.index()).into_iter().for_each(|link| inner.close(link));
        self.see_to_carrier(inner);
    }

    // === What is under way ===

    /// Spawns a carrier task if there are parcels in flight and no carrier.
    pub(super) fn see_to_carrier(&self, mut inner: MutexGuard<'_, Inner>) {
        if !inner.is_carried && !inner.arrivals.is_empty() {
            inner.is_carried = true;
            drop(inner);
            self.0.world.spawn(Carrier { links: self.clone(), sleep: None });
        }
    }

    /// Delivers one parcel that is due, and returns the time of the next. The server runs at most one
    /// command, so that judges see the state after each, however short-lived.
    fn carry(&self, context: &Context<'_>) -> Option<Nanos> {
        let now = self.0.world.now();
        let mut inner = self.inner();
        inner.carrier = None;
        if let Some(&(at, link, to)) = inner.arrivals.first()
            && at <= now
        {
            inner.arrivals.pop_first();
            inner.bring(link, to, now);
        }
        let Some(&(at, ..)) = inner.arrivals.first() else {
            inner.is_carried = false;
            return None;
        };
        inner.carrier = Some(context.waker().clone());
        Some(at)
    }
}

impl Inner {
    pub(super) fn send(&mut self, link: u64, to: To, parcel: Parcel) {
        let at = self.world.now() + self.delay(link, to);
        let Some(way) = self.links.get_mut(&link).map(|link| link.way(to)) else { return };
        if let Some(next) = way.send(parcel, at) {
            self.arrives(next, link, to);
        }
    }

    /// Schedules an arrival, and wakes the carrier if due first.
    pub(super) fn arrives(&mut self, at: Nanos, link: u64, to: To) {
        self.arrivals.insert((at, link, to));
        if self.arrivals.first().is_some_and(|first| *first == (at, link, to))
            && let Some(carrier) = self.carrier.take()
        {
            carrier.wake();
        }
    }

    /// Delivers the next parcel, unless an earlier parcel left a command to run, which then runs instead.
    fn bring(&mut self, id: u64, to: To, now: Nanos) {
        let has_run = to == To::Server && self.runs_command(id);
        let Some(link) = self.links.get_mut(&id) else { return };
        if has_run {
            self.arrivals.insert((now, id, to));
            return;
        }
        let taken = link.way(to).take(now);
        let next = if taken.is_some() && to == To::Server { Some(now) } else { link.way(to).next() };
        if let Some(next) = next {
            self.arrivals.insert((next, id, to));
        }
        match taken {
            Some(parcel) if to == To::Server => self.arrives_at_server(id, parcel),
            Some(parcel) => self.arrives_at_client(id, parcel),
            None => {}
        }
    }

    fn arrives_at_client(&mut self, link: u64, parcel: Parcel) {
        let Some(link) = self.links.get_mut(&link) else { return };
        match parcel {
            Parcel::Bytes(bytes) => link.inbox.extend(bytes),
            Parcel::End => link.end = Some(io::ErrorKind::UnexpectedEof),
            Parcel::Broken => link.end = Some(io::ErrorKind::ConnectionReset),
        }
        if let Some(reader) = link.reader.take() {
            reader.wake();
        }
    }

    pub(super) fn refuse_kill(&mut self) {
        self.refuses_kill = true;
        self.server.refuse_kill();
    }

    /// Closes the client's end. Earlier parcels stay in flight: if clients cannot end the server's end, for
    /// as long as the lock has to count on.
    pub(super) fn close(&mut self, link: u64) {
        if self.links.get_mut(&link).is_some_and(|link| !std::mem::replace(&mut link.is_closed, true)) {
            self.send(link, To::Server, Parcel::End);
            if self.refuses_kill
                && let Some(link) = self.links.get_mut(&link)
            {
                link.up.give_up_at(self.world.now() + LATEST_RUN);
            }
            self.forget_ended(link);
        }
    }

    pub(super) fn forget_ended(&mut self, link: u64) {
        if self.links.get(&link).is_some_and(|link| link.is_closed && link.session.is_none()) {
            self.links.remove(&link);
        }
    }

    pub(super) fn links_of(&self, process: usize) -> Vec<u64> {
        self.links.iter().filter(|(_, link)| link.process == process).map(|(id, _)| *id).collect()
    }
}

impl Inner {
    /// Number of parcels of the process that may still have an effect at the server.
    pub(super) fn under_way(&self, process: usize) -> usize {
        let theirs = self.links.values().filter(|link| link.process == process && link.session.is_some());
        theirs.map(|link| link.up.under_way()).sum()
    }

    /// Number of the server's subscriptions over the process's links with both ends open.
    pub(super) fn subscriptions_of(&self, process: usize) -> usize {
        let theirs = self.links.values().filter(|link| link.process == process && !link.is_closed);
        theirs.filter_map(|link| link.session).map(|session| self.server.subscriptions_of(session)).sum()
    }

    /// Describes leftovers, except for token counters, for expiring keys of partly evicted locks, and for
    /// expiring keys of semaphores without a lease: a dead holder's field lasts as long as its key, which has
    /// the longest of all leases.
    pub(super) fn left_over(&self) -> Vec<String> {
        let (now, time) = (self.world.now(), self.server_time());
        let keys = self.server.keys(time);
        let leases = Leases::new(keys.clone(), (now, time));
        let outlasts = |key: &Key| {
            let is_ended = |name: &str| {
                leases.is_semaphore(name) && leases.of(LockKind::Semaphore, name, now).is_empty()
            };
            key.left.is_some()
                && (self.outlasting.contains(&key.name) || is_ended(&String::from_utf8_lossy(&key.name)))
        };
        let keys = keys.into_iter().filter(|key| !outlasts(key));
        let keys = keys.map(|key| String::from_utf8_lossy(&key.name).into_owned());
        let keys =
            keys.filter(|key| !key.starts_with("redisson_lock_token:")).map(|key| format!("key {key:?}"));
        let links = self.links.iter().map(|(id, link)| format!("link {id} of process {}", link.process));
        let subscriptions = self.server.subscriptions();
        let subscriptions = (subscriptions > 0).then(|| format!("{subscriptions} subscriptions"));
        keys.chain(links).chain(subscriptions).collect()
    }
}

/// Delivers parcels until none is in flight.
struct Carrier {
    links: Links,
    sleep: Option<(Nanos, Sleep)>,
}

impl Future for Carrier {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let Some(at) = self.links.carry(context) else { return Poll::Ready(()) };
            if at <= self.links.0.world.now() {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            if self.sleep.as_ref().is_none_or(|(until, _)| *until != at) {
                let sleep = self.links.0.world.sleep_until(at);
                self.sleep = Some((at, sleep));
            }
            let Some((_, sleep)) = &mut self.sleep else { continue };
            if Pin::new(sleep).poll(context).is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").finish_non_exhaustive()
    }
}

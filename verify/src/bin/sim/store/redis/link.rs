//! [`Links`]: between processes and the server. A link loses nothing that it brings, as TCP does not: what is lost is
//! the end of all that was sent, and what is late delays all that comes after it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use tokio::io::ReadBuf;

use crate::store::Network;
use crate::world::{Nanos, Process, Sleep, World};

use super::server::{Data, Server};
use super::stream::Stream;
use super::way::{Parcel, Way};

/// All links, and the server. Clones are the same.
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
    /// By how much the server's clock is before the world's, in microseconds.
    pub(super) clock: i64,
    /// The data as it was, oldest first, for a replica that takes over.
    pub(super) copies: VecDeque<(Nanos, Data)>,
    /// How much harm was done.
    pub(super) harms: u64,
    /// Clients find out by themselves when a link is cut, and soon.
    pub(super) has_heartbeats: bool,
    pub(super) links: BTreeMap<u64, Link>,
    links_made: u64,
    /// By the server's number of the connection.
    pub(super) by_session: BTreeMap<u64, u64>,
    /// When something arrives.
    arrivals: BTreeSet<(Nanos, u64, To)>,
    /// There is a task that brings what is under way; its waker, while it waits.
    is_carried: bool,
    carrier: Option<Waker>,
    /// Until when the server is silent to a process.
    pub(super) silent_until: BTreeMap<usize, Nanos>,
    pub(super) silent_to_all_until: Nanos,
    /// Processes that were alive when they were looked at last.
    living: BTreeMap<usize, Process>,
}

/// Where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum To {
    Server,
    Client,
}

/// A link.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) process: usize,
    /// What the server calls the connection, until that has ended there.
    pub(super) session: Option<u64>,
    /// What has arrived at the server, and is no whole command yet.
    pub(super) unread: Vec<u8>,
    pub(super) up: Way,
    pub(super) down: Way,
    /// What has arrived at the client.
    inbox: VecDeque<u8>,
    /// How it ends for the client, behind that.
    end: Option<io::ErrorKind>,
    reader: Option<Waker>,
    /// The client has closed its end.
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
            harms: 0,
            has_heartbeats,
            links: BTreeMap::new(),
            links_made: 0,
            by_session: BTreeMap::new(),
            arrivals: BTreeSet::new(),
            is_carried: false,
            carrier: None,
            silent_until: BTreeMap::new(),
            silent_to_all_until: 0,
            living: BTreeMap::new(),
        };
        Self(Arc::new(Shared { world: world.clone(), faults: faults.clone(), inner: Mutex::new(inner) }))
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().expect("nothing panics under this lock")
    }

    // === The client's end ===

    /// A new link for a process. Takes a way there and one back; ends in an error if the server refuses.
    pub(super) fn connect(
        &self,
        process: &Process,
    ) -> impl Future<Output = io::Result<Stream>> + Send + use<> {
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
            Ok(Stream::new(&links, links.open(&process)))
        }
    }

    /// Until when the server is silent to the process, if it is.
    fn silence(&self, process: usize) -> Option<Nanos> {
        let inner = self.inner();
        let until = inner.silent_until.get(&process).copied().unwrap_or(0).max(inner.silent_to_all_until);
        (until > self.0.world.now()).then_some(until)
    }

    fn open(&self, process: &Process) -> u64 {
        let mut inner = self.inner();
        inner.living.insert(process.index(), process.clone());
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

    // === What is under way ===

    /// Sees to it that there is a task which brings what is under way.
    pub(super) fn see_to_carrier(&self, mut inner: MutexGuard<'_, Inner>) {
        if !inner.is_carried && !inner.arrivals.is_empty() {
            inner.is_carried = true;
            drop(inner);
            self.0.world.spawn(Carrier { links: self.clone(), sleep: None });
        }
    }

    /// Brings what arrives by now, and says when something does next.
    fn carry(&self, context: &Context<'_>) -> Option<Nanos> {
        let now = self.0.world.now();
        let mut inner = self.inner();
        inner.carrier = None;
        while let Some(&(at, link, to)) = inner.arrivals.first() {
            if at > now {
                inner.carrier = Some(context.waker().clone());
                return Some(at);
            }
            inner.arrivals.pop_first();
            inner.bring(link, to, now);
        }
        inner.is_carried = false;
        None
    }
}

impl Inner {
    /// Sends a parcel over a link, with the delays and losses that are drawn for it.
    pub(super) fn send(&mut self, link: u64, to: To, parcel: Parcel) {
        let at = self.world.now() + self.delay(link, to);
        let Some(way) = self.links.get_mut(&link).map(|link| link.way(to)) else { return };
        if let Some(next) = way.send(parcel, at) {
            self.arrives(next, link, to);
        }
    }

    /// Something on this way arrives at that time.
    pub(super) fn arrives(&mut self, at: Nanos, link: u64, to: To) {
        self.arrivals.insert((at, link, to));
        if self.arrivals.first().is_some_and(|first| *first == (at, link, to))
            && let Some(carrier) = self.carrier.take()
        {
            carrier.wake();
        }
    }

    fn bring(&mut self, link: u64, to: To, now: Nanos) {
        while let Some(way) = self.links.get_mut(&link).map(|link| link.way(to)) {
            match way.take(now) {
                Some(parcel) if to == To::Server => self.arrives_at_server(link, parcel),
                Some(parcel) => self.arrives_at_client(link, parcel),
                None => {
                    if let Some(next) = way.next() {
                        self.arrivals.insert((next, link, to));
                    }
                    return;
                }
            }
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

    /// The client's end is closed. What it has sent before is under way still.
    pub(super) fn close(&mut self, link: u64) {
        if self.links.get_mut(&link).is_some_and(|link| !std::mem::replace(&mut link.is_closed, true)) {
            self.send(link, To::Server, Parcel::End);
            self.forget_ended(link);
        }
    }

    /// A link of which there is neither end any more is none.
    pub(super) fn forget_ended(&mut self, link: u64) {
        if self.links.get(&link).is_some_and(|link| link.is_closed && link.session.is_none()) {
            self.links.remove(&link);
        }
    }

    /// The system closes the ends of processes that have died since.
    pub(super) fn close_dead(&mut self) {
        let dead: Vec<usize> =
            self.living.iter().filter(|(_, process)| !process.is_alive()).map(|(index, _)| *index).collect();
        for process in dead {
            self.living.remove(&process);
            self.links_of(process).into_iter().for_each(|link| self.close(link));
        }
    }

    pub(super) fn links_of(&self, process: usize) -> Vec<u64> {
        self.links.iter().filter(|(_, link)| link.process == process).map(|(id, _)| *id).collect()
    }
}

impl Inner {
    /// How many parcels of the process may still come to something at the server.
    pub(super) fn under_way(&self, process: usize) -> usize {
        let theirs = self.links.values().filter(|link| link.process == process && link.session.is_some());
        theirs.map(|link| link.up.under_way()).sum()
    }

    /// What is left, in words, but for the counters of tokens.
    pub(super) fn left_over(&mut self) -> Vec<String> {
        self.close_dead();
        let keys = self.server.keys(self.server_time()).into_iter();
        let keys = keys.map(|key| String::from_utf8_lossy(&key.name).into_owned());
        let keys =
            keys.filter(|key| !key.starts_with("redisson_lock_token:")).map(|key| format!("key {key:?}"));
        let links = self.links.iter().map(|(id, link)| format!("link {id} of process {}", link.process));
        let subscriptions = self.server.subscriptions();
        let subscriptions = (subscriptions > 0).then(|| format!("{subscriptions} subscriptions"));
        keys.chain(links).chain(subscriptions).collect()
    }
}

/// Brings what is under way, until there is nothing.
struct Carrier {
    links: Links,
    sleep: Option<(Nanos, Sleep)>,
}

impl Future for Carrier {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let Some(at) = self.links.carry(context) else { return Poll::Ready(()) };
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

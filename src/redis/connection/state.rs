//! [`State`]: the connection there is, or why there is none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::redis::{RedisResult, Value};
use tokio::sync::watch;

use crate::sync::atomic::{AtomicBool, Ordering};

use super::back_off::BackOff;
use super::error::{Error, is_broken};
use super::multiplexed::MultiplexedConnection;
use super::seats::Seats;
use super::server::ServerEpoch;
use super::session::Session;

/// A connection that was made. A later one may have taken its place.
pub(crate) struct Live {
    /// Tells it from those before and after it.
    pub(super) number: u64,
    pub(crate) inner: MultiplexedConnection,
    pub(super) standing: ServerEpoch,
    /// Of the commands on it.
    pub(super) seats: Arc<Seats>,
    session: Option<Session>,
    used: AtomicBool,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.seats.end();
    }
}

impl Live {
    pub(super) fn new(
        number: u64,
        inner: MultiplexedConnection,
        standing: ServerEpoch,
        session: Option<Session>,
    ) -> Self {
        Self { number, inner, standing, seats: Arc::default(), session, used: AtomicBool::new(false) }
    }

    /// A reply is as good as a heartbeat's.
    pub(super) fn answered(&self, reply: &RedisResult<Value>) {
        if !reply.as_ref().is_err_and(is_broken) {
            // Ordering: Relaxed, a hint; nothing is read through it.
            self.used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a reply has come since this was asked last.
    pub(super) fn was_used(&self) -> bool {
        // Ordering: Relaxed, as above.
        self.used.swap(false, Ordering::Relaxed)
    }
}

/// The connection there is, or why there is none.
pub(super) struct State {
    live: Option<Arc<Live>>,
    /// The number of the one that is live; 0: none is.
    current: watch::Sender<u64>,
    /// How many there were. Says which connection a failure was met on, so that a late one does not throw the
    /// next connection away; and which dial a waiting caller has seen fail.
    pub(super) dials: u64,
    pub(super) failure: Option<Error>,
    /// When the next dial may begin.
    pub(super) not_before: Option<Instant>,
    back_off: BackOff,
    /// There was a connection before.
    was_established: bool,
    /// Connections that were given up, and that the server is to end.
    given_up: Vec<Option<Session>>,
}

impl Default for State {
    fn default() -> Self {
        Self {
            live: None,
            current: watch::Sender::new(0),
            dials: 0,
            failure: None,
            not_before: None,
            back_off: BackOff::between_dials(),
            was_established: false,
            given_up: Vec::new(),
        }
    }
}

impl State {
    pub(super) fn usable(&self) -> Option<&Arc<Live>> {
        self.live.as_ref().filter(|live| !live.standing.has_ended())
    }

    pub(super) fn live(&self, number: u64) -> Option<Arc<Live>> {
        self.live.as_ref().filter(|live| live.number == number).cloned()
    }

    pub(super) fn current(&self) -> watch::Receiver<u64> {
        self.current.subscribe()
    }

    /// A number for the connection that is to be made, and those that the server is to end before.
    pub(super) fn begin_dial(&mut self) -> (u64, Vec<Option<Session>>) {
        // One that was not used any more, as its server has moved.
        self.given_up.extend(self.live.take().map(|live| live.session.clone()));
        self.dials += 1;
        (self.dials, self.given_up.clone())
    }

    /// A connection is made. True if there was one before.
    pub(super) fn established(&mut self, live: Arc<Live>) -> bool {
        self.current.send_replace(live.number);
        (self.live, self.failure) = (Some(live), None);
        self.given_up.clear();
        std::mem::replace(&mut self.was_established, true)
    }

    /// `random`: the runtime's.
    pub(super) fn failed(&mut self, error: Error, now: Instant, random: u64) {
        self.failure = Some(error);
        self.not_before = now.checked_add(self.back_off.next(random));
    }

    /// The connection with this number is of no use any more. False if it was not in use.
    pub(super) fn lose(
        &mut self,
        number: u64,
        now: Instant,
        pause: Duration,
        random: impl FnOnce() -> u64,
    ) -> bool {
        if self.live.as_ref().is_none_or(|live| live.number != number) {
            return false;
        }
        // Before a command can find that there is no connection, and dial.
        self.given_up.extend(self.live.take().map(|live| live.session.clone()));
        self.not_before = now.checked_add(self.back_off.next(random()) + pause);
        self.current.send_replace(0);
        true
    }

    /// The connection with this number has answered a heartbeat.
    pub(super) fn proved(&mut self, number: u64) {
        if self.live.as_ref().is_some_and(|live| live.number == number) {
            self.back_off.reset();
        }
    }
}

//! [`State`]: the connection there is, or why there is none.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::error::Error;
use super::in_flight::InFlight;
use super::live::MultiplexedConnection;
use super::live::Session;
use super::server::ServerEpoch;
use super::timing::BackOff;

/// A connection that was made. A later connection may have taken its place.
pub(crate) struct Live {
    /// Unique among the connections of one [`State`].
    pub(super) number: u64,
    pub(crate) inner: MultiplexedConnection,
    pub(super) standing: ServerEpoch,
    /// Of the commands on it.
    pub(super) in_flight: Arc<InFlight>,
    session: Option<Session>,
}

impl Drop for Live {
    fn drop(&mut self) {
        self.in_flight.end();
    }
}

impl Live {
    pub(super) fn new(
        number: u64,
        inner: MultiplexedConnection,
        standing: ServerEpoch,
        session: Option<Session>,
    ) -> Self {
        Self { number, in_flight: Arc::new(InFlight::new(&inner)), inner, standing, session }
    }
}

/// The connection there is, or why there is none.
#[derive(Default)]
pub(super) struct State {
    live: Option<Arc<Live>>,
    /// The number of the one that is live; 0: none is.
    current: watch::Sender<u64>,
    /// The count of dials, and the number of the last connection. A failure names the connection that it was
    /// met on, so that a late failure does not throw the next connection away; a waiting caller, the dial
    /// that it has seen fail.
    pub(super) dials: u64,
    pub(super) failure: Option<Error>,
    /// When the next dial may begin.
    pub(super) not_before: Option<Instant>,
    back_off: BackOff,
    /// There was a connection before.
    was_established: bool,
    /// Connections that were given up. The server is to end them.
    given_up: Vec<Option<Session>>,
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

    /// A number for the connection that is to be made, and those that the server is to end before. And the
    /// connection that is not used any more, as its server has moved.
    pub(super) fn begin_dial(&mut self) -> (u64, Vec<Option<Session>>, Option<Arc<Live>>) {
        let before = self.live.take();
        self.given_up.extend(before.as_ref().map(|live| live.session.clone()));
        self.dials += 1;
        (self.dials, self.given_up.clone(), before)
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

    /// Takes out the connection with this number, which is of no use any more. `None` if it was not in use.
    pub(super) fn lose(
        &mut self,
        number: u64,
        now: Instant,
        pause: Duration,
        random: impl FnOnce() -> u64,
    ) -> Option<Arc<Live>> {
        let live = self.live.take_if(|live| live.number == number)?;
        // Before a command can find that there is no connection, and dial.
        self.given_up.push(live.session.clone());
        self.not_before = now.checked_add(self.back_off.next(random()) + pause);
        self.current.send_replace(0);
        Some(live)
    }

    /// The connection with this number has answered a heartbeat.
    pub(super) fn proved(&mut self, number: u64) {
        if self.live.as_ref().is_some_and(|live| live.number == number) {
            self.back_off.reset();
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, DuplexStream};

    use super::super::super::fake::EVENT_LIMIT;
    use super::super::in_flight::{Limit, Place};
    use super::*;
    use crate::runtime::TokioRuntime;

    const MILLI: Duration = Duration::from_millis(1);

    /// A connection, and its other end.
    async fn live(number: u64) -> (Arc<Live>, DuplexStream) {
        let (ours, server) = tokio::io::duplex(1 << 10);
        let inner = MultiplexedConnection::over(ours, &TokioRuntime::current()).await;
        let standing = ServerEpoch::until_moved(watch::Sender::new(None).subscribe());
        (Arc::new(Live::new(number, inner, standing, None)), server)
    }

    /// With the first connection.
    async fn connected() -> (State, u64) {
        let mut state = State::default();
        let number = state.begin_dial().0;
        assert!(!state.established(live(number).await.0));
        (state, number)
    }

    /// How long the next dial waits.
    fn pause(state: &State, now: Instant) -> Duration {
        state.not_before.expect("the next dial waits") - now
    }

    #[tokio::test]
    async fn connection_is_closed_when_the_last_one_lets_go_of_it() {
        let (live, mut server) = live(1).await;
        tokio::spawn(Arc::clone(&live.in_flight).keep(TokioRuntime::current()));
        {
            let now = Instant::now();
            let limit = Limit::new(now, 2 * EVENT_LIMIT, now + 2 * EVENT_LIMIT);
            let _seated = live.in_flight.take(&live.inner, limit, Place::PASSES);
            // Its timer waits for that limit.
            tokio::task::yield_now().await;
        }
        drop(live);
        let closed = tokio::time::timeout(EVENT_LIMIT, server.read(&mut [0])).await.expect("none has it");
        assert_eq!(closed.unwrap(), 0);
    }

    #[tokio::test]
    async fn loss_of_an_earlier_connection_does_not_touch_the_one_in_use() {
        let (mut state, first) = connected().await;
        let current = state.current();
        assert_eq!(*current.borrow(), first);
        assert!(state.lose(first, Instant::now(), Duration::ZERO, || 0).is_some());
        assert!(state.usable().is_none() && *current.borrow() == 0);
        assert!(state.lose(first, Instant::now(), Duration::ZERO, || 0).is_none(), "it is lost once");
        let second = state.begin_dial().0;
        assert!(state.established(live(second).await.0), "there was one before");
        assert!(state.lose(first, Instant::now(), Duration::ZERO, || 0).is_none());
        assert!(state.usable().is_some() && *current.borrow() == second);
        assert!(state.live(first).is_none());
        assert!(state.live(second).is_some_and(|live| live.number == second));
    }

    #[tokio::test]
    async fn next_connection_that_is_made_ends_those_that_were_given_up() {
        let (mut state, first) = connected().await;
        assert!(state.lose(first, Instant::now(), Duration::ZERO, || 0).is_some());
        assert_eq!(state.begin_dial().1.len(), 1);
        state.failed(Error::runtime_ended(), Instant::now(), 0);
        let (third, given_up, _) = state.begin_dial();
        assert_eq!(given_up.len(), 1, "it may be there still");
        state.established(live(third).await.0);
        // It is in use, but its server has moved.
        assert_eq!(state.begin_dial().1.len(), 1, "that one, and not those that were ended");
        assert!(state.usable().is_none());
    }

    #[tokio::test]
    async fn pauses_grow_with_each_failure_until_a_connection_is_proved() {
        let (now, spread) = (Instant::now(), 300 * MILLI);
        let (mut state, first) = connected().await;
        assert!(state.not_before.is_none() && state.failure.is_none());
        assert!(state.lose(first, now, spread, || 0).is_some());
        assert_eq!(pause(&state, now), spread + 10 * MILLI);
        for pause_is in [20, 40, 80] {
            state.begin_dial();
            state.failed(Error::runtime_ended(), now, 0);
            assert_eq!(pause(&state, now), pause_is * MILLI);
            assert!(state.failure.is_some());
        }
        let number = state.begin_dial().0;
        state.established(live(number).await.0);
        assert!(state.failure.is_none());
        state.proved(first);
        assert!(state.lose(number, now, Duration::ZERO, || 0).is_some());
        assert_eq!(pause(&state, now), 160 * MILLI, "no heartbeat was answered since");
        state.proved(number);
        let number = state.begin_dial().0;
        state.established(live(number).await.0);
        state.proved(number);
        assert!(state.lose(number, now, Duration::ZERO, || 0).is_some());
        assert_eq!(pause(&state, now), 10 * MILLI);
        // Chance makes it longer.
        state.failed(Error::runtime_ended(), now, u64::MAX);
        assert_eq!(pause(&state, now), 40 * MILLI);
    }

    #[test]
    fn no_connection_has_the_number_that_says_that_there_is_none() {
        let mut state = State::default();
        assert_eq!(*state.current().borrow(), 0);
        assert_eq!((state.begin_dial().0, state.begin_dial().0), (1, 2));
    }
}

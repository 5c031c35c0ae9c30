//! One supervised connection to a server: dialled when it is needed, kept alive, dropped when it breaks, and
//! dialled anew.
//!
//! ```text
//!            live()                                    heartbeat answered: the back-off begins anew
//!   nothing ───────► wait out the back-off ─► dial ─► live ◄───┐
//!      ▲                                        │      │ └─────┘
//!      └───────── back-off grows ◄──────────────┘      │ it breaks, is silent, serves no commands, or
//!      └───────────────────────────────────────────────┘ its server has moved
//! ```
//!
//! All callers share one connection, one back-off, and one dial at a time.

mod address;
mod advice;
mod back_off;
mod common;
mod credentials;
mod dialer;
mod error;
mod multiplexed;
mod request;
mod runtime;
mod seats;
mod server;
mod session;
#[cfg(latchwork_simulation)]
mod simulated;
mod state;
#[cfg(latchwork_simulation)]
mod surroundings;
mod timing;
mod tls;

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ::redis::{ErrorKind as Kind, PushInfo, PushKind, RedisError, RedisResult, ServerErrorKind, Value};
use futures_util::FutureExt;

use crate::fault::fault;
use crate::runtime::Runtime;
use crate::sync::Mutex;

pub(crate) use self::address::Address;
pub(crate) use self::back_off::BackOff;
use self::back_off::random_part;
pub(crate) use self::common::Common;
pub use self::credentials::Credentials;
pub(crate) use self::dialer::{ConnectOptions, Dialer};
pub use self::error::{Error, ErrorKind};
pub(crate) use self::error::{Meaning, out_of_step};
pub(crate) use self::multiplexed::MultiplexedConnection;
use self::multiplexed::timed_out;
pub(crate) use self::request::WireRequest;
pub use self::runtime::{TokioRuntime, TokioSleep};
pub(crate) use self::server::{Boxed, Known, Push, Server, ServerEpoch};
use self::session::Session;
pub(crate) use self::state::Live;
use self::state::State;
#[cfg(latchwork_simulation)]
pub use self::surroundings::{Bytes, Surroundings};
pub(crate) use self::timing::Timing;
pub(crate) use self::tls::BUILT_IN as TLS_IS_BUILT_IN;
use super::shield::shielded;

/// The supervised connection. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Connection(Arc<Shared>);

struct Shared {
    server: Arc<dyn Server>,
    common: Arc<Common>,
    state: Mutex<State>,
    /// Held by the task that dials; the others wait for that instead of dialling themselves. Only tasks of
    /// our own do: a caller's future may be kept and not polled, and would keep all others from the store.
    dialling: tokio::sync::Mutex<()>,
    /// What comes unasked.
    push: Option<Push>,
}

/// Why a command has no reply.
#[derive(Debug)]
pub(crate) enum SendError {
    /// There was no connection to send it on.
    NotSent(Error),
    /// It was sent.
    Met(RedisError),
}

impl Connection {
    /// For commands; or for subscriptions, and `push` hears what comes unasked.
    pub(crate) fn new(server: Arc<dyn Server>, common: &Arc<Common>, push: Option<Push>) -> Self {
        let common = Arc::clone(common);
        let (state, dialling) = (Mutex::new(State::default()), tokio::sync::Mutex::default());
        Self(Arc::new(Shared { server, common, state, dialling, push }))
    }

    pub(crate) fn server(&self) -> &Arc<dyn Server> {
        &self.0.server
    }

    // === Sending ===

    /// Sends a command once, with the text of its script if the server does not know that, and waits for the
    /// reply until `give_up`, or for as long as one sending may take from `now` on.
    pub(crate) async fn send(
        &self,
        request: &WireRequest<'_>,
        asking: bool,
        now: Instant,
        give_up: Instant,
    ) -> Result<Value, SendError> {
        let runtime = &self.0.common.runtime;
        let (live, now) = match self.0.usable() {
            Some(live) => (live, now),
            // Cold: boxed, to keep the hot future small.
            None => {
                let live = Box::pin(async { shielded(pin!(self.live_until(give_up))).await });
                (live.await.map_err(SendError::NotSent)?, runtime.now())
            }
        };
        let reply = self.send_on(&live, request, false, asking, now, give_up).await;
        let reply = match reply {
            Err(error)
                if error.kind() == Kind::Server(ServerErrorKind::NoScript)
                    && !fault!(ScriptNotSentInFull) =>
            {
                let now = runtime.now();
                // It takes as long as the first one did, and that was not its fault.
                let give_up = give_up.max(now + request.patience());
                Box::pin(self.send_on(&live, request, true, asking, now, give_up)).await
            }
            reply => reply,
        };
        match reply {
            // A reply from a server that another has taken the place of means nothing.
            Ok(_) if live.standing.has_ended() => Err(RedisError::from((Kind::Io, "its place was taken"))),
            reply => reply,
        }
        .inspect_err(|error| self.0.judge(live.number, &live.standing, error))
        .map_err(SendError::Met)
    }

    /// `in_full`: with the text of its script.
    async fn send_on(
        &self,
        live: &Live,
        request: &WireRequest<'_>,
        in_full: bool,
        asking: bool,
        now: Instant,
        give_up: Instant,
    ) -> RedisResult<Value> {
        let until = if request.again { give_up.min(now + request.patience()) } else { give_up };
        let seated = live.seats.take(&live.inner, until);
        let reply = seated.send(request, in_full, asking, now, &self.0.common.runtime).await;
        live.answered(&reply);
        reply
    }

    // === Being connected ===

    /// The connection, which is dialled first if there is none.
    pub(crate) async fn live(&self) -> Result<Arc<Live>, Error> {
        let seen = {
            let state = self.0.state.lock();
            match state.usable() {
                Some(live) => return Ok(Arc::clone(live)),
                None => state.dials,
            }
        };
        // On our own runtime: the connection's task lives where it is made, and the caller's may be a
        // shorter-lived one.
        let shared = Arc::clone(&self.0);
        let dialled = self.0.common.runtime.spawn_for(async move { shared.dial_in_turn(seen).await });
        dialled.await.unwrap_or_else(|| Err(Error::runtime_ended()))
    }

    async fn live_until(&self, give_up: Instant) -> Result<Arc<Live>, Error> {
        tokio::select! {
            biased;
            live = self.live() => live,
            () = self.0.common.runtime.sleep_until(give_up) => {
                let timed_out = RedisError::from((Kind::Io, "there was no connection in time"));
                let known = self.0.state.lock().failure.clone();
                Err(known.unwrap_or_else(|| Error::connection(&self.0.server.address(), timed_out)))
            }
        }
    }

    /// The connection is of no use: another is to be dialled.
    pub(crate) fn give_up(&self, live: &Live) {
        self.0.drop_live(live.number, false);
    }

    /// Waits until the connection is no longer the one in use.
    pub(crate) async fn ended(&self, live: &Live) {
        let mut current = self.0.state.lock().current();
        let _ = current.wait_for(|number| *number != live.number).await;
    }
}

impl Shared {
    fn usable(&self) -> Option<Arc<Live>> {
        self.state.lock().usable().cloned()
    }

    /// What an error says about the connection on which it was met.
    fn judge(&self, number: u64, standing: &ServerEpoch, error: &RedisError) {
        match Meaning::of(error) {
            // A reply that did not come in time as well: the link may be cut without a word from the system,
            // and a connection that is kept would let every later command wait as long.
            Meaning::Lost => self.drop_live(number, error.is_timeout()),
            // Its name, or a virtual address, may lead elsewhere by now. One that is busy, or whose Cluster
            // is down, is the right one.
            Meaning::NotServing if !matches!(error.code(), Some("CLUSTERDOWN" | "BUSY")) => {
                self.server.invalidate(standing);
                self.drop_live(number, false);
            }
            _ => {}
        }
    }

    /// Forgets the connection, unless a later one has taken its place. `silent`: it was not told that it is
    /// broken.
    fn drop_live(&self, number: u64, silent: bool) {
        let now = self.common.runtime.now();
        // A server that is silent is so for all its clients, and they are not to come back all at once.
        let random = || self.common.runtime.random();
        let pause = if silent { random_part(self.common.timing.spread(), random()) } else { Duration::ZERO };
        if !self.state.lock().lose(number, now, pause, random) {
            return;
        }
        if self.push.is_none() {
            event!(WARN, server = &*self.server.address(), silent, "connection for commands lost");
        } else {
            event!(WARN, server = &*self.server.address(), silent, "connection for subscriptions lost");
        }
    }

    /// `seen`: how many dials had been made when the caller came.
    async fn dial_in_turn(self: Arc<Self>, seen: u64) -> Result<Arc<Live>, Error> {
        let _turn = self.dialling.lock().await;
        let not_before = {
            let state = self.state.lock();
            if let Some(live) = state.usable() {
                return Ok(Arc::clone(live));
            }
            // A dial that ended while we waited for our turn speaks for us too. Otherwise, of many callers
            // that wait before a server that is gone, the last would have to sit through the failures of all
            // before it.
            if state.dials > seen
                && let Some(failure) = &state.failure
            {
                return Err(failure.clone());
            }
            state.not_before
        };
        if let Some(not_before) = not_before {
            tokio::select! {
                biased;
                // There is another server to connect to.
                () = self.server.moved().ended() => {}
                () = self.common.runtime.sleep_until(not_before) => {}
            }
        }
        let (number, given_up) = self.state.lock().begin_dial();
        let dial = AssertUnwindSafe(self.dial(number, &given_up)).catch_unwind();
        let dialled =
            dial.await.unwrap_or_else(|panic| Err(Error::panicked(&self.server.address(), &*panic)));
        match dialled {
            Ok(live) => {
                let live = Arc::new(live);
                if self.state.lock().established(Arc::clone(&live)) {
                    self.common.reconnected();
                }
                event!(DEBUG, server = &*self.server.address(), "connected");
                let runtime = &self.common.runtime;
                runtime.spawn(tend(Arc::downgrade(&self), live.number, live.standing.clone()));
                runtime.spawn(Arc::clone(&live.seats).keep(runtime.clone()));
                Ok(live)
            }
            Err(error) => {
                event!(WARN, error = &error as &dyn std::error::Error, "cannot connect");
                let runtime = &self.common.runtime;
                self.state.lock().failed(error.clone(), runtime.now(), runtime.random());
                Err(error)
            }
        }
    }

    async fn dial(self: &Arc<Self>, number: u64, given_up: &[Option<Session>]) -> Result<Live, Error> {
        let (weak, heard) = (Arc::downgrade(self), self.push.clone());
        let push: Push = Arc::new(move |push: PushInfo| match (push.kind.clone(), &heard) {
            // Told at once when an idle connection breaks, so that the next command does not have to
            // find out.
            (PushKind::Disconnection, _) => {
                if let Some(shared) = Weak::upgrade(&weak) {
                    shared.drop_live(number, false);
                }
            }
            (_, Some(heard)) => heard(push),
            (_, None) => {}
        });
        let (mut inner, standing) = self.server.dial(push).await?;
        let broken = |error| Error::connection(&self.server.address(), error);
        let session = match self.push {
            // What is late there takes and frees nothing.
            Some(_) => None,
            None => {
                self.end_all(given_up, &mut inner).await.map_err(broken)?;
                Session::of(&mut inner).await.map_err(broken)?
            }
        };
        Ok(Live::new(number, inner, standing, session))
    }

    /// Has the server end the connections that were given up: what was sent over them may still be on its
    /// way. That is a courtesy, as a user need not be allowed it. Where it is refused, what comes late is
    /// undone.
    async fn end_all(
        &self,
        given_up: &[Option<Session>],
        connection: &mut MultiplexedConnection,
    ) -> RedisResult<()> {
        for session in given_up {
            match session {
                Some(session) => match session.end(connection).await? {
                    Ok(()) => {}
                    Err(refusal) => self.common.cannot_end(&refusal),
                },
                None => self.common.cannot_end(&RedisError::from((Kind::Client, "CLIENT INFO was refused"))),
            }
        }
        Ok(())
    }
}

/// Sends heartbeats for as long as the connection is in use.
async fn tend(shared: Weak<Shared>, number: u64, standing: ServerEpoch) {
    let Some((common, server)) =
        shared.upgrade().map(|shared| (Arc::clone(&shared.common), Arc::clone(&shared.server)))
    else {
        return;
    };
    let moved = standing.clone().ended();
    tokio::pin!(moved);
    let mut _refused = false;
    loop {
        let pause = common.timing.heartbeat_pause(common.runtime.random());
        let has_moved = tokio::select! {
            biased;
            () = &mut moved => true,
            () = common.runtime.sleep(pause) => false,
        };
        let Some(live) = shared.upgrade().and_then(|shared| shared.state.lock().live(number)) else { return };
        if has_moved {
            if let Some(shared) = shared.upgrade() {
                shared.drop_live(number, false);
            }
            return;
        }
        if !live.was_used() {
            // Dropped before the reply is awaited, which would keep the connection alive.
            let mut connection = live.inner.clone();
            drop(live);
            let beat =
                common.runtime.timeout(common.timing.heartbeat_limit(), server.heartbeat(&mut connection));
            match beat.await.unwrap_or_else(|| Err(timed_out())) {
                Err(error) if Meaning::of(&error) == Meaning::Refused => {
                    // It was allowed when the connection was made. The server does answer.
                    if !std::mem::replace(&mut _refused, true) {
                        event!(WARN, error = &error as &dyn std::error::Error, "heartbeat refused");
                    }
                }
                Err(error) => {
                    if let Some(shared) = shared.upgrade() {
                        shared.judge(number, &standing, &error);
                    }
                    // It may be kept.
                    continue;
                }
                Ok(()) => {}
            }
        }
        let Some(shared) = shared.upgrade() else { return };
        shared.state.lock().proved(number);
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("address", &self.0.server.address())
            .field("live", &self.0.usable().is_some())
            .finish_non_exhaustive()
    }
}

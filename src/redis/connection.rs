//! A supervised connection to a server: dialled on demand, kept alive, dropped and redialled when broken.
//!
//! ```text
//!            live()                                    heartbeat answered: the back-off begins anew
//!   nothing ───────► wait out the back-off ─► dial ─► live ◄───┐
//!      ▲                                        │      │ └─────┘
//!      └───────── back-off grows ◄──────────────┘      │ it breaks, is silent, serves no commands, or
//!      └───────────────────────────────────────────────┘ its server has moved
//! ```
//!
//! All callers share the connection, its back-off, and a single dial.

mod advice;
mod common;
mod dial;
mod error;
mod in_flight;
mod live;
mod request;
#[cfg(feature = "tls")]
mod tls;

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use ::redis::{Cmd, ErrorKind as Kind, PushInfo, PushKind, RedisError, RedisResult, ServerErrorKind, Value};
use futures_util::FutureExt;
use tokio::sync::watch;

use crate::support::runtime::{Runtime, TokioRuntime, shielded};
use crate::support::sync::Mutex;

use self::common::random_part;
pub(crate) use self::common::{
    BackOff, Common, MAX_REDIRECTS, MAX_TIME, MIN_RENEWAL_LIMIT, RETRY_PAUSES, Timing,
};
pub use self::dial::Credentials;
pub(crate) use self::dial::{Address, ConnectOptions, Dialer};
use self::error::is_broken;
pub use self::error::{Error, ErrorKind};
pub(crate) use self::error::{Meaning, out_of_step};
use self::in_flight::{InFlight, Place};
pub(crate) use self::live::{Boxed, Known, MultiplexedConnection, OwnedTask, Push, Server, ServerEpoch};
pub(crate) use self::request::{Line, WireRequest};

pub(crate) const TLS_IS_BUILT_IN: bool = cfg!(feature = "tls");

/// Handle to a supervised connection; cloned handles share the connection.
#[derive(Clone)]
pub(crate) struct Connection(Arc<Shared>);

struct Shared {
    server: Arc<dyn Server>,
    common: Arc<Common>,
    state: Mutex<State>,
    /// Locked only by dialling tasks, on our runtime: a caller that held it unpolled would block all others.
    dialling: tokio::sync::Mutex<()>,
    push: Option<Push>,
}

impl Connection {
    /// Creates a connection for commands, or for subscriptions if `push` is given.
    pub(crate) fn new(server: Arc<dyn Server>, common: &Arc<Common>, push: Option<Push>) -> Self {
        let common = Arc::clone(common);
        let (state, dialling) = (Mutex::new(State::default()), tokio::sync::Mutex::default());
        Self(Arc::new(Shared { server, common, state, dialling, push }))
    }

    pub(crate) fn server(&self) -> &Arc<dyn Server> {
        &self.0.server
    }

    // === Sending ===

    /// Sends a command; waits until `give_up`. A script that the server lacks goes out in full, timed anew.
    /// Queueing extends `give_up`. The error has a [meaning](Error::meaning) if the command was sent.
    pub(crate) async fn send(
        &self,
        request: &WireRequest<'_>,
        asking: bool,
        now: Instant,
        give_up: &mut Instant,
    ) -> Result<Value, Error> {
        let runtime = &self.0.common.runtime;
        let live = self.0.state.lock().usable().cloned();
        let at_once = live.and_then(|live| Some((live.in_flight.lines.try_enter(request.line)?, live)));
        let (place, live, now) = match at_once {
            Some((place, live)) => (place, live, now),
            // Cold: boxed, to keep the hot future small.
            None => {
                let entered = Box::pin(async { shielded(pin!(self.enter(request, give_up))).await });
                let (place, live) = entered.await?;
                (place, live, runtime.now())
            }
        };
        let seat = |place, now, give_up: Instant| {
            let patience = if request.again { request.patience() } else { give_up - now };
            live.in_flight.take(&live.inner, now, patience, give_up, place)
        };
        let seated = seat(place, now, *give_up);
        let reply = match seated.send(request, false, asking, now).await {
            Err(error) if error.kind() == Kind::Server(ServerErrorKind::NoScript) => {
                let now = runtime.now();
                // Whatever time the hash took, the script's text gets at least one full patience.
                let give_up = (*give_up).max(now + request.patience());
                let seated = seat(Place::PASSES, now, give_up);
                Box::pin(seated.send(request, true, asking, now)).await
            }
            reply => reply,
        };
        match reply {
            // A reply from a replaced server is void.
            Ok(_) if live.standing.has_ended() => Err(RedisError::from((Kind::Io, "its place was taken"))),
            reply => reply,
        }
        .map_err(|met| {
            // If other commands are answered, a timeout means a late reply, not a cut link.
            if !met.is_timeout() || live.in_flight.is_silent() {
                self.0.judge(live.number, &live.standing, &met);
            }
            request.error(&self.0.server.address(), runtime.now(), met)
        })
    }

    /// Waits for a connection, and for room on that connection.
    async fn enter(
        &self,
        request: &WireRequest<'_>,
        give_up: &mut Instant,
    ) -> Result<(Place, Arc<Live>), Error> {
        let (runtime, line) = (&self.0.common.runtime, request.line);
        loop {
            let live = self.live_until(*give_up).await?;
            let (begun, answers) = (runtime.now(), live.in_flight.answers());
            let place = {
                let _waits = self.0.common.waits_in_line();
                live.in_flight.enter(line).await
            };
            // Queueing counts against the limit only if the connection ended without a reply meanwhile.
            if place.is_some() || live.in_flight.answers() != answers {
                *give_up += runtime.now() - begun;
            }
            if let Some(place) = place {
                return Ok((place, live));
            }
        }
    }

    // === Being connected ===

    /// Returns the connection, after dialling if there is none.
    pub(crate) async fn live(&self) -> Result<Arc<Live>, Error> {
        let seen = {
            let state = self.0.state.lock();
            match state.usable() {
                Some(live) => return Ok(Arc::clone(live)),
                None => state.latest_dial,
            }
        };
        // On our runtime, where the connection's task will live: the caller's runtime may end earlier.
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

    /// Drops the connection; the next caller dials another.
    pub(crate) fn give_up(&self, live: &Live) {
        self.0.drop_live(live.number, false);
    }

    pub(crate) async fn ended(&self, live: &Live) {
        let mut current = self.0.state.lock().current.subscribe();
        let _ = current.wait_for(|number| *number != live.number).await;
    }
}

impl Shared {
    /// Drops the connection if `error` proves it unusable.
    fn judge(&self, number: u64, standing: &ServerEpoch, error: &RedisError) {
        match Meaning::of(error) {
            // A timeout may be a link that was cut without notice: later commands would wait as long.
            Meaning::Lost => self.drop_live(number, error.is_timeout()),
            // The server's name, or a virtual address, may lead to another server by now. A busy server, or a
            // node of a Cluster that is down, is still the right server.
            Meaning::NotServing if !matches!(error.code(), Some("CLUSTERDOWN" | "BUSY")) => {
                self.server.invalidate(standing);
                self.drop_live(number, false);
            }
            _ => {}
        }
    }

    /// Drops the connection if still in use. `silent`: the system has not reported the breakage.
    fn drop_live(&self, number: u64, silent: bool) {
        let now = self.common.runtime.now();
        // A silent server is silent for all its clients: spread their redials.
        let random = || self.common.runtime.random();
        let pause = if silent { random_part(self.common.timing.spread(), random()) } else { Duration::ZERO };
        let Some(live) = self.state.lock().lose(number, now, pause, random) else { return };
        live.in_flight.lines.close();
        if self.push.is_none() {
            event!(WARN, server = &*self.server.address(), silent, "connection for commands lost");
        } else {
            event!(WARN, server = &*self.server.address(), silent, "connection for subscriptions lost");
        }
    }

    /// `seen`: number of the latest dial when the caller came.
    async fn dial_in_turn(self: Arc<Self>, seen: u64) -> Result<Arc<Live>, Error> {
        let _turn = self.dialling.lock().await;
        let not_before = {
            let state = self.state.lock();
            if let Some(live) = state.usable() {
                return Ok(Arc::clone(live));
            }
            // Share the failure of a dial that ended while we waited for the mutex. Otherwise, the last of
            // many callers would sit through the failures of all callers before it.
            if state.latest_dial > seen
                && let Some(failure) = &state.failure
            {
                return Err(failure.clone());
            }
            state.not_before
        };
        if let Some(not_before) = not_before {
            let runtime = &self.common.runtime;
            let pause = not_before.saturating_duration_since(runtime.now());
            // If the server moves, dial the new address at once.
            runtime.timeout(pause, self.server.epoch().ended()).await;
        }
        let (number, given_up, unused) = self.state.lock().begin_dial();
        if let Some(unused) = unused {
            unused.in_flight.lines.close();
        }
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

    async fn dial(self: &Arc<Self>, number: u64, given_up: &[Option<Cmd>]) -> Result<Live, Error> {
        let (weak, heard) = (Arc::downgrade(self), self.push.clone());
        let push: Push = Arc::new(move |push: PushInfo| match (push.kind.clone(), &heard) {
            // Drop an idle connection as soon as it breaks, before a command fails.
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
        let end = match self.push {
            // None: late commands on a subscription connection do no harm.
            Some(_) => None,
            None => {
                self.end_all(given_up, &mut inner).await.map_err(broken)?;
                live::end_of(&mut inner).await.map_err(broken)?
            }
        };
        Ok(Live::new(number, inner, standing, end, &self.common.runtime))
    }

    /// Has the server close the connections that were given up: their commands may still arrive. If refused,
    /// rollbacks are repeated while [commands may come late](Common::may_come_late).
    async fn end_all(
        &self,
        given_up: &[Option<Cmd>],
        connection: &mut MultiplexedConnection,
    ) -> RedisResult<()> {
        for end in given_up {
            let refusal = match end {
                None => (Kind::Client, "CLIENT INFO was refused").into(),
                Some(end) => match end.exec_async(connection).await {
                    Ok(()) => continue,
                    Err(error) if is_broken(&error) => return Err(error),
                    Err(refusal) => refusal,
                },
            };
            self.common.cannot_end(&refusal);
        }
        Ok(())
    }
}

/// An established connection; a later connection may have replaced it.
pub(crate) struct Live {
    number: u64,
    pub(crate) inner: MultiplexedConnection,
    standing: ServerEpoch,
    in_flight: Arc<InFlight>,
    end: Option<Cmd>,
    _timer: OwnedTask,
}

impl Live {
    fn new(
        number: u64,
        inner: MultiplexedConnection,
        standing: ServerEpoch,
        end: Option<Cmd>,
        runtime: &TokioRuntime,
    ) -> Self {
        let in_flight = Arc::new(InFlight::new(&inner));
        let _timer = OwnedTask::spawn(runtime, Arc::clone(&in_flight).keep(runtime.clone()));
        Self { number, inner, standing, in_flight, end, _timer }
    }
}

/// The current connection, or the latest failure and the back-off.
#[derive(Default)]
struct State {
    live: Option<Arc<Live>>,
    /// Number of the live connection; 0 if there is none.
    current: watch::Sender<u64>,
    /// Number of the latest dial: a late failure drops only the connection of its own dial.
    latest_dial: u64,
    failure: Option<Error>,
    not_before: Option<Instant>,
    back_off: BackOff,
    was_established: bool,
    given_up: Vec<Option<Cmd>>,
}

impl State {
    fn usable(&self) -> Option<&Arc<Live>> {
        self.live.as_ref().filter(|live| !live.standing.has_ended())
    }

    fn live(&self, number: u64) -> Option<Arc<Live>> {
        self.live.as_ref().filter(|live| live.number == number).cloned()
    }

    /// Returns the new connection's number, the sessions to close, and the connection that is replaced.
    fn begin_dial(&mut self) -> (u64, Vec<Option<Cmd>>, Option<Arc<Live>>) {
        let before = self.live.take();
        self.given_up.extend(before.as_ref().map(|live| live.end.clone()));
        self.latest_dial += 1;
        (self.latest_dial, self.given_up.clone(), before)
    }

    /// Stores the new connection. Returns true if there was an earlier connection.
    fn established(&mut self, live: Arc<Live>) -> bool {
        self.current.send_replace(live.number);
        (self.live, self.failure) = (Some(live), None);
        self.given_up.clear();
        std::mem::replace(&mut self.was_established, true)
    }

    fn failed(&mut self, error: Error, now: Instant, random: u64) {
        self.failure = Some(error);
        self.not_before = now.checked_add(self.back_off.next(random));
    }

    /// Removes the connection with this number, which is unusable. Returns `None` if it is not in use.
    fn lose(
        &mut self,
        number: u64,
        now: Instant,
        pause: Duration,
        random: impl FnOnce() -> u64,
    ) -> Option<Arc<Live>> {
        let live = self.live.take_if(|live| live.number == number)?;
        // Under the same lock as the removal: a command may dial at once, and must end this connection.
        self.given_up.push(live.end.clone());
        self.not_before = now.checked_add(self.back_off.next(random()) + pause);
        self.current.send_replace(0);
        Some(live)
    }

    /// Resets the back-off: the connection with this number has answered a heartbeat.
    fn proved(&mut self, number: u64) {
        if self.live.as_ref().is_some_and(|live| live.number == number) {
            self.back_off.reset();
        }
    }
}

/// Sends heartbeats while the connection is in use.
async fn tend(shared: Weak<Shared>, number: u64, standing: ServerEpoch) {
    let Some(common) = shared.upgrade().map(|shared| Arc::clone(&shared.common)) else { return };
    let moved = standing.clone().ended();
    tokio::pin!(moved);
    let (mut _refused, mut answers) = (false, 0);
    loop {
        let pause = common.timing.heartbeat_pause(common.runtime.random());
        let has_moved = common.runtime.timeout(pause, &mut moved).await.is_some();
        let Some(shared) = shared.upgrade() else { return };
        let Some(live) = shared.state.lock().live(number) else { return };
        if has_moved {
            shared.drop_live(number, false);
            return;
        }
        // A reply to any command stands in for a heartbeat's.
        let before = std::mem::replace(&mut answers, live.in_flight.answers());
        if answers == before {
            let mut connection = live.inner.clone();
            connection.limit(common.timing.heartbeat_limit());
            match shared.server.heartbeat(&mut connection).await {
                Err(error) if Meaning::of(&error) == Meaning::Refused => {
                    // The permission was withdrawn after the dial. A refusal proves that the server answers.
                    if !std::mem::replace(&mut _refused, true) {
                        event!(WARN, error = &error as &dyn std::error::Error, "heartbeat refused");
                    }
                }
                Err(error) => {
                    shared.judge(number, &standing, &error);
                    // The connection may survive the error.
                    continue;
                }
                Ok(()) => {}
            }
        }
        shared.state.lock().proved(number);
    }
}

/// In tests that pause the clock, it jumps to the next timer when all tasks wait.
#[cfg(test)]
mod tests {
    use ::redis::cmd;
    use futures_util::future::{join, join_all};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};
    use tokio::time::{sleep, timeout};

    use super::super::fake::{EVENT_LIMIT, next_command};
    use super::*;

    const MOMENT: Duration = Duration::from_millis(100);
    const SECOND: Duration = Duration::from_secs(1);
    /// The longest first pause between two dials. Timers of tokio fire a millisecond late.
    const FIRST_DIAL_PAUSE: Duration = Duration::from_millis(22);
    /// A limit whose patience for one sending is one second.
    const LIMIT: Duration = Duration::from_secs(3);
    const SILENT: Duration = Duration::MAX;

    struct FakeServer {
        runtime: TokioRuntime,
        known: watch::Sender<Known>,
        told: Arc<Mutex<Told>>,
    }

    #[derive(Default)]
    struct Told {
        dials: Vec<Instant>,
        /// The number of further dials that fail.
        fails: usize,
        pushes: Vec<Push>,
        /// Connection number, time of arrival and text of each command.
        commands: Vec<(usize, Instant, String)>,
        /// Command prefix, delay and reply. The delay `SILENT` silences the connection for good.
        replies: Vec<(&'static str, Duration, &'static str)>,
        invalidations: usize,
    }

    impl Server for FakeServer {
        fn address(&self) -> Arc<str> {
            "fake".into()
        }

        fn dial(&self, push: Push) -> Boxed<'_, Result<(MultiplexedConnection, ServerEpoch), Error>> {
            let mut told = self.told.lock();
            told.dials.push(self.runtime.now());
            if told.fails > 0 {
                told.fails -= 1;
                let refused = RedisError::from((Kind::Io, "refused"));
                return Box::pin(async { Err(Error::connection("fake", refused)) });
            }
            let (ours, theirs) = tokio::io::duplex(1 << 16);
            self.runtime.spawn(serve(
                Arc::clone(&self.told),
                told.pushes.len(),
                theirs,
                self.runtime.clone(),
            ));
            told.pushes.push(push);
            let standing = self.epoch();
            Box::pin(async move { Ok((MultiplexedConnection::over(ours, &self.runtime).await, standing)) })
        }

        fn heartbeat<'a>(&'a self, connection: &'a mut MultiplexedConnection) -> Boxed<'a, RedisResult<()>> {
            Box::pin(async { cmd("PING").exec_async(connection).await })
        }

        fn invalidate(&self, _: &ServerEpoch) {
            self.told.lock().invalidations += 1;
        }

        fn known(&self) -> &watch::Sender<Known> {
            &self.known
        }
    }

    async fn serve(told: Arc<Mutex<Told>>, number: usize, stream: DuplexStream, runtime: TokioRuntime) {
        let mut stream = BufReader::new(stream);
        let mut is_silent = false;
        while let Some(command) = next_command(&mut stream).await {
            let (takes, reply) = {
                let mut told = told.lock();
                let reply = told.replies.iter().find(|(begin, ..)| command.starts_with(begin));
                let reply = reply.map_or((Duration::ZERO, "+OK"), |(_, takes, reply)| (*takes, *reply));
                told.commands.push((number, runtime.now(), command));
                reply
            };
            is_silent |= takes == SILENT;
            if !is_silent {
                sleep(takes).await;
                let _ = stream.write_all(format!("{reply}\r\n").as_bytes()).await;
            }
        }
    }

    struct Stage {
        fake: Arc<FakeServer>,
        common: Arc<Common>,
        connection: Connection,
    }

    impl Stage {
        fn new(heartbeat: Duration, push: Option<Push>) -> Self {
            let runtime = TokioRuntime::current();
            let timing = Timing { heartbeat, ..Timing::default() };
            let common = Arc::new(Common::new(timing, runtime.clone()));
            let fake = FakeServer { runtime, known: watch::Sender::new(None), told: Arc::default() };
            let fake = Arc::new(fake);
            let connection = Connection::new(Arc::clone(&fake) as Arc<dyn Server>, &common, push);
            let stage = Self { fake, common, connection };
            stage.reply("CLIENT INFO", Duration::ZERO, "+id=7 addr=10.0.0.1:5");
            stage.reply("CLIENT KILL", Duration::ZERO, ":1");
            stage
        }

        fn quiet() -> Self {
            Self::new(1000 * SECOND, None)
        }

        fn reply(&self, to: &'static str, takes: Duration, reply: &'static str) {
            self.fake.told.lock().replies.insert(0, (to, takes, reply));
        }

        async fn live(&self) -> Arc<Live> {
            self.connection.live().await.unwrap()
        }

        /// Sends one command over an established connection; returns the reply and the time taken.
        async fn send(&self, again: bool, give_up: Duration) -> (Result<Value, Error>, Duration) {
            self.live().await;
            let words = |command: &mut Cmd, _: Instant| _ = command.arg("GET");
            let request = WireRequest { again, ..WireRequest::plain(&words, LIMIT) };
            let now = self.common.runtime.now();
            let reply =
                timeout(2 * LIMIT, self.connection.send(&request, false, now, &mut (now + give_up))).await;
            (reply.expect("it ends"), self.common.runtime.now() - now)
        }

        /// The time until a lost connection is redialled.
        async fn is_back_after(&self) -> Duration {
            let (lost, dials) = (self.common.runtime.now(), self.fake.told.lock().dials.len());
            self.live().await;
            self.fake.told.lock().dials[dials] - lost
        }

        async fn after_many_failures(heartbeat: Duration) -> Self {
            let stage = Self::new(heartbeat, None);
            stage.fake.told.lock().fails = 6;
            for _ in 0..6 {
                assert!(stage.connection.live().await.is_err());
            }
            stage.live().await;
            stage
        }

        /// The arrival times of the commands with this prefix on this connection.
        fn came(&self, over: usize, begin: &str) -> Vec<Instant> {
            let told = self.fake.told.lock();
            let came = told.commands.iter().filter(|(at, _, said)| *at == over && said.starts_with(begin));
            came.map(|(_, at, _)| *at).collect()
        }
    }

    fn is_timeout(reply: &Result<Value, Error>) -> bool {
        matches!(reply, Err(error) if error.redis_error().is_some_and(RedisError::is_timeout))
    }

    // === Sending ===

    #[tokio::test(start_paused = true)]
    async fn resendable_command_waits_a_third_of_its_limit_and_the_rest() {
        let stage = Stage::quiet();
        stage.reply("GET", SILENT, "");
        for (again, give_up, waits) in
            [(true, LIMIT, LIMIT / 3), (false, LIMIT, LIMIT), (true, 2 * MOMENT, 2 * MOMENT)]
        {
            let (reply, took) = stage.send(again, give_up).await;
            assert!(is_timeout(&reply), "{reply:?}");
            assert!((waits..waits + MOMENT).contains(&took), "{took:?} of {waits:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn script_sent_in_full_has_the_same_limit_as_by_its_hash() {
        let stage = Stage::quiet();
        stage.live().await;
        stage.reply("EVALSHA", 9 * MOMENT, "-NOSCRIPT No matching script.");
        stage.reply("EVAL text", 9 * MOMENT, "+ran");
        let words = |_: &mut Cmd, _: Instant| {};
        let request = WireRequest { script: Some(("hash", "text")), ..WireRequest::plain(&words, LIMIT) };
        let now = stage.common.runtime.now();
        let reply = stage.connection.send(&request, false, now, &mut (now + SECOND)).await;
        assert_eq!(reply.unwrap(), Value::SimpleString("ran".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn reply_of_a_server_that_was_replaced_meanwhile_means_nothing() {
        let stage = Stage::quiet();
        stage.live().await;
        stage.reply("GET", 2 * MOMENT, "+old");
        let moves = async {
            sleep(MOMENT).await;
            stage.fake.known.send_replace(Some("elsewhere".into()));
        };
        let ((reply, _), ()) = join(stage.send(true, LIMIT), moves).await;
        assert!(
            reply.as_ref().is_err_and(|error| error.meaning().is_some()) && !is_timeout(&reply),
            "{reply:?}"
        );
    }

    // === Being connected ===

    #[tokio::test(start_paused = true)]
    async fn waiting_callers_share_a_failed_dial_and_later_ones_back_off() {
        let stage = Stage::quiet();
        stage.fake.told.lock().fails = 100;
        let all = join_all((0..5).map(|_| stage.connection.live())).await;
        assert!(all.iter().all(Result::is_err));
        assert_eq!(stage.fake.told.lock().dials.len(), 1);
        for _ in 0..7 {
            assert!(stage.connection.live().await.is_err());
        }
        let dials = stage.fake.told.lock().dials.clone();
        assert_eq!(dials.len(), 8);
        let mut limit = FIRST_DIAL_PAUSE;
        for pair in dials.windows(2) {
            let pause = pair[1] - pair[0];
            assert!((limit * 4 / 10..=limit).contains(&pause), "{pause:?} of {limit:?}");
            limit = (2 * limit).min(SECOND + MOMENT);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn callers_that_wait_for_a_dial_share_its_connection() {
        let stage = Stage::quiet();
        let all = join_all((0..5).map(|_| stage.live())).await;
        assert!(all.iter().all(|live| Arc::ptr_eq(live, &all[0])));
        assert_eq!(stage.fake.told.lock().dials.len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn connection_that_is_told_to_be_lost_is_dialled_anew_at_once() {
        // Repeated: a wrong, longer random pause may by chance be this short, though rarely three times.
        for round in 0..3 {
            let stage = Stage::quiet();
            stage.live().await;
            assert!(stage.connection.0.state.lock().usable().is_some());
            let push = Arc::clone(&stage.fake.told.lock().pushes[0]);
            push(PushInfo { kind: PushKind::Disconnection, data: Vec::new() });
            assert!(stage.connection.0.state.lock().usable().is_none());
            let pause = stage.is_back_after().await;
            assert!(
                pause <= FIRST_DIAL_PAUSE,
                "{round}: expected a dial soon after the connection's end, and it is due in {pause:?}"
            );

            let stage = Stage::quiet();
            let live = stage.live().await;
            stage.connection.give_up(&live);
            timeout(MOMENT, stage.connection.ended(&live)).await.expect("it is in use");
            let pause = stage.is_back_after().await;
            assert!(
                pause <= FIRST_DIAL_PAUSE,
                "{round}: expected a dial soon after the loss of the connection, and it is due in {pause:?}"
            );

            let stage = Stage::quiet();
            stage.reply("GET", Duration::ZERO, "-READONLY You can't write against a read only replica.");
            assert!(stage.send(true, LIMIT).await.0.is_err());
            assert_eq!(stage.fake.told.lock().invalidations, 1);
            let pause = stage.is_back_after().await;
            assert!(
                pause <= FIRST_DIAL_PAUSE,
                "{round}: expected a dial soon after a replica's refusal, and it is due in {pause:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clients_of_a_silent_server_come_back_one_by_one() {
        let mut pauses = Vec::new();
        for _ in 0..5 {
            let stage = Stage::quiet();
            stage.reply("GET", SILENT, "");
            assert!(is_timeout(&stage.send(true, LIMIT).await.0));
            pauses.push(stage.is_back_after().await);
        }
        let spread = Timing::default().spread();
        assert!(pauses.iter().all(|pause| *pause <= spread + FIRST_DIAL_PAUSE), "{pauses:?}");
        assert!(pauses.iter().any(|pause| *pause > FIRST_DIAL_PAUSE), "{pauses:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn connection_to_a_busy_or_clusterless_server_is_kept() {
        let stage = Stage::quiet();
        let live = stage.live().await;
        for refusal in
            ["-BUSY Redis is busy running a script.", "-CLUSTERDOWN The cluster is down", "-ERR no"]
        {
            stage.reply("GET", Duration::ZERO, refusal);
            assert!(stage.send(true, LIMIT).await.0.is_err());
            assert_eq!(stage.live().await.number, live.number, "{refusal}");
        }
        assert_eq!(stage.fake.told.lock().invalidations, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn abandoned_connection_is_ended_or_its_late_commands_awaited() {
        let lose = async |stage: &Stage| {
            stage.connection.give_up(&*stage.live().await);
            stage.live().await;
        };
        let stage = Stage::quiet();
        lose(&stage).await;
        assert_eq!(stage.came(1, "CLIENT KILL ID 7 ADDR 10.0.0.1:5").len(), 1);
        assert!(!stage.common.may_come_late());

        for refused in ["CLIENT KILL", "CLIENT INFO"] {
            let stage = Stage::quiet();
            stage.reply(refused, Duration::ZERO, "-NOPERM no permissions");
            lose(&stage).await;
            assert!(stage.common.may_come_late(), "{refused}");
        }

        let stage = Stage::new(1000 * SECOND, Some(Arc::new(|_| {})));
        lose(&stage).await;
        assert!(stage.came(1, "CLIENT").is_empty());
    }

    // === Heartbeats ===

    #[tokio::test(start_paused = true)]
    async fn idle_connection_has_a_heartbeat_each_second_on_average() {
        let stage = Stage::new(SECOND, None);
        stage.live().await;
        sleep(100 * SECOND).await;
        let beats = stage.came(0, "PING");
        assert!(beats.len() > 75, "{}", beats.len());
        for pair in beats.windows(2) {
            let pause = pair[1] - pair[0];
            assert!((SECOND * 3 / 4..SECOND * 5 / 4 + FIRST_DIAL_PAUSE).contains(&pause), "{pause:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn connection_in_use_has_no_heartbeats() {
        let stage = Stage::new(SECOND, None);
        for _ in 0..50 {
            stage.send(true, LIMIT).await.0.unwrap();
            sleep(MOMENT).await;
        }
        assert_eq!(stage.came(0, "PING").len(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn connection_whose_heartbeat_is_not_answered_is_lost() {
        let stage = Stage::new(SECOND, None);
        stage.reply("PING", SILENT, "");
        let live = stage.live().await;
        timeout(SECOND * 5 / 2, stage.connection.ended(&live)).await.expect("it is in use");
    }

    #[tokio::test(start_paused = true)]
    async fn connection_to_a_server_that_was_replaced_is_left_at_once() {
        for _ in 0..3 {
            let stage = Stage::new(SECOND, None);
            let live = stage.live().await;
            stage.fake.known.send_replace(Some("elsewhere".into()));
            timeout(MOMENT, stage.connection.ended(&live)).await.expect("it is in use");
            let pause = stage.is_back_after().await;
            assert!(pause <= FIRST_DIAL_PAUSE, "{pause:?}");
            sleep(10 * SECOND).await;
            assert!(stage.came(0, "PING").is_empty() && !stage.came(1, "PING").is_empty());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn answered_or_refused_heartbeat_resets_the_back_off() {
        for reply in ["+PONG", "-NOPERM no permissions"] {
            let stage = Stage::after_many_failures(SECOND).await;
            stage.reply("PING", Duration::ZERO, reply);
            let live = stage.live().await;
            sleep(2 * SECOND).await;
            stage.connection.give_up(&live);
            let pause = stage.is_back_after().await;
            assert!(pause <= FIRST_DIAL_PAUSE, "{pause:?} after {reply}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn heartbeat_refused_by_a_busy_server_keeps_the_back_off() {
        let stage = Stage::after_many_failures(SECOND).await;
        stage.reply("PING", Duration::ZERO, "-BUSY Redis is busy running a script.");
        let live = stage.live().await;
        sleep(4 * SECOND).await;
        assert_eq!(stage.live().await.number, live.number);
        stage.connection.give_up(&live);
        let pause = stage.is_back_after().await;
        assert!(pause > SECOND / 3, "{pause:?}");
    }

    // === The connection there is ===

    const MILLI: Duration = Duration::from_millis(1);

    async fn live(number: u64) -> (Arc<Live>, DuplexStream) {
        let (ours, server) = tokio::io::duplex(1 << 10);
        let inner = MultiplexedConnection::over(ours, &TokioRuntime::current()).await;
        let standing = ServerEpoch::until_moved(watch::Sender::new(None).subscribe());
        (Arc::new(Live::new(number, inner, standing, None, &TokioRuntime::current())), server)
    }

    async fn connected() -> (State, u64) {
        let mut state = State::default();
        let number = state.begin_dial().0;
        assert!(!state.established(live(number).await.0));
        (state, number)
    }

    fn pause(state: &State, now: Instant) -> Duration {
        state.not_before.expect("the next dial waits") - now
    }

    #[tokio::test]
    async fn connection_is_closed_when_the_last_one_lets_go_of_it() {
        let (live, mut server) = live(1).await;
        {
            let now = Instant::now();
            let limit = 2 * EVENT_LIMIT;
            let _seated = live.in_flight.take(&live.inner, now, limit, now + limit, Place::PASSES);
            tokio::task::yield_now().await;
        }
        drop(live);
        let closed = tokio::time::timeout(EVENT_LIMIT, server.read(&mut [0])).await.expect("none has it");
        assert_eq!(closed.unwrap(), 0);
    }

    #[tokio::test]
    async fn loss_of_an_earlier_connection_does_not_touch_the_one_in_use() {
        let (mut state, first) = connected().await;
        let current = state.current.subscribe();
        assert_eq!(*current.borrow(), first);
        assert!(state.lose(first, Instant::now(), Duration::ZERO, || 0).is_some());
        assert!(state.usable().is_none() && *current.borrow() == 0);
        assert!(
            state.lose(first, Instant::now(), Duration::ZERO, || 0).is_none(),
            "expected one loss of a connection"
        );
        let second = state.begin_dial().0;
        assert!(state.established(live(second).await.0), "expected a report of the earlier connection");
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
        assert_eq!(given_up.len(), 1, "expected one abandoned connection, which may stand still");
        state.established(live(third).await.0);
        // As after a move of its server: a dial begins while the third connection is in use.
        assert_eq!(
            state.begin_dial().1.len(),
            1,
            "expected the third connection only, as the others were ended"
        );
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
        assert_eq!(
            pause(&state, now),
            160 * MILLI,
            "expected a longer pause, as no heartbeat was answered since"
        );
        state.proved(number);
        let number = state.begin_dial().0;
        state.established(live(number).await.0);
        state.proved(number);
        assert!(state.lose(number, now, Duration::ZERO, || 0).is_some());
        assert_eq!(pause(&state, now), 10 * MILLI);
        state.failed(Error::runtime_ended(), now, u64::MAX);
        assert_eq!(pause(&state, now), 40 * MILLI);
    }

    #[test]
    fn no_connection_has_the_number_that_says_that_there_is_none() {
        let mut state = State::default();
        assert_eq!(*state.current.subscribe().borrow(), 0);
        assert_eq!((state.begin_dial().0, state.begin_dial().0), (1, 2));
    }
}

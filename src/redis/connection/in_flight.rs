//! [`InFlight`]: the commands in flight on one connection. Each command has a reusable [`Seat`].
//!
//! Nearly every command is answered long before its limit, so commands have no timers of their own: the
//! connection's single timer checks all limits when the earliest known limit is due.
//!
//! Replies come in the order of the commands, so any reply shows that the server answers, and begins all
//! limits anew. The timer checks a limit at its half and at its end, after a turn of the reader. That turn
//! also writes commands, so even on a late runtime half the limit is left for the reply.
//!
//! [`Lines`]: room on a connection for [`MAX_IN_FLIGHT`] commands of each kind. Further commands queue before
//! the connection, first come, first served: on the wire, a crowd would fill the memory and time out.
//!
//! A permit lets one command begin, which then counts as under way until it is answered. An unpolled caller
//! does not block the queue: [`Lines::invite`] replaces unused permits at every
//! [`INVITATION_LIMIT`](super::common::INVITATION_LIMIT). If that caller begins after all, more than
//! [`MAX_IN_FLIGHT`] commands are under way, and no permit is added until they are fewer.

use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use ::redis::{Cmd, RedisResult, Value};
use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::task::coop::unconstrained;

use crate::AsyncSemaphore;
use crate::support::foreign::call;
use crate::support::runtime::{Runtime, TokioRuntime};
use crate::support::sync::Mutex;
use crate::support::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use super::common::{INVITATION_LIMIT, MAX_IN_FLIGHT};
use super::live::{MultiplexedConnection, Reader, Unlimited, timed_out};
use super::request::{Line, WireRequest};

pub(super) struct InFlight {
    state: Mutex<State>,
    pub(super) lines: Arc<Lines>,
    reader: Arc<Reader>,
    /// Notifies the timer of an earlier limit, or of a waiter.
    earlier: Notify,
    answers: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    /// Indexed by seat number.
    all: Vec<(Option<Limit>, Arc<Caller>)>,
    #[expect(clippy::vec_box, reason = "a seat is large, and goes in and out with each command")]
    free: Vec<Box<Seat>>,
    /// Time of the timer's next check; `None` if no limit is known.
    looks_at: Option<Instant>,
    /// True once a command's whole patience has passed without any reply.
    is_silent: bool,
}

/// The limit of a command's wait for its reply.
#[derive(Clone, Copy)]
struct Limit {
    at: Instant,
    /// Time to the first check, and from the first to the second.
    half: Duration,
    was_looked_at: bool,
    /// Longest time without any reply.
    patience: Duration,
    give_up: Instant,
    /// The count of replies at the limit's beginning.
    answers: u64,
}

impl Limit {
    fn new(now: Instant, patience: Duration, give_up: Instant, answers: u64) -> Self {
        // Rounded up: a command that ends just before `give_up` would be sent once more.
        let left = patience.min(give_up.saturating_duration_since(now));
        let half = left - left / 2;
        Self { at: now + half, half, was_looked_at: false, patience, give_up, answers }
    }
}

struct Seat {
    number: usize,
    caller: Arc<Caller>,
    waker: Waker,
    connection: Unlimited,
    command: Cmd,
}

/// Wakes the task that awaits a reply; called by the redis crate's tasks, which a panic would end.
struct Caller {
    state: Mutex<Awaits>,
    answers: Arc<AtomicU64>,
}

#[derive(Default)]
struct Awaits {
    waker: Option<Waker>,
    is_over: bool,
    place: Option<Place>,
}

pub(super) struct InSeat<'a> {
    in_flight: &'a InFlight,
    seat: Option<Box<Seat>>,
}

impl InFlight {
    pub(super) fn new(connection: &MultiplexedConnection) -> Self {
        let (reader, earlier) = (Arc::clone(&connection.reader), Notify::new());
        Self { state: Mutex::default(), lines: Arc::default(), reader, earlier, answers: Arc::default() }
    }

    /// Waits in the queue for room. Returns `None` if the connection is out of use.
    pub(super) async fn enter(&self, line: Line) -> Option<Place> {
        let mut entered = pin!(self.lines.enter(line));
        if let Some(place) = entered.as_mut().now_or_never() {
            return place;
        }
        // After queueing: the timer reads the queues from now on.
        self.earlier.notify_one();
        entered.await
    }

    /// Takes a seat for a command over `connection`, to which `self` belongs. `patience`: longest time
    /// without any reply.
    pub(super) fn take(
        &self,
        connection: &MultiplexedConnection,
        now: Instant,
        patience: Duration,
        give_up: Instant,
        place: Place,
    ) -> InSeat<'_> {
        let limit = Limit::new(now, patience, give_up, self.answers());
        let (seat, is_earlier) = {
            let mut state = self.state.lock();
            let seat = state
                .free
                .pop()
                .unwrap_or_else(|| Box::new(Seat::new(&mut state.all, connection, &self.answers)));
            state.all[seat.number].0 = Some(limit);
            let is_earlier = state.looks_at.is_none_or(|earliest| limit.at < earliest);
            if is_earlier {
                state.looks_at = Some(limit.at);
            }
            (seat, is_earlier)
        };
        if is_earlier {
            self.earlier.notify_one();
        }
        {
            let mut awaits = seat.caller.state.lock();
            (awaits.is_over, awaits.place) = (false, Some(place));
        }
        InSeat { in_flight: self, seat: Some(seat) }
    }

    /// Runs the timer: wakes callers whose limits are over, until the runtime ends.
    pub(super) async fn keep(self: Arc<Self>, runtime: TokioRuntime) {
        let (mut due, mut invites) = (runtime.now(), None);
        while !runtime.has_ended() {
            let (earlier, next) = (self.earlier.notified(), self.look(due, runtime.now()));
            // Waiters that come meanwhile do not postpone the invitation.
            let at = invites.unwrap_or_else(|| runtime.now() + INVITATION_LIMIT);
            invites = self.lines.have_waiters().then_some(at);
            match next.into_iter().chain(invites).min() {
                None => earlier.await,
                Some(next) => tokio::select! {
                    biased;
                    () = earlier => {}
                    () = runtime.sleep_until(next) => {
                        due = next;
                        self.reader.turn().await;
                        if invites.take_if(|at| *at <= next).is_some() {
                            self.lines.invite();
                        }
                    }
                },
            }
        }
    }

    /// Checks the limits that were due before the reader ran, and wakes the callers whose limits are over.
    /// Returns the time of the next check.
    fn look(&self, due: Instant, now: Instant) -> Option<Instant> {
        let (mut over, answers) = (Vec::new(), self.answers());
        let next = {
            let mut state = self.state.lock();
            let State { all, looks_at, is_silent, .. } = &mut *state;
            for (watched, caller) in &mut *all {
                let Some(limit) = watched.as_mut().filter(|limit| limit.at <= due) else { continue };
                let no_reply = limit.answers == answers;
                if !no_reply && due < limit.give_up {
                    *limit = Limit::new(now, limit.patience, limit.give_up, answers);
                } else if limit.was_looked_at {
                    // A command with less time than its patience proves nothing about the connection.
                    *is_silent |= no_reply && 2 * limit.half >= limit.patience;
                    *watched = None;
                    caller.state.lock().is_over = true;
                    over.push(Arc::clone(caller));
                } else {
                    (limit.at, limit.was_looked_at) = (now + limit.half, true);
                }
            }
            *looks_at = all.iter().filter_map(|(watched, _)| watched.map(|limit| limit.at)).min();
            *looks_at
        };
        over.iter().for_each(|caller| caller.call());
        next
    }

    pub(super) fn answers(&self) -> u64 {
        // Ordering: Relaxed; awaiting the reader's turn makes the replies counted in that turn visible.
        self.answers.load(Ordering::Relaxed)
    }

    pub(super) fn is_silent(&self) -> bool {
        self.state.lock().is_silent
    }
}

impl Seat {
    fn new(
        all: &mut Vec<(Option<Limit>, Arc<Caller>)>,
        connection: &MultiplexedConnection,
        answers: &Arc<AtomicU64>,
    ) -> Self {
        let caller = Arc::new(Caller { state: Mutex::default(), answers: Arc::clone(answers) });
        let number = all.len();
        all.push((None, Arc::clone(&caller)));
        let waker = Waker::from(Arc::clone(&caller));
        Self { number, caller, waker, connection: connection.unlimited(), command: Cmd::new() }
    }
}

impl InSeat<'_> {
    /// Sends the request at `now`, and awaits the reply until the seat's limit.
    pub(super) async fn send(
        mut self,
        request: &WireRequest<'_>,
        in_full: bool,
        asking: bool,
        now: Instant,
    ) -> RedisResult<Value> {
        let Seat { connection, command, caller, waker, .. } =
            &mut **self.seat.as_mut().expect("it is not dropped");
        command.clear();
        request.write(command, in_full, now);
        // Without tokio's budget, as in `shielded`.
        let mut reply = pin!(unconstrained(request.query(command, asking, connection)));
        poll_fn(|task| {
            // Registered before the poll, so that a wake-up during the poll reaches the task.
            let is_over = caller.register(task.waker());
            match reply.as_mut().poll(&mut Context::from_waker(waker)) {
                Poll::Pending if is_over => Poll::Ready(Err(timed_out())),
                polled => polled,
            }
        })
        .await
    }
}

impl Drop for InSeat<'_> {
    fn drop(&mut self) {
        let Some(seat) = self.seat.take() else { return };
        // Dropped outside the mutexes: the waker is foreign code, and a freed place wakes the next waiter.
        let _awaits = mem::take(&mut *seat.caller.state.lock());
        let mut state = self.in_flight.state.lock();
        state.all[seat.number].0 = None;
        state.free.push(seat);
    }
}

impl Caller {
    /// Stores `waker` for the next wake-up. Returns true if the limit is over.
    fn register(&self, waker: &Waker) -> bool {
        // Cloned and dropped outside the mutex: both run foreign code.
        let waker = waker.clone();
        let (_before, is_over) = {
            let mut awaits = self.state.lock();
            (awaits.waker.replace(waker), awaits.is_over)
        };
        is_over
    }

    /// Wakes the task after a reply or the limit's end. Frees the place now: the task may never be polled.
    fn call(&self) {
        let (waker, _place) = {
            let mut awaits = self.state.lock();
            (awaits.waker.take(), awaits.place.take())
        };
        if let Some(waker) = waker {
            call("a waker", || waker.wake());
        }
    }
}

impl Wake for Caller {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// A reply has come: counted here, because the task may be polled much later.
    fn wake_by_ref(self: &Arc<Self>) {
        // Ordering: Relaxed, as in `InFlight::answers`.
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.call();
    }
}

#[derive(Default)]
pub(super) struct Lines([Room; 2]);

struct Room {
    invitations: AsyncSemaphore,
    under_way: AtomicUsize,
}

impl Default for Room {
    fn default() -> Self {
        Self { invitations: AsyncSemaphore::new(MAX_IN_FLIGHT), under_way: AtomicUsize::new(0) }
    }
}

/// A command's place among those under way. `None`: the command bypasses the queues.
pub(super) struct Place(Option<(Arc<Lines>, Line)>);

impl Place {
    pub(super) const PASSES: Self = Self(None);
}

impl Lines {
    /// Enters without waiting. Returns `None` if there is no room, or the connection is out of use.
    pub(super) fn try_enter(self: &Arc<Self>, line: Line) -> Option<Place> {
        if let Some(room) = self.0.get(line as usize) {
            room.invitations.try_acquire().ok()?.forget();
        }
        Some(self.place(line))
    }

    /// Waits in the queue. Returns `None` if the connection is out of use.
    pub(super) async fn enter(self: &Arc<Self>, line: Line) -> Option<Place> {
        if let Some(room) = self.0.get(line as usize) {
            room.invitations.acquire().await.ok()?.forget();
        }
        Some(self.place(line))
    }

    fn place(self: &Arc<Self>, line: Line) -> Place {
        let room = self.0.get(line as usize);
        Place(room.map(|room| {
            // Ordering: Relaxed, a count; no other memory is read through the count.
            room.under_way.fetch_add(1, Ordering::Relaxed);
            (Arc::clone(self), line)
        }))
    }

    #[cfg(test)]
    pub(super) fn invitations(&self, line: Line) -> usize {
        self.0[line as usize].invitations.available_permits()
    }

    pub(super) fn have_waiters(&self) -> bool {
        self.0.iter().any(|room| room.invitations.waiters() > 0)
    }

    /// Adds permits for waiters, in place of permits whose callers have not begun.
    pub(super) fn invite(&self) {
        for room in self.0.iter().filter(|room| room.invitations.waiters() > 0) {
            // Ordering: Relaxed, as in `place`.
            let under_way = room.under_way.load(Ordering::Relaxed);
            let unused = MAX_IN_FLIGHT.saturating_sub(under_way + room.invitations.available_permits());
            room.invitations.add_permits(unused);
        }
    }

    /// Ends all waits: the connection is out of use.
    pub(super) fn close(&self) {
        self.0.iter().for_each(|room| room.invitations.close());
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((lines, line)) = &self.0 else { return };
        let room = &lines.0[*line as usize];
        // Ordering: Relaxed, as in `place`.
        let others = room.under_way.fetch_sub(1, Ordering::Relaxed) - 1;
        if others + room.invitations.available_permits() < MAX_IN_FLIGHT {
            room.invitations.add_permits(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::super::super::fake::EVENT_LIMIT;
    use super::*;
    use crate::support::sync::atomic::AtomicBool;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(3600);

    struct Fixture {
        runtime: TokioRuntime,
        begun: Instant,
        in_flight: Arc<InFlight>,
        connection: MultiplexedConnection,
    }

    impl Fixture {
        /// Starts the timer too. Returns the server's end of the stream.
        async fn new() -> (Self, DuplexStream) {
            let (fixture, server) = Self::untimed().await;
            fixture.runtime.spawn(Arc::clone(&fixture.in_flight).keep(fixture.runtime.clone()));
            (fixture, server)
        }

        async fn untimed() -> (Self, DuplexStream) {
            let runtime = TokioRuntime::current();
            let (ours, server) = tokio::io::duplex(1 << 16);
            let connection = MultiplexedConnection::over(ours, &runtime).await;
            let in_flight = Arc::new(InFlight::new(&connection));
            (Self { begun: runtime.now(), runtime, in_flight, connection }, server)
        }

        fn take(&self, now: Instant, limit: Duration) -> InSeat<'_> {
            self.take_until(now, limit, now + limit)
        }

        fn take_until(&self, since: Instant, patience: Duration, give_up: Instant) -> InSeat<'_> {
            self.in_flight.take(&self.connection, since, patience, give_up, Place::PASSES)
        }

        async fn ping(&self, limit: Duration) -> RedisResult<Value> {
            let words = |command: &mut Cmd, _: Instant| _ = command.arg("PING");
            let (request, now) = (WireRequest::plain(&words, limit), self.runtime.now());
            self.take(now, limit).send(&request, false, false, now).await
        }
    }

    fn is_timeout(reply: RedisResult<Value>) -> bool {
        reply.is_err_and(|error| error.is_timeout())
    }

    #[tokio::test]
    async fn limit_that_is_over_before_those_of_earlier_commands_is_kept() {
        let (fixture, _server) = Fixture::new().await;
        let first = pin!(fixture.ping(LONG));
        let second = pin!(async { (Instant::now(), fixture.ping(SHORT).await, Instant::now()) });
        let ended = tokio::time::timeout(EVENT_LIMIT, futures_util::future::select(first, second)).await;
        let futures_util::future::Either::Right(((begun, reply, ended), _)) = ended.expect("it is woken")
        else {
            panic!("the server is silent")
        };
        assert!(is_timeout(reply) && ended - begun >= SHORT);
    }

    #[tokio::test]
    async fn reply_that_is_late_is_not_the_next_commands() {
        let (fixture, mut server) = Fixture::new().await;
        assert!(is_timeout(fixture.ping(SHORT).await));
        // The first poll sends the command.
        let mut second = pin!(fixture.ping(LONG));
        assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        server.read_exact(&mut [0; 2 * b"*1\r\n$4\r\nPING\r\n".len()]).await.unwrap();
        server.write_all(b"+late\r\n+in time\r\n").await.unwrap();
        let reply = tokio::time::timeout(EVENT_LIMIT, second).await.expect("it is woken");
        assert_eq!(reply.unwrap(), Value::SimpleString("in time".to_owned()));
    }

    #[derive(Default)]
    struct Trap(AtomicBool);

    impl Wake for Trap {
        fn wake(self: Arc<Self>) {
            // Ordering: Relaxed, the flag carries no other data.
            self.0.store(true, Ordering::Relaxed);
            panic!("on purpose");
        }
    }

    #[tokio::test]
    async fn waker_panic_at_the_end_of_a_limit_does_not_end_the_timer() {
        let ((fixture, _server), trap) = (Fixture::new().await, Arc::new(Trap::default()));
        {
            let mut ping = pin!(fixture.ping(SHORT));
            let waker = Waker::from(Arc::clone(&trap));
            assert!(ping.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            assert!(is_timeout(
                tokio::time::timeout(EVENT_LIMIT, fixture.ping(2 * SHORT)).await.expect("it is woken")
            ));
            // Ordering: Relaxed, one thread stores and loads.
            assert!(trap.0.load(Ordering::Relaxed));
        }
        assert!(is_timeout(
            tokio::time::timeout(EVENT_LIMIT, fixture.ping(SHORT)).await.expect("it is woken")
        ));
    }

    #[tokio::test]
    async fn timer_checks_the_next_limit_and_rests_without_commands() {
        let (fixture, _server) = Fixture::untimed().await;
        let (early, late) =
            (fixture.take(fixture.begun, EVENT_LIMIT), fixture.take(fixture.begun, 4 * EVENT_LIMIT));
        let look = |halves| {
            let at = fixture.begun + EVENT_LIMIT / 2 * halves;
            fixture.in_flight.look(at, at).map(|next| (next - fixture.begun).as_millis())
        };
        let in_halves = |halves: u32| Some((EVENT_LIMIT / 2 * halves).as_millis());
        assert_eq!([look(0), look(1)], [in_halves(1), in_halves(2)]);
        assert!(!fixture.in_flight.is_silent());
        assert_eq!(look(2), in_halves(4));
        assert!(fixture.in_flight.is_silent());
        drop((early, late));
        assert_eq!(look(4), None);
    }

    /// Polls the timer first, as a busy runtime may do.
    #[tokio::test]
    async fn limit_is_not_over_before_the_reader_had_its_turn() {
        let (fixture, mut server) = Fixture::untimed().await;
        let mut ping = pin!(fixture.ping(SHORT));
        let mut timer = pin!(Arc::clone(&fixture.in_flight).keep(fixture.runtime.clone()));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(ping.as_mut().poll(cx).is_pending() && timer.as_mut().poll(cx).is_pending());
        server.read_exact(&mut [0; b"*1\r\n$4\r\nPING\r\n".len()]).await.unwrap();
        std::thread::sleep(2 * SHORT);
        // Without yielding to any other task.
        server.write_all(b"+PONG\r\n").now_or_never().expect("there is room").unwrap();
        assert!(timer.as_mut().poll(cx).is_pending());
        assert!(
            ping.as_mut().poll(cx).is_pending(),
            "expected the ping to wait, as its limit is not reported yet"
        );
        tokio::task::yield_now().await;
        assert!(timer.as_mut().poll(cx).is_pending());
        let Poll::Ready(reply) = ping.as_mut().poll(cx) else { panic!("there is a reply") };
        assert_eq!(reply.unwrap(), Value::SimpleString("PONG".to_owned()));
        assert!(!fixture.in_flight.is_silent());
    }

    #[tokio::test]
    async fn limit_counts_from_the_last_reply_up_to_the_commands_end() {
        let (fixture, _server) = Fixture::untimed().await;
        let give_up = fixture.begun + 3 * EVENT_LIMIT / 2;
        let _seated = fixture.take_until(fixture.begun, EVENT_LIMIT, give_up);
        // Ordering: Relaxed, a single thread.
        fixture.in_flight.answers.fetch_add(1, Ordering::Relaxed);
        let look = |eighths| {
            let at = fixture.begun + EVENT_LIMIT / 8 * eighths;
            fixture.in_flight.look(at, at).map(|next| next - fixture.begun)
        };
        assert_eq!([look(4), look(8)], [Some(EVENT_LIMIT), Some(EVENT_LIMIT / 2 * 3)]);
        fixture.in_flight.answers.fetch_add(1, Ordering::Relaxed);
        assert_eq!(look(12), None);
        assert!(!fixture.in_flight.is_silent(), "expected no silence within the limit of a connection");
    }

    #[tokio::test]
    async fn command_whose_limit_is_over_before_its_first_poll_ends() {
        let (fixture, _server) = Fixture::untimed().await;
        let words = |command: &mut Cmd, _: Instant| _ = command.arg("PING");
        let request = WireRequest::plain(&words, SHORT);
        let seated = fixture.take(fixture.begun, SHORT);
        for halves in 1..3 {
            fixture.in_flight.look(fixture.begun + SHORT / 2 * halves, fixture.begun + SHORT / 2 * halves);
        }
        let reply = pin!(seated.send(&request, false, false, fixture.begun));
        assert!(is_timeout(tokio::time::timeout(EVENT_LIMIT, reply).await.expect("no limit is left")));
        assert!(fixture.ping(LONG).now_or_never().is_none());
    }

    #[tokio::test]
    async fn command_leaves_its_slot_at_its_answer_or_end_not_at_a_poll() {
        let (fixture, mut server) = Fixture::untimed().await;
        let (in_flight, all) = (&fixture.in_flight, MAX_IN_FLIGHT);
        let free = || in_flight.lines.invitations(Line::Ask);
        let words = |command: &mut Cmd, _: Instant| _ = command.arg("PING");
        let request = WireRequest::plain(&words, LONG);
        let send = |limit| {
            let room = in_flight.lines.try_enter(Line::Ask).expect("there is room");
            let (begun, until) = (fixture.begun, fixture.begun + limit);
            let seated = in_flight.take(&fixture.connection, begun, limit, until, room);
            let mut sent = Box::pin(seated.send(&request, false, false, fixture.begun));
            assert!(sent.as_mut().now_or_never().is_none());
            sent
        };
        let kept = [send(SHORT), send(LONG), send(LONG)];
        assert_eq!(free(), all - 3);
        for _ in 0..2 {
            in_flight.look(fixture.begun + SHORT, fixture.begun);
        }
        assert_eq!(free(), all - 2);
        server.read_exact(&mut [0; 3 * b"*1\r\n$4\r\nPING\r\n".len()]).await.unwrap();
        server.write_all(b"+PONG\r\n+PONG\r\n").await.unwrap();
        tokio::time::timeout(EVENT_LIMIT, fixture.connection.reader.turn()).await.expect("it is polled");
        assert_eq!((free(), in_flight.answers()), (all - 1, 2));
        drop(kept);
        assert_eq!(free(), all);
    }

    #[tokio::test]
    async fn timer_is_told_of_limits_that_are_earlier_and_of_no_others() {
        let (fixture, _server) = Fixture::untimed().await;
        let take = |limit| {
            let _seated = fixture.take(fixture.begun, limit);
            fixture.in_flight.earlier.notified().now_or_never().is_some()
        };
        assert!(take(3 * EVENT_LIMIT));
        assert!(!take(3 * EVENT_LIMIT) && !take(4 * EVENT_LIMIT));
        assert!(take(EVENT_LIMIT));
        assert!(!take(2 * EVENT_LIMIT) && !take(EVENT_LIMIT));
        assert!(take(SHORT));
    }

    #[tokio::test]
    async fn seats_are_kept_for_the_next_commands() {
        let (fixture, mut server) = Fixture::new().await;
        let seats = || fixture.in_flight.state.lock().all.len();
        for _ in 0..3 {
            let mut ping = pin!(fixture.ping(LONG));
            assert!(ping.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert_eq!(seats(), 1);
        }
        let serve = async {
            server.read_exact(&mut [0; b"*1\r\n$4\r\nPING\r\n".len()]).await.unwrap();
            server.write_all(b"+PONG\r\n").await.unwrap();
        };
        let (reply, ()) = tokio::join!(fixture.ping(EVENT_LIMIT), serve);
        assert_eq!(reply.unwrap(), Value::SimpleString("PONG".to_owned()));
    }

    /// The seat's next command registers a waker, which the previous command's drop must not clear.
    #[tokio::test]
    async fn seat_is_free_when_nothing_of_its_caller_is_left_in_it() {
        let (fixture, _server) = Fixture::untimed().await;
        let seated = fixture.take(fixture.begun, LONG);
        let caller = Arc::clone(&seated.seat.as_ref().expect("it is not dropped").caller);
        caller.register(Waker::noop());
        // The held mutex keeps any seat from becoming free.
        let state = fixture.in_flight.state.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(seated));
            let begun = Instant::now();
            while caller.state.lock().waker.is_some() {
                assert!(
                    begun.elapsed() < EVENT_LIMIT,
                    "expected the waker to be cleared before its slot is free"
                );
                std::thread::yield_now();
            }
            drop(state);
        });
    }
}

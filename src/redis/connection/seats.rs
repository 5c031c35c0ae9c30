//! [`Seats`]: what the commands on one connection have while they are under way, and leave to those that
//! come after them.
//!
//! Nearly each command is answered long before its limit. So it has no timer of its own: one is for all, and
//! looks at the limits when the earliest of those that it knows is over.
//!
//! Replies come in the order of their commands, so any of them says that the server gets on, and one that has
//! not come is behind them. A limit that is over is looked at twice, and the reader reads in between what has
//! come meanwhile.

use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use ::redis::{Cmd, RedisResult, Value};
use tokio::sync::Notify;
use tokio::task::coop::unconstrained;

use crate::foreign::call;
use crate::runtime::{Runtime, TokioRuntime};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

use super::multiplexed::{MultiplexedConnection, Reader, Unlimited, timed_out};
use super::request::WireRequest;

/// The seats of one connection.
pub(super) struct Seats {
    state: Mutex<State>,
    reader: Arc<Reader>,
    /// Tells that the timer is to look earlier, or that the connection is gone.
    earlier: Notify,
    /// How many replies have come.
    answers: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    /// By number: how long the command in it waits, and its caller.
    all: Vec<(Option<Limit>, Arc<Caller>)>,
    #[expect(clippy::vec_box, reason = "a seat is large, and goes in and out with each command")]
    free: Vec<Box<Seat>>,
    /// When the timer looks at the limits; `None` until there is one.
    looks_at: Option<Instant>,
    /// No reply has come for as long as one is waited for.
    is_silent: bool,
    is_gone: bool,
}

/// How long a command waits for its reply.
#[derive(Clone, Copy)]
struct Limit {
    /// When it is looked at next.
    at: Instant,
    /// How often the reader had been polled before the first look.
    read: Option<u64>,
    /// The time between both looks.
    grace: Duration,
    /// From the last reply known to the second look.
    left: Duration,
    /// For how long no reply at all may come.
    patience: Duration,
    give_up: Instant,
    /// How many replies had come.
    answers: u64,
}

impl Limit {
    fn new(now: Instant, patience: Duration, give_up: Instant, answers: u64) -> Self {
        let left = patience.min(give_up.saturating_duration_since(now));
        let grace = (left / 8).max(Duration::from_millis(1));
        Self { at: now + left - left / 8, read: None, grace, left, patience, give_up, answers }
    }

    /// Whether it is over, at a look when it is due. If so, whether the connection is silent.
    fn is_over(&mut self, now: Instant, seats: (&AtomicU64, &Reader)) -> Option<bool> {
        let (answers, reader) = seats;
        let was_read = self.read.is_some_and(|before| reader.was_polled_since(before));
        // Ordering: Relaxed; those that the reader has counted are seen by `was_polled_since`.
        let answers = answers.load(Ordering::Relaxed);
        let is_silent = self.answers == answers;
        if !is_silent && now < self.give_up {
            *self = Self::new(now, self.patience, self.give_up, answers);
        } else if was_read {
            // One that was left less time says nothing about the connection.
            return Some(is_silent && self.left == self.patience);
        } else {
            self.read = self.read.or_else(|| Some(reader.call()));
            self.at = now + self.grace;
        }
        None
    }
}

/// A seat, and what is left in it.
struct Seat {
    number: usize,
    caller: Arc<Caller>,
    /// Wakes `caller`.
    waker: Waker,
    connection: Unlimited,
    command: Cmd,
}

/// The waker of the task that awaits a command's reply, and whether its limit is over. Tasks of the redis
/// crate call this in its place, and a panic of the waker ends here.
struct Caller {
    state: Mutex<(Option<Waker>, bool)>,
    answers: Arc<AtomicU64>,
}

/// A command in its seat.
pub(super) struct Seated<'a> {
    seats: &'a Seats,
    /// Until this is dropped.
    seat: Option<Box<Seat>>,
}

impl Seats {
    pub(super) fn new(connection: &MultiplexedConnection) -> Self {
        let reader = Arc::clone(&connection.reader);
        Self { state: Mutex::default(), reader, earlier: Notify::new(), answers: Arc::default() }
    }

    /// A seat for a command over `connection`, of which these are the seats, that waits until `give_up`, and
    /// for `patience` if no reply comes.
    pub(super) fn take(
        &self,
        connection: &MultiplexedConnection,
        now: Instant,
        patience: Duration,
        give_up: Instant,
    ) -> Seated<'_> {
        let limit = Limit::new(now, patience, give_up, self.answers());
        let (seat, is_earlier) = {
            let mut state = self.state.lock();
            let seat = state
                .free
                .pop()
                .unwrap_or_else(|| Box::new(Seat::new(&mut state.all, connection, &self.answers)));
            state.all[seat.number].0 = Some(limit);
            let is_earlier = state.looks_at.is_none_or(|at| limit.at < at);
            if is_earlier {
                state.looks_at = Some(limit.at);
            }
            (Some(seat), is_earlier)
        };
        if is_earlier {
            self.earlier.notify_one();
        }
        Seated { seats: self, seat }
    }

    /// The timer: wakes the callers whose time is over, until the connection is gone or the runtime ends.
    pub(super) async fn keep(self: Arc<Self>, runtime: TokioRuntime) {
        while let Some(next) = self.look(runtime.now()).filter(|_| !runtime.has_ended()) {
            let earlier = self.earlier.notified();
            match next {
                None => earlier.await,
                Some(next) => tokio::select! {
                    biased;
                    () = earlier => {}
                    () = runtime.sleep_until(next) => {}
                },
            }
        }
    }

    /// Wakes the callers whose time is over, and says when to look again. `None` once the connection is gone.
    fn look(&self, now: Instant) -> Option<Option<Instant>> {
        let mut over = Vec::new();
        // Dropped while the mutex is free: a connection is foreign code.
        let (next, _unused) = {
            let mut state = self.state.lock();
            if state.is_gone {
                return None;
            }
            let State { all, free, looks_at, is_silent, .. } = &mut *state;
            for (limit, caller) in &mut *all {
                if let Some(due) = limit.as_mut().filter(|limit| limit.at <= now)
                    && let Some(silent) = due.is_over(now, (&self.answers, &self.reader))
                {
                    (*limit, caller.state.lock().1) = (None, true);
                    *is_silent |= silent;
                    over.push(Arc::clone(caller));
                }
            }
            *looks_at = all.iter().filter_map(|(limit, _)| limit.as_ref().map(|limit| limit.at)).min();
            // There may never be as many at a time again.
            let unused = (all.len() == free.len()).then(|| {
                all.clear();
                mem::take(free)
            });
            (*looks_at, unused)
        };
        over.iter().for_each(|caller| caller.call());
        Some(next)
    }

    /// How many replies have come.
    pub(super) fn answers(&self) -> u64 {
        // Ordering: Relaxed, a hint; nothing is read through it.
        self.answers.load(Ordering::Relaxed)
    }

    /// Whether no reply has come for as long as one is waited for.
    pub(super) fn is_silent(&self) -> bool {
        self.state.lock().is_silent
    }

    /// The connection is gone, and no command is under way on it.
    pub(super) fn end(&self) {
        // As in `look`.
        let _unused = {
            let mut state = self.state.lock();
            state.is_gone = true;
            mem::take(&mut state.free)
        };
        self.earlier.notify_one();
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

impl Seated<'_> {
    /// Sends the request, and awaits the reply for as long as it may. `now`: the time.
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

impl Drop for Seated<'_> {
    fn drop(&mut self) {
        let Some(seat) = self.seat.take() else { return };
        // Dropped last, as it is foreign code.
        let _waker = seat.caller.state.lock().0.take();
        let mut state = self.seats.state.lock();
        state.all[seat.number].0 = None;
        // The timer does not find it any more.
        seat.caller.state.lock().1 = false;
        state.free.push(seat);
    }
}

impl Caller {
    /// The next wake-up goes to `waker`. Whether the limit is over.
    fn register(&self, waker: &Waker) -> bool {
        // Cloned and dropped while the mutex is free, as both are foreign code.
        let waker = waker.clone();
        let (_before, is_over) = {
            let mut caller = self.state.lock();
            (caller.0.replace(waker), caller.1)
        };
        is_over
    }

    fn call(&self) {
        let waker = self.state.lock().0.take();
        if let Some(waker) = waker {
            call("a waker", || waker.wake());
        }
    }
}

impl Wake for Caller {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    /// There is a reply. Counted here, and not when the caller is polled, which may be much later.
    fn wake_by_ref(self: &Arc<Self>) {
        // Ordering: Relaxed; the reader counts, and publishes the count when it has been polled.
        self.answers.fetch_add(1, Ordering::Relaxed);
        self.call();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::super::super::fake::SOON;
    use super::*;
    use crate::sync::atomic::AtomicBool;

    const SHORT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(3600);

    /// A connection, and its seats.
    struct Room {
        runtime: TokioRuntime,
        begun: Instant,
        seats: Arc<Seats>,
        connection: MultiplexedConnection,
    }

    impl Room {
        /// With the timer. And the other end, which says what the test writes.
        async fn new() -> (Self, DuplexStream) {
            let (room, server) = Self::untimed().await;
            room.runtime.spawn(Arc::clone(&room.seats).keep(room.runtime.clone()));
            (room, server)
        }

        async fn untimed() -> (Self, DuplexStream) {
            let runtime = TokioRuntime::current();
            let (ours, server) = tokio::io::duplex(1 << 16);
            let connection = MultiplexedConnection::over(ours, &runtime).await;
            let seats = Arc::new(Seats::new(&connection));
            (Self { begun: runtime.now(), runtime, seats, connection }, server)
        }

        /// When the reader has had its turn.
        async fn look(&self, now: Instant) -> Option<Option<Instant>> {
            tokio::task::yield_now().await;
            self.seats.look(now)
        }

        /// For a command that waits as long for any reply at all.
        fn take(&self, now: Instant, limit: Duration) -> Seated<'_> {
            self.seats.take(&self.connection, now, limit, now + limit)
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
        let (room, _server) = Room::new().await;
        let first = pin!(room.ping(LONG));
        let second = pin!(async { (Instant::now(), room.ping(SHORT).await, Instant::now()) });
        let ended = tokio::time::timeout(SOON, futures_util::future::select(first, second)).await;
        let futures_util::future::Either::Right(((begun, reply, ended), _)) = ended.expect("it is woken")
        else {
            panic!("the server is silent")
        };
        assert!(is_timeout(reply) && ended - begun >= SHORT);
    }

    #[tokio::test]
    async fn reply_that_is_late_is_not_the_next_commands() {
        let (room, mut server) = Room::new().await;
        assert!(is_timeout(room.ping(SHORT).await));
        // Sent by its first poll.
        let mut second = pin!(room.ping(LONG));
        assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        server.read_exact(&mut [0; 2 * b"*1\r\n$4\r\nPING\r\n".len()]).await.unwrap();
        server.write_all(b"+late\r\n+in time\r\n").await.unwrap();
        let reply = tokio::time::timeout(SOON, second).await.expect("it is woken");
        assert_eq!(reply.unwrap(), Value::SimpleString("in time".to_owned()));
    }

    /// Says that it was called, and panics.
    #[derive(Default)]
    struct Trap(AtomicBool);

    impl Wake for Trap {
        fn wake(self: Arc<Self>) {
            // Ordering: Relaxed, it is all that is told.
            self.0.store(true, Ordering::Relaxed);
            panic!("on purpose");
        }
    }

    #[tokio::test]
    async fn waker_that_panics_when_a_limit_is_over_does_not_end_the_timer() {
        let ((room, _server), trap) = (Room::new().await, Arc::new(Trap::default()));
        {
            let mut ping = pin!(room.ping(SHORT));
            let waker = Waker::from(Arc::clone(&trap));
            assert!(ping.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            assert!(is_timeout(tokio::time::timeout(SOON, room.ping(2 * SHORT)).await.expect("it is woken")));
            // Ordering: Relaxed, both are of this thread.
            assert!(trap.0.load(Ordering::Relaxed));
        }
        assert!(is_timeout(tokio::time::timeout(SOON, room.ping(SHORT)).await.expect("it is woken")));
    }

    #[tokio::test]
    async fn timer_looks_when_the_next_limit_is_due_and_rests_when_no_command_is_under_way() {
        let (room, _server) = Room::untimed().await;
        let due = |times| room.begun + SOON * times / 8 * 7;
        let early = room.take(room.begun, SOON);
        let late = room.take(room.begun, 2 * SOON);
        assert_eq!(room.look(due(1) - SHORT).await, Some(Some(due(1))));
        assert_eq!(room.look(due(1)).await, Some(Some(room.begun + SOON)));
        assert_eq!(room.look(room.begun + SOON).await, Some(Some(due(2))));
        assert!(room.seats.is_silent());
        drop((early, late));
        assert_eq!(room.look(room.begun + 2 * SOON).await, Some(None));
    }

    #[tokio::test]
    async fn limit_is_not_over_before_the_reader_had_its_turn() {
        let (room, _server) = Room::untimed().await;
        let _seated = room.take(room.begun, SOON);
        let look = |times| room.seats.look(room.begun + SOON * times);
        for times in 2..5 {
            assert_eq!(look(times), Some(Some(room.begun + SOON * times + SOON / 8)));
        }
        tokio::task::yield_now().await;
        assert!(!room.seats.is_silent());
        assert_eq!(look(5), Some(None));
        assert!(room.seats.is_silent());
    }

    #[tokio::test]
    async fn limit_counts_from_the_last_reply_and_ends_where_the_command_gives_up() {
        let (room, _server) = Room::untimed().await;
        let give_up = room.begun + 3 * SOON / 2;
        let _seated = room.seats.take(&room.connection, room.begun, SOON, give_up);
        // Ordering: Relaxed, all is on one thread.
        room.seats.answers.fetch_add(1, Ordering::Relaxed);
        let due = room.begun + SOON / 8 * 7;
        let left = give_up - due;
        assert_eq!(room.look(due).await, Some(Some(give_up - left / 8)));
        assert_eq!(room.look(give_up - left / 8).await, Some(Some(give_up)));
        assert_eq!(room.look(give_up).await, Some(None));
        assert!(!room.seats.is_silent(), "it was left less time than a connection is");
    }

    #[tokio::test]
    async fn command_whose_limit_is_over_before_its_first_poll_ends() {
        let (room, _server) = Room::untimed().await;
        let words = |command: &mut Cmd, _: Instant| _ = command.arg("PING");
        let request = WireRequest::plain(&words, SHORT);
        let seated = room.take(room.begun, SHORT);
        let second = room.look(room.begun + SHORT).await.flatten().expect("it is looked at twice");
        assert_eq!(room.look(second).await, Some(None));
        let reply = pin!(seated.send(&request, false, false, room.begun));
        assert!(is_timeout(tokio::time::timeout(SOON, reply).await.expect("no limit is left")));
        // Nor is the seat's next command over.
        assert!(room.ping(LONG).now_or_never().is_none());
    }

    #[tokio::test]
    async fn timer_is_told_of_limits_that_are_earlier_and_of_no_others() {
        let (room, _server) = Room::untimed().await;
        let take = |limit| {
            let _seated = room.take(room.begun, limit);
            room.seats.earlier.notified().now_or_never().is_some()
        };
        assert!(take(3 * SOON));
        assert!(!take(3 * SOON) && !take(4 * SOON));
        assert!(take(SOON));
        assert!(!take(2 * SOON) && !take(SOON));
        assert!(take(SHORT));
    }

    /// And with it the seats, which would keep the connection open.
    #[tokio::test]
    async fn timer_ends_with_its_connection() {
        let (room, mut server) = Room::untimed().await;
        let timer = tokio::spawn(Arc::clone(&room.seats).keep(room.runtime.clone()));
        let seated = room.seats.take(&room.connection, room.begun, LONG, room.begun + LONG);
        // It looks, and waits for that limit.
        tokio::task::yield_now().await;
        drop((seated, room.connection));
        room.seats.end();
        tokio::time::timeout(SOON, timer).await.expect("it is told").unwrap();
        let closed = tokio::time::timeout(SOON, server.read(&mut [0])).await.expect("no clone is left");
        assert_eq!(closed.unwrap(), 0);
    }

    #[tokio::test]
    async fn seats_are_kept_for_the_next_commands_until_none_is_under_way() {
        let (room, mut server) = Room::new().await;
        let seats = || room.seats.state.lock().all.len();
        for _ in 0..3 {
            let mut ping = pin!(room.ping(LONG));
            assert!(ping.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert_eq!(seats(), 1);
        }
        let _ = room.seats.look(room.runtime.now());
        assert_eq!(seats(), 0);
        let serve = async {
            server.read_exact(&mut [0; b"*1\r\n$4\r\nPING\r\n".len()]).await.unwrap();
            server.write_all(b"+PONG\r\n").await.unwrap();
        };
        let (reply, ()) = tokio::join!(room.ping(SOON), serve);
        assert_eq!(reply.unwrap(), Value::SimpleString("PONG".to_owned()));
    }

    /// A thread that takes it as soon as it is free has its own waker there, which is not to be cleared.
    #[tokio::test]
    async fn seat_is_free_when_nothing_of_its_caller_is_left_in_it() {
        let (room, _server) = Room::untimed().await;
        let seated = room.take(room.begun, LONG);
        let caller = Arc::clone(&seated.seat.as_ref().expect("it is not dropped").caller);
        caller.register(Waker::noop());
        // No seat can be free before this is.
        let state = room.seats.state.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(seated));
            let begun = Instant::now();
            while caller.state.lock().0.is_some() {
                assert!(begun.elapsed() < SOON, "it is free before it is cleared");
                std::thread::yield_now();
            }
            drop(state);
        });
    }
}

//! [`Seats`]: what the commands on one connection have while they are under way, and leave to those that
//! come after them.
//!
//! Nearly each command is answered long before its limit. So it has no timer of its own: one is for all, and
//! looks at the limits when the earliest of those that it knows is over.

use std::future::poll_fn;
use std::mem;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

use ::redis::{Cmd, RedisResult, Value};
use tokio::sync::Notify;
use tokio::task::coop::unconstrained;

use crate::foreign::call;
use crate::runtime::{Runtime, TokioRuntime};
use crate::sync::Mutex;

use super::multiplexed::{MultiplexedConnection, Unlimited, timed_out};
use super::request::WireRequest;

/// The seats of one connection.
#[derive(Default)]
pub(super) struct Seats {
    state: Mutex<State>,
    /// Tells that the timer is to look earlier, or that the connection is gone.
    earlier: Notify,
}

#[derive(Default)]
struct State {
    /// By number: until when the command in it waits, and its caller.
    all: Vec<(Option<Instant>, Arc<Caller>)>,
    #[expect(clippy::vec_box, reason = "a seat is large, and goes in and out with each command")]
    free: Vec<Box<Seat>>,
    /// When the timer looks at the limits; `None` until there is one.
    looks_at: Option<Instant>,
    is_gone: bool,
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

/// The waker of the task that awaits a command's reply. Tasks of the redis crate call this in its place, and
/// a panic of the waker ends here.
#[derive(Default)]
struct Caller(Mutex<Option<Waker>>);

/// A command in its seat.
pub(super) struct Seated<'a> {
    seats: &'a Seats,
    /// Until this is dropped.
    seat: Option<Box<Seat>>,
    until: Instant,
}

impl Seats {
    /// A seat for a command over `connection`, of which these are the seats, that waits until then.
    pub(super) fn take(&self, connection: &MultiplexedConnection, until: Instant) -> Seated<'_> {
        let (seat, is_earlier) = {
            let mut state = self.state.lock();
            let seat = state.free.pop().unwrap_or_else(|| Box::new(Seat::new(&mut state.all, connection)));
            state.all[seat.number].0 = Some(until);
            let is_earlier = state.looks_at.is_none_or(|at| until < at);
            if is_earlier {
                state.looks_at = Some(until);
            }
            (Some(seat), is_earlier)
        };
        if is_earlier {
            self.earlier.notify_one();
        }
        Seated { seats: self, seat, until }
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
            let State { all, free, looks_at, .. } = &mut *state;
            for (until, caller) in &mut *all {
                if until.is_some_and(|until| until <= now) {
                    *until = None;
                    over.push(Arc::clone(caller));
                }
            }
            *looks_at = all.iter().filter_map(|(until, _)| *until).min();
            // There may never be as many at a time again.
            let unused = (all.len() == free.len()).then(|| {
                all.clear();
                mem::take(free)
            });
            (*looks_at, unused)
        };
        over.iter().for_each(Caller::wake_by_ref);
        Some(next)
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
    fn new(all: &mut Vec<(Option<Instant>, Arc<Caller>)>, connection: &MultiplexedConnection) -> Self {
        let (number, caller) = (all.len(), Arc::<Caller>::default());
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
        runtime: &TokioRuntime,
    ) -> RedisResult<Value> {
        let until = self.until;
        let Seat { connection, command, caller, waker, .. } =
            &mut **self.seat.as_mut().expect("it is not dropped");
        command.clear();
        request.write(command, in_full, now);
        // Without tokio's budget, as in `shielded`.
        let mut reply = pin!(unconstrained(request.query(command, asking, connection)));
        poll_fn(|task| {
            // Registered before the poll, so that a wake-up during the poll reaches the task.
            caller.register(task.waker());
            if let Poll::Ready(reply) = reply.as_mut().poll(&mut Context::from_waker(waker)) {
                return Poll::Ready(reply);
            }
            // By the clock, also in the first poll: the timer may have found the limit over before this
            // caller had registered, and any wake-up may be meant for the command that had this seat before.
            if runtime.now() >= until {
                return Poll::Ready(Err(timed_out()));
            }
            Poll::Pending
        })
        .await
    }
}

impl Drop for Seated<'_> {
    fn drop(&mut self) {
        let Some(seat) = self.seat.take() else { return };
        // Dropped last, as it is foreign code.
        let _waker = seat.caller.0.lock().take();
        let mut state = self.seats.state.lock();
        state.all[seat.number].0 = None;
        state.free.push(seat);
    }
}

impl Caller {
    /// The next wake-up goes to `waker`.
    fn register(&self, waker: &Waker) {
        // Cloned and dropped while the mutex is free, as both are foreign code.
        let waker = waker.clone();
        let _before = self.0.lock().replace(waker);
    }
}

impl Wake for Caller {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let waker = self.0.lock().take();
        if let Some(waker) = waker {
            call("a waker", || waker.wake());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use futures_util::FutureExt as _;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};

    use super::super::super::fake::SOON;
    use super::*;
    use crate::sync::atomic::{AtomicBool, Ordering};

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
            let (runtime, seats) = (TokioRuntime::current(), Arc::<Seats>::default());
            let (ours, server) = tokio::io::duplex(1 << 16);
            let connection = MultiplexedConnection::over(ours, &runtime).await;
            (Self { begun: runtime.now(), runtime, seats, connection }, server)
        }

        async fn ping(&self, limit: Duration) -> RedisResult<Value> {
            let words = |command: &mut Cmd, _: Instant| _ = command.arg("PING");
            let (request, now) = (WireRequest::plain(&words, limit), self.runtime.now());
            let seated = self.seats.take(&self.connection, now + limit);
            seated.send(&request, false, false, now, &self.runtime).await
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
    async fn timer_looks_when_the_next_limit_is_over_and_rests_when_no_command_is_under_way() {
        let (room, _server) = Room::untimed().await;
        let [first, second, third] = [1, 2, 3].map(|times| room.begun + SOON * times);
        let early = room.seats.take(&room.connection, first);
        let late = room.seats.take(&room.connection, second);
        assert_eq!(room.seats.look(first - SHORT), Some(Some(first)));
        assert_eq!(room.seats.look(first), Some(Some(second)));
        drop(early);
        assert_eq!(room.seats.look(second), Some(None));
        drop(room.seats.take(&room.connection, third));
        assert_eq!(room.seats.look(first), Some(None));
        drop(late);
    }

    #[tokio::test]
    async fn command_whose_limit_is_over_before_its_first_poll_ends() {
        let (room, _server) = Room::untimed().await;
        let words = |command: &mut Cmd, _: Instant| _ = command.arg("PING");
        let request = WireRequest::plain(&words, SHORT);
        let until = room.begun + SHORT;
        let seated = room.seats.take(&room.connection, until);
        room.runtime.sleep_until(until).await;
        assert_eq!(room.seats.look(room.runtime.now()), Some(None));
        let reply = pin!(seated.send(&request, false, false, room.begun, &room.runtime));
        assert!(is_timeout(tokio::time::timeout(SOON, reply).await.expect("no limit is left")));
    }

    #[tokio::test]
    async fn timer_is_told_of_limits_that_are_earlier_and_of_no_others() {
        let (room, _server) = Room::untimed().await;
        let take = |limit| {
            let _seated = room.seats.take(&room.connection, room.begun + limit);
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
        let seated = room.seats.take(&room.connection, room.begun + LONG);
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
        let seated = room.seats.take(&room.connection, room.begun + LONG);
        let caller = Arc::clone(&seated.seat.as_ref().expect("it is not dropped").caller);
        caller.register(Waker::noop());
        // No seat can be free before this is.
        let state = room.seats.state.lock();
        std::thread::scope(|scope| {
            scope.spawn(|| drop(seated));
            let begun = Instant::now();
            while caller.0.lock().is_some() {
                assert!(begun.elapsed() < SOON, "it is free before it is cleared");
                std::thread::yield_now();
            }
            drop(state);
        });
    }
}

//! State shared by the threads of a proxy: the faults, and the commands seen.

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::panic::Location;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;

use super::{Afterwards, Cut, Way};

/// Far longer than any awaited event takes, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) links: Vec<LinkState>,
    /// Indexed by [`Way`], for all links.
    pub(super) silent: [bool; 2],
    pub(super) delay: [Duration; 2],
    pub(super) chop: bool,
    /// Replies to lose, in this order.
    pub(super) losses: VecDeque<(Vec<u8>, Afterwards)>,
    pub(super) arrivals: Vec<Instant>,
    /// Port that new links lead to, if not the first server's.
    pub(super) elsewhere: Option<u16>,
    /// The proxy is being dropped.
    pub(super) closed: bool,
}

#[derive(Debug)]
pub(super) struct LinkState {
    /// The two sockets, which close once the pumps drop theirs too. `None` after a cut.
    pub(super) sockets: Option<Sockets>,
    /// Commands forwarded to the server.
    pub(super) commands: Vec<Vec<u8>>,
    /// A command that has arrived and is not forwarded yet.
    pub(super) under_way: Option<Vec<u8>>,
    pub(super) writing: bool,
    pub(super) bytes_to_client: usize,
    /// Indexed by [`Way`].
    pub(super) silent: [bool; 2],
    /// The client receives nothing more; the fate of the link when the server has ended it.
    pub(super) losing: Option<Afterwards>,
}

#[derive(Clone, Debug)]
pub(super) struct Sockets {
    pub(super) client: Arc<TcpStream>,
    pub(super) server: Arc<TcpStream>,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A test that panicked leaves the state consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    pub(super) fn sleep<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    #[track_caller]
    pub(super) fn wait_until(&self, what: &str, mut is_so: impl FnMut(&State) -> bool) {
        self.wait_for(what, |state| is_so(state).then_some(()));
    }

    /// Waits until `find` returns a value.
    #[track_caller]
    pub(super) fn wait_for<T>(&self, what: &str, mut find: impl FnMut(&State) -> Option<T>) -> T {
        let deadline = Instant::now() + DEADLINE;
        let mut state = self.lock();
        loop {
            if let Some(found) = find(&state) {
                return found;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let came = state.describe();
                drop(state);
                panic!("{}: waited {DEADLINE:?} for {what}; instead came:\n{came}", Location::caller());
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl State {
    pub(super) fn count(&self, bytes: &[u8]) -> usize {
        self.links.iter().map(|link| link.count(bytes)).sum()
    }

    /// True if a command that contains `bytes` waits for the end of a silence.
    pub(super) fn holds_back(&self, bytes: &[u8]) -> bool {
        self.links.iter().enumerate().any(|(number, link)| {
            self.is_silent(number, Way::ToServer)
                && link.under_way.as_ref().is_some_and(|command| contains(command, bytes))
        })
    }

    pub(super) fn is_silent(&self, link: usize, way: Way) -> bool {
        self.silent[way as usize] || self.links[link].silent[way as usize]
    }

    /// The fate of the link if the reply to `command` is the next to lose.
    pub(super) fn take_loss(&mut self, command: &[u8]) -> Option<Afterwards> {
        let (bytes, _) = self.losses.front()?;
        if !contains(command, bytes) {
            return None;
        }
        self.losses.pop_front().map(|(_, afterwards)| afterwards)
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
        for link in &mut self.links {
            link.cut(Cut::Close);
        }
    }

    fn describe(&self) -> String {
        let mut came = String::new();
        for (number, link) in self.links.iter().enumerate() {
            came += &format!("link {number}, {}:\n", if link.is_open() { "open" } else { "cut" });
            for command in &link.commands {
                let text = String::from_utf8_lossy(command);
                came += &format!("    {:.200}\n", format!("{text:?}"));
            }
        }
        came
    }
}

impl LinkState {
    pub(super) fn new(sockets: Sockets) -> Self {
        Self {
            sockets: Some(sockets),
            commands: Vec::new(),
            under_way: None,
            writing: false,
            bytes_to_client: 0,
            silent: [false; 2],
            losing: None,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        self.sockets.is_some()
    }

    pub(super) fn count(&self, bytes: &[u8]) -> usize {
        self.commands.iter().filter(|command| contains(command, bytes)).count()
    }

    pub(super) fn cut(&mut self, how: Cut) {
        let Some(Sockets { client, server }) = self.sockets.take() else { return };
        // A shutdown also ends the pumps' reads. It fails only on a dead socket.
        let _ = server.shutdown(Shutdown::Both);
        let _ = match how {
            Cut::Close => client.shutdown(Shutdown::Both),
            // Without time to linger, closing sends RST. Shutting down for writing would send FIN first.
            Cut::Reset => {
                let _ = set_socket_linger(&client, Some(Duration::ZERO));
                client.shutdown(Shutdown::Read)
            }
        };
    }
}

/// True if `command` contains `bytes`, ignoring case.
fn contains(command: &[u8], bytes: &[u8]) -> bool {
    command.windows(bytes.len().max(1)).any(|window| window.eq_ignore_ascii_case(bytes))
}

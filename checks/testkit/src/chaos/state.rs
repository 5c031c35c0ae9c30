//! What a proxy's threads share: the faults there are to be, and what came.

use std::collections::VecDeque;
use std::net::{Shutdown, TcpStream};
use std::panic::Location;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;

use super::{Afterwards, Cut, Way};

/// Far beyond what anything takes that is waited for, even on a busy machine.
const DEADLINE: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) links: Vec<LinkState>,
    /// By [`Way`], for all links.
    pub(super) silent: [bool; 2],
    pub(super) delay: [Duration; 2],
    pub(super) chop: bool,
    /// Which replies are to be lost, in this order.
    pub(super) losses: VecDeque<(Vec<u8>, Afterwards)>,
    /// When each client came.
    pub(super) arrivals: Vec<Instant>,
    /// Where new links lead, if not to the first server.
    pub(super) elsewhere: Option<u16>,
    /// The proxy is going.
    pub(super) closed: bool,
}

#[derive(Debug)]
pub(super) struct LinkState {
    /// The two sockets, which close once the pumps have let go of them too. `None` after a cut.
    pub(super) sockets: Option<Sockets>,
    /// What has gone on to the server.
    pub(super) commands: Vec<Vec<u8>>,
    /// What is on its way there.
    pub(super) under_way: Option<Vec<u8>>,
    /// A command is being written to the server.
    pub(super) writing: bool,
    /// How many bytes have gone on to the client.
    pub(super) bytes_to_client: usize,
    /// By [`Way`].
    pub(super) silent: [bool; 2],
    /// Nothing comes to the client any more, and this happens when the server is done.
    pub(super) losing: Option<Afterwards>,
}

#[derive(Clone, Debug)]
pub(super) struct Sockets {
    pub(super) client: Arc<TcpStream>,
    pub(super) server: Arc<TcpStream>,
}

impl Shared {
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        // A test that panicked has left nothing half done here.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.lock());
        self.changed.notify_all();
        result
    }

    /// Sleeps until something changes.
    pub(super) fn sleep<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    #[track_caller]
    pub(super) fn wait_until(&self, what: &str, mut is_so: impl FnMut(&State) -> bool) {
        self.wait_for(what, |state| is_so(state).then_some(()));
    }

    /// Waits until there is something to be found.
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

    /// Whether a command with `bytes` in it waits for the end of a silence.
    pub(super) fn holds_back(&self, bytes: &[u8]) -> bool {
        self.links.iter().enumerate().any(|(number, link)| {
            self.is_silent(number, Way::ToServer)
                && link.under_way.as_ref().is_some_and(|command| contains(command, bytes))
        })
    }

    pub(super) fn is_silent(&self, link: usize, way: Way) -> bool {
        self.silent[way as usize] || self.links[link].silent[way as usize]
    }

    /// Whether, and how, the reply to `command` is to be lost.
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
        // All of this also ends the reads that the pumps are in. It fails only on a socket that is gone.
        let _ = server.shutdown(Shutdown::Both);
        let _ = match how {
            Cut::Close => client.shutdown(Shutdown::Both),
            // With no time to linger, closing says RST. Shutting down for writing would say FIN first.
            Cut::Reset => {
                let _ = set_socket_linger(&client, Some(Duration::ZERO));
                client.shutdown(Shutdown::Read)
            }
        };
    }
}

/// Whether `bytes` are somewhere in `command`, in upper or lower case.
fn contains(command: &[u8], bytes: &[u8]) -> bool {
    command.windows(bytes.len().max(1)).any(|window| window.eq_ignore_ascii_case(bytes))
}

//! A [`ChaosProxy`]: a faulty network between a client and its server.
//!
//! The proxy forwards whole commands to the server and bytes to the client. Every fault is one of real
//! networks: bytes arrive late, in pieces, or only after a silence, or the link is cut. No bytes are
//! reordered, and none are missing from the middle of an open link.

mod frame;
mod link;
mod pump;
mod state;

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use self::link::Link;
use self::state::{Shared, State};
use crate::port::Port;

/// The direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server: commands.
    ToServer,
    /// From the server to the client: replies and messages.
    ToClient,
}

/// How a link is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// With a FIN, like a peer that closes in good order.
    Close,
    /// With an RST, like a peer that is gone.
    Reset,
}

/// The fate of a link after a lost reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    /// The link is cut with an RST.
    Reset,
    /// The link stays open, and the client receives nothing more.
    Silence,
}

/// A TCP proxy on a loopback port, between Redis clients and one server. Dropping it closes all links.
#[derive(Debug)]
pub struct ChaosProxy {
    port: Port,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl ChaosProxy {
    /// Starts a proxy for `server_port` of 127.0.0.1, where a server may start later.
    #[must_use]
    #[track_caller]
    pub fn start(server_port: u16) -> ChaosProxy {
        let (port, listener) = match Port::listen() {
            Ok(listening) => listening,
            Err(error) => panic!("cannot start a proxy on 127.0.0.1: {error}"),
        };
        let shared = Arc::new(Shared::default());
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, server_port, &shared)
        });
        ChaosProxy { port, shared, acceptor: Some(acceptor) }
    }

    /// `redis://127.0.0.1:<port>`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port.number())
    }

    /// The port that clients connect to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    // === Looking ===

    /// All links so far, open or not, oldest first.
    #[must_use]
    pub fn links(&self) -> Vec<Link> {
        let links = self.shared.lock().links.len();
        (0..links).map(|number| Link::new(Arc::clone(&self.shared), number)).collect()
    }

    /// The newest open link that carried a command containing `bytes`, such as `SUBSCRIBE`.
    #[must_use]
    pub fn link_of(&self, bytes: impl AsRef<[u8]>) -> Option<Link> {
        let bytes = bytes.as_ref();
        self.links().into_iter().rev().find(|link| link.is_open() && link.count(bytes) > 0)
    }

    /// As [`link_of`](Self::link_of), but waits for such a link. Panics as [`wait_for`](Self::wait_for) does.
    #[track_caller]
    pub fn wait_for_link_of(&self, bytes: impl AsRef<[u8]>) -> Link {
        let bytes = bytes.as_ref();
        let what = format!("an open link with {:?}", String::from_utf8_lossy(bytes));
        let number = self.shared.wait_for(&what, |state| {
            state.links.iter().rposition(|link| link.is_open() && link.count(bytes) > 0)
        });
        Link::new(Arc::clone(&self.shared), number)
    }

    /// The number of forwarded commands that contain `bytes`, over all links. Ignores case.
    #[must_use]
    pub fn count(&self, bytes: impl AsRef<[u8]>) -> usize {
        self.shared.lock().count(bytes.as_ref())
    }

    /// Waits until at least `count` commands that contain `bytes` were forwarded to the server, over all
    /// links. Panics if the wait takes unreasonably long; the message lists the commands that came instead.
    #[track_caller]
    pub fn wait_for(&self, bytes: impl AsRef<[u8]>, count: usize) {
        let bytes = bytes.as_ref();
        let what = format!("{count} of {:?} to come", String::from_utf8_lossy(bytes));
        self.shared.wait_until(&what, |state| state.count(bytes) >= count);
    }

    /// Waits until a command that contains `bytes` is held back by a silence. Panics as
    /// [`wait_for`](Self::wait_for) does.
    #[track_caller]
    pub fn wait_until_held_back(&self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let what = format!("{:?} to be held back", String::from_utf8_lossy(bytes));
        self.shared.wait_until(&what, |state| state.holds_back(bytes));
    }

    /// Waits until `count` links were made, open or not. Panics as [`wait_for`](Self::wait_for) does.
    #[track_caller]
    pub fn wait_for_links(&self, count: usize) {
        self.shared.wait_until(&format!("{count} links"), |state| state.links.len() >= count);
    }

    /// Waits until every reply passed to [`lose_reply`](Self::lose_reply) is lost. Panics as
    /// [`wait_for`](Self::wait_for) does.
    #[track_caller]
    pub fn wait_until_replies_are_lost(&self) {
        self.shared.wait_until("the replies' being lost", |state| {
            state.losses.is_empty() && !state.links.iter().any(|link| link.losing.is_some())
        });
    }

    /// The times of all connection attempts so far, including those that found no server.
    #[must_use]
    pub fn arrivals(&self) -> Vec<Instant> {
        self.shared.lock().arrivals.clone()
    }

    /// Forgets all commands so far: [`count`](Self::count) begins anew, and [`link_of`](Self::link_of)
    /// ignores earlier commands. Otherwise a proxy keeps all commands as long as it lives.
    pub fn forget(&self) {
        self.shared.change(|state| state.links.iter_mut().for_each(|link| link.commands = Vec::new()));
    }

    // === Faults ===

    /// Leads new links to another port of 127.0.0.1, like a virtual address or a name that moves to another
    /// server. Existing links stay as they are.
    pub fn lead_to(&self, server_port: u16) {
        self.shared.change(|state| state.elsewhere = Some(server_port));
    }

    /// Cuts every open link. New links can be made.
    pub fn cut(&self, how: Cut) {
        for link in self.links() {
            link.cut(how);
        }
    }

    /// Stops forwarding, on present and future links; [`heal`](Self::heal) forwards the held-back bytes.
    pub fn silence(&self, way: Way) {
        self.shared.change(|state| state.silent[way as usize] = true);
    }

    /// Ends every silence, of single links too, and forwards the held-back bytes; ends delay and chopping.
    pub fn heal(&self) {
        self.shared.change(|state| {
            state.silent = [false; 2];
            state.delay = [Duration::ZERO; 2];
            state.chop = false;
            for link in &mut state.links {
                link.silent = [false; 2];
            }
        });
    }

    /// Delays everything that arrives from now on by this long.
    pub fn delay(&self, way: Way, by: Duration) {
        self.shared.change(|state| state.delay[way as usize] = by);
    }

    /// Sends every byte by itself, both ways.
    pub fn chop(&self) {
        self.shared.change(|state| state.chop = true);
    }

    /// Loses the reply to the next command that contains `bytes`: the server runs it and all earlier commands
    /// of its link, but the client receives nothing more over the link. Repeated calls queue further losses.
    pub fn lose_reply(&self, bytes: impl AsRef<[u8]>, afterwards: Afterwards) {
        let bytes = bytes.as_ref().to_owned();
        self.shared.change(|state| state.losses.push_back((bytes, afterwards)));
    }
}

impl Drop for ChaosProxy {
    fn drop(&mut self) {
        self.shared.change(State::close);
        // Wakes the acceptor, which then sees `closed` and ends.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port.number()));
        if let Some(acceptor) = self.acceptor.take() {
            // The panic of an acceptor was printed already.
            let _ = acceptor.join();
        }
    }
}

/// Makes a link of each connection until the proxy closes; then joins all pumps.
fn accept(listener: &TcpListener, server_port: u16, shared: &Arc<Shared>) {
    let mut pumps = Vec::new();
    for client in listener.incoming() {
        let Ok(client) = client else { continue };
        let (closed, elsewhere) = shared.change(|state| {
            state.arrivals.push(Instant::now());
            (state.closed, state.elsewhere)
        });
        if closed {
            break;
        }
        // The server is down: the client's connection ends at once.
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, elsewhere.unwrap_or(server_port))) else {
            continue;
        };
        // A test with a missing link would fail without a reason.
        pumps.extend(pump::start(client, server, shared).expect("cannot make a link"));
    }
    for pump in pumps {
        let _ = pump.join();
    }
}

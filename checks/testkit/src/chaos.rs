//! A [`ChaosProxy`]: the network between a client and its server, on a bad day.
//!
//! It forwards whole commands to the server and bytes to the client. Every fault is one that a network can
//! have: bytes come late or in pieces, or not until the silence is over, or the link is cut. None comes out
//! of order, and none is missing from the middle of a link that goes on.

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

/// Which way bytes go.
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
    /// With a FIN, as by a peer that ends in good order.
    Close,
    /// With an RST, as by a peer that is gone.
    Reset,
}

/// What becomes of a link after a reply was lost on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Afterwards {
    /// It is cut with an RST.
    Reset,
    /// It stays open, and nothing comes to the client any more.
    Silence,
}

/// A TCP proxy on a loopback port of its own, between Redis clients and one server. Gone, with all its links,
/// on drop.
#[derive(Debug)]
pub struct ChaosProxy {
    port: Port,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

impl ChaosProxy {
    /// Starts a proxy before the server on `server_port` of 127.0.0.1; it need not be up.
    ///
    /// # Panics
    ///
    /// If the operating system refuses a port.
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

    /// Every link that was made so far, open or not, in the order in which they were made.
    #[must_use]
    pub fn links(&self) -> Vec<Link> {
        let links = self.shared.lock().links.len();
        (0..links).map(|number| Link::new(Arc::clone(&self.shared), number)).collect()
    }

    /// The newest open link over which a command with `bytes` in it came, such as `SUBSCRIBE`.
    #[must_use]
    pub fn link_of(&self, bytes: impl AsRef<[u8]>) -> Option<Link> {
        let bytes = bytes.as_ref();
        self.links().into_iter().rev().find(|link| link.is_open() && link.count(bytes) > 0)
    }

    /// As [`link_of`](Self::link_of); waits until there is one.
    ///
    /// # Panics
    ///
    /// As [`wait_for`](Self::wait_for).
    #[track_caller]
    pub fn wait_for_link_of(&self, bytes: impl AsRef<[u8]>) -> Link {
        let bytes = bytes.as_ref();
        let what = format!("an open link with {:?}", String::from_utf8_lossy(bytes));
        let number = self.shared.wait_for(&what, |state| {
            state.links.iter().rposition(|link| link.is_open() && link.count(bytes) > 0)
        });
        Link::new(Arc::clone(&self.shared), number)
    }

    /// How many commands with `bytes` in them have gone on to the server, over all links. Case is not told
    /// apart.
    #[must_use]
    pub fn count(&self, bytes: impl AsRef<[u8]>) -> usize {
        self.shared.lock().count(bytes.as_ref())
    }

    /// Waits until at least `count` commands with `bytes` in them have gone on to the server, over all links.
    ///
    /// # Panics
    ///
    /// If that takes unreasonably long; says which commands came instead.
    #[track_caller]
    pub fn wait_for(&self, bytes: impl AsRef<[u8]>, count: usize) {
        let bytes = bytes.as_ref();
        let what = format!("{count} of {:?} to come", String::from_utf8_lossy(bytes));
        self.shared.wait_until(&what, |state| state.count(bytes) >= count);
    }

    /// Waits until a command with `bytes` in it is held back, by a silence on its way to the server.
    ///
    /// # Panics
    ///
    /// As [`wait_for`](Self::wait_for).
    #[track_caller]
    pub fn wait_until_held_back(&self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        let what = format!("{:?} to be held back", String::from_utf8_lossy(bytes));
        self.shared.wait_until(&what, |state| state.holds_back(bytes));
    }

    /// Waits until `count` links were made in all, open or not.
    ///
    /// # Panics
    ///
    /// As [`wait_for`](Self::wait_for).
    #[track_caller]
    pub fn wait_for_links(&self, count: usize) {
        self.shared.wait_until(&format!("{count} links"), |state| state.links.len() >= count);
    }

    /// Waits until every reply that was to be lost is.
    ///
    /// # Panics
    ///
    /// As [`wait_for`](Self::wait_for).
    #[track_caller]
    pub fn wait_until_replies_are_lost(&self) {
        self.shared.wait_until("the replies' being lost", |state| {
            state.losses.is_empty() && !state.links.iter().any(|link| link.losing.is_some())
        });
    }

    /// When each client came so far, those included that found no server.
    #[must_use]
    pub fn arrivals(&self) -> Vec<Instant> {
        self.shared.lock().arrivals.clone()
    }

    /// Forgets which commands came so far: [`count`](Self::count) begins anew, and [`link_of`](Self::link_of)
    /// knows of no link by what came over it before. Otherwise a proxy keeps them all, as long as it lives.
    pub fn forget(&self) {
        self.shared.change(|state| state.links.iter_mut().for_each(|link| link.commands = Vec::new()));
    }

    // === Faults ===

    /// Leads new links to the server on another port of 127.0.0.1, as a virtual address or a name does that
    /// is given to another server. The links there are stay as they are.
    pub fn lead_to(&self, server_port: u16) {
        self.shared.change(|state| state.elsewhere = Some(server_port));
    }

    /// Cuts every link there is. New ones can be made.
    pub fn cut(&self, how: Cut) {
        for link in self.links() {
            link.cut(how);
        }
    }

    /// Stops forwarding, on the links there are and on those that are made from now on. Sockets stay open,
    /// and what arrives is held back until [`heal`](Self::heal).
    pub fn silence(&self, way: Way) {
        self.shared.change(|state| state.silent[way as usize] = true);
    }

    /// Ends every silence, of single links too, and lets go of what was held back; ends delay and chopping.
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

    /// Lets whatever comes from now on wait this long before it goes on, each time that something comes.
    pub fn delay(&self, way: Way, by: Duration) {
        self.shared.change(|state| state.delay[way as usize] = by);
    }

    /// Sends every byte by itself, both ways.
    pub fn chop(&self) {
        self.shared.change(|state| state.chop = true);
    }

    /// Loses the reply to the next command with `bytes` in it: the server runs the command, and all that came
    /// over its link before, and the client hears nothing more over that link. Called again, one more reply
    /// is lost after that.
    pub fn lose_reply(&self, bytes: impl AsRef<[u8]>, afterwards: Afterwards) {
        let bytes = bytes.as_ref().to_owned();
        self.shared.change(|state| state.losses.push_back((bytes, afterwards)));
    }
}

impl Drop for ChaosProxy {
    fn drop(&mut self) {
        self.shared.change(State::close);
        // Wakes the acceptor, which then sees that it is to end.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port.number()));
        if let Some(acceptor) = self.acceptor.take() {
            // A panic of the proxy's own has been printed already.
            let _ = acceptor.join();
        }
    }
}

/// Makes a link of each connection, until the proxy closes; then waits for all of them to end.
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
        // A server that is down: the client's connection ends as soon as it was made.
        let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, elsewhere.unwrap_or(server_port))) else {
            continue;
        };
        // No link is worth less than a test that says why.
        pumps.extend(pump::start(client, server, shared).expect("cannot make a link"));
    }
    for pump in pumps {
        let _ = pump.join();
    }
}

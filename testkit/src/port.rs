//! Ports that a server can be killed on and come back to.

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

/// Below every usual range of ephemeral ports (Linux starts at 32768, macOS at 49152). Asking the system for
/// "any" port would return an ephemeral one, and while its server is down, the system may give it to an
/// outgoing connection: the server could not come back, and a client that keeps trying to reconnect could
/// even connect to itself.
const PORTS: Range<u16> = 10_000..32_000;

/// A loopback port without a listener at the moment. The caller must be ready to lose it to another process.
pub(crate) fn free_port() -> io::Result<u16> {
    loop {
        let port = fastrand::u16(PORTS);
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(_) => return Ok(port),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
            Err(error) => return Err(error),
        }
    }
}

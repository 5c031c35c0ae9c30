//! Ports that a killed server can come back to.

use std::io;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::ops::Range;

/// Below every usual range of ephemeral ports (gVisor's starts at 16000, Linux's at 32768, macOS's at 49152).
/// While a server is down, the system may give an ephemeral port to an outgoing connection: the server could
/// not come back, and a reconnecting client could even connect to itself.
const PORTS: Range<u16> = 10_000..16_000;

/// A loopback port that no other process of this harness takes, even while no server listens on it.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    /// Bound to the same number for as long as the port is reserved: servers listen on TCP only, and the
    /// system closes the socket however this process ends.
    _reservation: UdpSocket,
}

impl Port {
    /// Reserves a port without a listener. A foreign process may still take the port.
    pub(crate) fn reserve() -> io::Result<Port> {
        Port::listen().map(|(port, _)| port)
    }

    pub(crate) fn listen() -> io::Result<(Port, TcpListener)> {
        loop {
            let number = fastrand::u16(PORTS);
            let reservation = UdpSocket::bind((Ipv4Addr::LOCALHOST, number));
            // In this order: of two processes with the same number, only one sees the port free.
            let listener =
                |it| TcpListener::bind((Ipv4Addr::LOCALHOST, number)).map(|listener| (it, listener));
            match reservation.and_then(listener) {
                Ok((reservation, listener)) => {
                    return Ok((Port { number, _reservation: reservation }, listener));
                }
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

#[cfg(test)]
mod tests {
    use super::{PORTS, Port};

    #[test]
    fn a_reserved_port_is_not_reserved_again() {
        let mut ports = PORTS.filter_map(|_| Port::reserve().ok()).take(500).collect::<Vec<_>>();
        ports.sort_by_key(Port::number);
        assert!(ports.windows(2).all(|two| two[0].number() != two[1].number()));
    }
}

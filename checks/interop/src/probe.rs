//! Detects stalls of the server and its machine, by continuous requests that bypass all faults.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fleet::clock::{nanos, now};

use crate::history::{Event, FaultKind, Journal};

/// Interval of the requests, and the delay that counts as a stall.
pub(crate) const PULSE: Duration = Duration::from_millis(50);
pub(crate) const STALL: Duration = Duration::from_millis(150);

pub(crate) fn start(port: u16, journal: &Arc<Journal>) {
    let journal = Arc::downgrade(journal);
    thread::spawn(move || {
        let mut server = None;
        while let Some(journal) = journal.upgrade() {
            let before = now();
            // While the server is down, the stage reports the fault.
            let connected = server.take().or_else(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok());
            server = connected.filter(|server| answers(server).is_ok());
            thread::sleep(PULSE);
            if server.is_some() && now() - before > nanos(PULSE + STALL) {
                journal.tell(Event::Fault { kind: FaultKind::Stalled, member: None, since: before });
            }
        }
    });
}

fn answers(mut server: &TcpStream) -> std::io::Result<()> {
    server.write_all(b"PING\r\n")?;
    server.read_exact(&mut [0; b"+PONG\r\n".len()])
}

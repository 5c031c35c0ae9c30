//! Whether the server, and the machine under it, stand still: asked all the time, past all faults.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use crate::clock::{nanos, now};
use crate::history::{Event, Journal};

const PAUSE: Duration = Duration::from_millis(50);
const STALL: Duration = Duration::from_millis(150);

/// Asks until the journal is closed.
pub(crate) fn start(port: u16, journal: Arc<Journal>) {
    let journal = Arc::downgrade(&journal);
    thread::spawn(move || {
        loop {
            // While it is down, that is told by the nemesis that has killed it.
            if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                ask(&server, &journal);
            }
            if journal.strong_count() == 0 {
                return;
            }
            thread::sleep(PAUSE);
        }
    });
}

/// Until the connection ends.
fn ask(mut server: &TcpStream, journal: &Weak<Journal>) {
    loop {
        let before = now();
        let mut pong = [0; b"+PONG\r\n".len()];
        if server.write_all(b"PING\r\n").is_err() || server.read_exact(&mut pong).is_err() {
            return;
        }
        thread::sleep(PAUSE);
        let Some(journal) = journal.upgrade() else { return };
        if now() - before > nanos(PAUSE + STALL) {
            journal.tell(Event::Stalled { since: before });
        }
    }
}

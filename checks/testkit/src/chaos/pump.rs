//! The two threads of a link, one for each way.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::frame::Frames;
use super::state::{LinkState, Shared, Sockets};
use super::{Afterwards, Cut, Way};

const BUFFER: usize = 16 * 1024;

pub(super) fn start(
    client: TcpStream,
    server: TcpStream,
    shared: &Arc<Shared>,
) -> io::Result<[JoinHandle<()>; 2]> {
    // Otherwise the operating system would combine single bytes.
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let sockets = Sockets { client: Arc::new(client), server: Arc::new(server) };
    let link = shared.change(|state| {
        state.links.push(LinkState::new(sockets.clone()));
        state.links.len() - 1
    });
    let pump = Pump { shared: Arc::clone(shared), link, sockets };
    let other = pump.clone();
    Ok([thread::spawn(move || pump.pump_commands()), thread::spawn(move || other.pump_replies())])
}

#[derive(Clone)]
struct Pump {
    shared: Arc<Shared>,
    link: usize,
    sockets: Sockets,
}

/// The link was cut, or an end of it is gone.
struct Ended;

impl From<io::Error> for Ended {
    fn from(_: io::Error) -> Ended {
        Ended
    }
}

impl Pump {
    fn pump_commands(self) {
        match self.forward_commands() {
            // The last command's reply is lost on purpose. The server runs the commands, then reads the end
            // of the stream and ends the link, which the other pump sees.
            Ok(()) => {
                let _ = self.sockets.server.shutdown(Shutdown::Write);
            }
            Err(Ended) => self.cut(Cut::Close),
        }
    }

    /// Forwards commands up to one whose reply is lost.
    fn forward_commands(&self) -> Result<(), Ended> {
        let mut frames = Frames::default();
        let mut buffer = [0; BUFFER];
        loop {
            let read = (&*self.sockets.client).read(&mut buffer)?;
            if read == 0 {
                self.hold_back(Way::ToServer)?;
                return Err(Ended);
            }
            frames.put(&buffer[..read]);
            self.delay(Way::ToServer);
            while let Some(command) = frames.take() {
                self.shared.change(|state| state.links[self.link].under_way = Some(command.clone()));
                self.hold_back(Way::ToServer)?;
                // Decided before the server can answer.
                let lose = self.shared.change(|state| {
                    let lose = state.take_loss(&command);
                    let link = &mut state.links[self.link];
                    (link.losing, link.writing) = (lose, true);
                    lose
                });
                let written = self.write(&self.sockets.server, &command);
                self.shared.change(|state| {
                    let link = &mut state.links[self.link];
                    (link.under_way, link.writing) = (None, false);
                    link.commands.push(command);
                });
                written?;
                if lose.is_some() {
                    return Ok(());
                }
            }
        }
    }

    fn pump_replies(self) {
        // However forwarding ended; a silence holds back the end of the stream like bytes.
        let _ = self.forward_replies();
        let losing = self.shared.lock().links[self.link].losing;
        match losing {
            Some(Afterwards::Reset) => self.cut(Cut::Reset),
            // The sockets stay open, without a thread.
            Some(Afterwards::Silence) => {}
            None => self.cut(Cut::Close),
        }
        self.shared.change(|state| state.links[self.link].losing = None);
    }

    fn forward_replies(&self) -> Result<(), Ended> {
        let mut buffer = [0; BUFFER];
        loop {
            let read = (&*self.sockets.server).read(&mut buffer)?;
            if self.shared.lock().links[self.link].losing.is_some() {
                if read == 0 {
                    return Ok(());
                }
                continue;
            }
            self.hold_back(Way::ToClient)?;
            if read == 0 {
                return Ok(());
            }
            self.delay(Way::ToClient);
            self.wait_until_counted();
            self.shared.change(|state| state.links[self.link].bytes_to_client += read);
            self.write(&self.sockets.client, &buffer[..read])?;
        }
    }

    fn hold_back(&self, way: Way) -> Result<(), Ended> {
        let mut state = self.shared.lock();
        while state.links[self.link].is_open() && state.is_silent(self.link, way) {
            state = self.shared.sleep(state);
        }
        if state.links[self.link].is_open() { Ok(()) } else { Err(Ended) }
    }

    /// Waits until a forwarded command is counted: a client that has its reply may check the count.
    fn wait_until_counted(&self) {
        let mut state = self.shared.lock();
        while state.links[self.link].writing {
            state = self.shared.sleep(state);
        }
    }

    fn delay(&self, way: Way) {
        let delay = self.shared.lock().delay[way as usize];
        if delay > Duration::ZERO {
            thread::sleep(delay);
        }
    }

    fn write(&self, mut to: &TcpStream, bytes: &[u8]) -> io::Result<()> {
        if !self.shared.lock().chop {
            return to.write_all(bytes);
        }
        bytes.chunks(1).try_for_each(|byte| to.write_all(byte))
    }

    fn cut(&self, how: Cut) {
        self.shared.change(|state| state.links[self.link].cut(how));
    }
}

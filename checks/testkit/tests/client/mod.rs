//! Just enough of the Redis protocol to ask a server about itself.
#![allow(dead_code, reason = "each test binary uses its own part of it")]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn connect(port: u16) -> Client {
        Client(BufReader::new(TcpStream::connect(("127.0.0.1", port)).unwrap()))
    }

    pub(crate) fn ask(&mut self, command: &str) -> String {
        self.send(command);
        self.receive()
    }

    pub(crate) fn send(&mut self, command: &str) {
        write!(self.0.get_mut(), "{command}\r\n").unwrap();
    }

    pub(crate) fn receive(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    pub(crate) fn is_silent_for(&mut self, time: Duration) -> bool {
        self.0.get_ref().set_read_timeout(Some(time)).unwrap();
        let silent = self.0.fill_buf().is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        self.0.get_ref().set_read_timeout(None).unwrap();
        silent
    }

    pub(crate) fn info(&mut self, field: &str) -> String {
        let length = self.ask("INFO server").trim_start_matches('$').parse().unwrap();
        let mut text = vec![0; length];
        self.0.read_exact(&mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let value = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':')).unwrap();
        value.to_owned()
    }

    pub(crate) fn working_directory(&mut self) -> String {
        // *2, $3, dir, $<length>, and then the directory.
        self.ask("CONFIG GET dir");
        (0..4).map(|_| self.receive()).last().unwrap()
    }
}

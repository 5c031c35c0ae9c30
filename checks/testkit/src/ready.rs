//! The check that a server answers.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// True if the server behind `socket` answers a PING.
///
/// The check avoids TCP: another process may have taken the port first, and its server would answer there.
/// The socket lies in a directory that only our server knows, and a server opens the socket after its port,
/// so an answer proves both. Fails only with errors that waiting longer would not cure.
pub(crate) fn answers(socket: &Path, patience: Duration) -> io::Result<bool> {
    match ping(socket, patience) {
        // An error reply is an answer (with a password, the server says NOAUTH), except for "not yet".
        Ok(reply) => Ok(!reply.is_empty() && !reply.starts_with("-LOADING")),
        // The path is too long for a socket address.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(error),
        // No socket yet, no listener on it yet, or silence.
        Err(_) => Ok(false),
    }
}

fn ping(socket: &Path, patience: Duration) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    // A zero timeout would be refused as invalid input, on which `answers` gives up.
    stream.set_read_timeout(Some(patience.max(Duration::from_millis(1))))?;
    stream.write_all(b"PING\r\n")?;
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply)?;
    Ok(reply)
}

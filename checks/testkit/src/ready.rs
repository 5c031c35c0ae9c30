//! Whether a server answers yet.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Whether the server behind `socket` answers a PING.
///
/// Not asked over TCP: the server that answers there may be another process' that was faster to take the
/// port. The socket lies in a directory only our server knows, and a server opens it after its port, so an
/// answer speaks for both.
///
/// # Errors
///
/// Only what waiting longer would not cure.
pub(crate) fn answers(socket: &Path, patience: Duration) -> io::Result<bool> {
    match ping(socket, patience) {
        // An error reply is an answer too (a server started with a password says NOAUTH), except for "not
        // yet".
        Ok(reply) => Ok(!reply.is_empty() && !reply.starts_with("-LOADING")),
        // The path does not fit into a socket address.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Err(error),
        // No socket yet, no listener on it yet, or silence.
        Err(_) => Ok(false),
    }
}

fn ping(socket: &Path, patience: Duration) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    // A zero timeout would be refused as invalid, and invalid input is what `answers` gives up on.
    stream.set_read_timeout(Some(patience.max(Duration::from_millis(1))))?;
    stream.write_all(b"PING\r\n")?;
    let mut reply = String::new();
    BufReader::new(stream).read_line(&mut reply)?;
    Ok(reply)
}

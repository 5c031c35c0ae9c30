//! Measures how long a writer waits while others read without a pause.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::checks::Checked;
use crate::scenes::Side;
use crate::server::{AT_ALL, Server};

/// Number of reading threads, longest read, and duration of the stream.
const READERS: usize = 4;
const READ: Duration = Duration::from_millis(40);
const STREAM: Duration = Duration::from_secs(12);
/// Time limit of each write attempt, and the number of attempts.
const PATIENCE: Duration = Duration::from_secs(8);
const WRITES: usize = 5;

pub(crate) fn measure(redisson: &Path) {
    for reader in Side::BOTH {
        for writer in Side::BOTH {
            let waited = behind(redisson, reader, writer).unwrap_or_else(|error| error);
            println!("{writer} writer behind readers that are {reader}, ms: {waited}");
        }
    }
}

/// The writer's wait of each attempt, up to the first attempt that failed or the end of the stream.
fn behind(redisson: &Path, reader: Side, writer: Side) -> Checked<String> {
    let server = Server::start();
    let [(readers, _), (writer, _)] = [reader, writer].map(|side| side.start(redisson, &server.server.url()));
    let said = format!("pace read stream {} {}", STREAM.as_millis(), READ.as_millis());
    let reads: Vec<_> = (0..READERS).map(|task| readers.begin(&format!("reads-{task}"), &said)).collect();
    let (mut waited, began) = (Vec::new(), Instant::now());
    while waited.len() < WRITES && began.elapsed() + PATIENCE < STREAM {
        // The mode is a field, too.
        server.until("a reader", || server.run::<usize>(&["HLEN", "stream"]) > 1)?;
        let begun = Instant::now();
        let tries = format!("try write stream {} -1", PATIENCE.as_millis());
        if writer.begin("writes", &tries).answer(AT_ALL)? != "got" {
            waited.push(format!("not within {}", PATIENCE.as_millis()));
            break;
        }
        waited.push(begun.elapsed().as_millis().to_string());
        writer.begin("writes", "unlock write stream").answer(AT_ALL)?;
    }
    reads.iter().try_for_each(|asked| asked.answer(STREAM + AT_ALL).map(|_| ()))?;
    Ok(waited.join(", "))
}

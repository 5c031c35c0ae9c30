//! Splits a client's bytes into commands.

/// Gathers bytes until they form a whole command.
#[derive(Debug, Default)]
pub(super) struct Frames {
    gathered: Vec<u8>,
}

impl Frames {
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.gathered.extend_from_slice(bytes);
    }

    /// The next whole command, verbatim.
    pub(super) fn take(&mut self) -> Option<Vec<u8>> {
        let length = command_length(&self.gathered)?;
        let rest = self.gathered.split_off(length);
        Some(std::mem::replace(&mut self.gathered, rest))
    }
}

/// The length of the command at the start of `bytes`: an array of bulk strings, or a line of words.
fn command_length(bytes: &[u8]) -> Option<usize> {
    let (first, mut at) = line(bytes, 0)?;
    if let Some(words) = first.strip_prefix(b"*") {
        for _ in 0..number(words) {
            let (header, end) = line(bytes, at)?;
            at = end + number(header.strip_prefix(b"$").unwrap_or_default()) + b"\r\n".len();
        }
    }
    (at <= bytes.len()).then_some(at)
}

/// The line that begins at `from`, without its end, and the start of the next line.
fn line(bytes: &[u8], from: usize) -> Option<(&[u8], usize)> {
    let rest = bytes.get(from..)?;
    let length = rest.windows(2).position(|two| two == b"\r\n")?;
    Some((&rest[..length], from + length + 2))
}

/// An invalid number counts as 0: the server complains about it.
fn number(digits: &[u8]) -> usize {
    std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::Frames;

    #[test]
    fn commands_come_out_whole_however_they_went_in() {
        let commands: [&[u8]; 4] = [
            b"*2\r\n$3\r\nGET\r\n$4\r\n\r\n\r\n\r\n",
            b"PING\r\n",
            b"*1\r\n$4\r\nPING\r\n",
            b"*1\r\n$0\r\n\r\n",
        ];
        let all = commands.concat();
        for size in [1, 2, 7, all.len()] {
            let mut frames = Frames::default();
            let mut out = Vec::new();
            for piece in all.chunks(size) {
                frames.put(piece);
                out.extend(std::iter::from_fn(|| frames.take()));
            }
            assert_eq!(out, commands, "expected the commands whole, from pieces of {size} bytes");
        }
    }
}

//! The protocol on the server's side: reads commands, writes replies and pushes (RESP3).

use super::server::Reply;

/// Takes the first command out of the received bytes, word by word, if complete.
///
/// # Panics
///
/// On bytes that are not a command: the simulated network delays or loses bytes, but never corrupts them.
pub(super) fn take_command(bytes: &mut Vec<u8>) -> Option<Vec<Vec<u8>>> {
    let mut at = 0;
    let words = number(bytes, &mut at, b'*')?;
    let mut command = Vec::with_capacity(words);
    for _ in 0..words {
        let length = number(bytes, &mut at, b'$')?;
        command.push(bytes.get(at..at + length)?.to_vec());
        at += length + 2;
    }
    if at > bytes.len() {
        return None;
    }
    bytes.drain(..at);
    Some(command)
}

/// Parses the number on the line that begins at `at`, behind `mark`, and moves `at` behind the line.
fn number(bytes: &[u8], at: &mut usize, mark: u8) -> Option<usize> {
    let line = bytes.get(*at..)?;
    let end = line.iter().position(|byte| *byte == b'\n')?;
    assert_eq!(line[0], mark, "expected the protocol's mark, and got {:?}", String::from_utf8_lossy(line));
    let digits = std::str::from_utf8(&line[1..end - 1]).expect("digits are text");
    *at += end + 1;
    Some(digits.parse().expect("a length is a number"))
}

pub(super) fn write(reply: &Reply, to: &mut Vec<u8>) {
    match reply {
        Reply::Nil => to.extend(b"_\r\n"),
        Reply::Status(text) => line(b'+', text, to),
        Reply::Error(text) => line(b'-', text, to),
        Reply::Int(number) => line(b':', &number.to_string(), to),
        Reply::Double(number) => line(b',', &number.to_string(), to),
        Reply::Bool(is_true) => line(b'#', if *is_true { "t" } else { "f" }, to),
        Reply::Bulk(bytes) => {
            line(b'$', &bytes.len().to_string(), to);
            to.extend(bytes);
            to.extend(b"\r\n");
        }
        Reply::Array(all) => write_all(b'*', all, to),
        Reply::Map(all) => {
            line(b'%', &all.len().to_string(), to);
            for (key, value) in all {
                write(key, to);
                write(value, to);
            }
        }
    }
}

pub(super) fn write_push(push: &[Reply], to: &mut Vec<u8>) {
    write_all(b'>', push, to);
}

fn write_all(mark: u8, all: &[Reply], to: &mut Vec<u8>) {
    line(mark, &all.len().to_string(), to);
    all.iter().for_each(|one| write(one, to));
}

fn line(mark: u8, text: &str, to: &mut Vec<u8>) {
    to.push(mark);
    to.extend(text.as_bytes());
    to.extend(b"\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_taken_once_it_is_whole() {
        let whole = b"*2\r\n$4\r\nPING\r\n$3\r\n\r\nx\r\n*1\r\n";
        for cut in 0..whole.len() - 4 {
            assert_eq!(take_command(&mut whole[..cut].to_vec()), None, "{cut}");
        }
        let mut bytes = whole.to_vec();
        assert_eq!(take_command(&mut bytes), Some(vec![b"PING".to_vec(), b"\r\nx".to_vec()]));
        assert_eq!(bytes, b"*1\r\n");
    }

    #[test]
    fn replies_are_as_the_protocol_has_them() {
        let mut bytes = Vec::new();
        let all = vec![Reply::Nil, Reply::Int(-1), Reply::Bulk(b"a".to_vec()), Reply::Bool(true)];
        write(&Reply::Array(all), &mut bytes);
        write_push(&[Reply::Status("x".to_owned()), Reply::Error("E e".to_owned())], &mut bytes);
        assert_eq!(bytes, b"*4\r\n_\r\n:-1\r\n$1\r\na\r\n#t\r\n>2\r\n+x\r\n-E e\r\n");
    }
}

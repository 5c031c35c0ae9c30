//! [`Wire`]: a connection to a real server.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use crate::store::redis::server::{Content, Key, Reply};

use super::difference;

/// A RESP connection. Panics without a reply.
pub(super) struct Wire {
    stream: BufReader<TcpStream>,
    pushes: Vec<Vec<Reply>>,
}

/// Returns all keys: name, type, TTL, encoding, content.
const LOOK: &str = r"
local found = {}
for i, key in ipairs(redis.call('keys', '*')) do
    local kind = redis.call('type', key).ok
    local content
    if kind == 'string' then
        content = redis.call('get', key)
    elseif kind == 'list' then
        content = redis.call('lrange', key, 0, -1)
    elseif kind == 'hash' then
        content = redis.call('hgetall', key)
    else
        content = redis.call('zrange', key, 0, -1, 'withscores')
    end
    found[i] = { key, kind, redis.call('pttl', key), redis.call('object', 'encoding', key), content }
end
return found
";

impl Wire {
    pub(super) fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("the server is there");
        stream.set_nodelay(true).expect("it is a socket");
        Self { stream: BufReader::new(stream), pushes: Vec::new() }
    }

    pub(super) fn send(&mut self, words: &[Vec<u8>]) {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&bytes).expect("the server is there");
    }

    /// Returns the next reply, and keeps pushes before the reply.
    pub(super) fn receive(&mut self) -> Reply {
        loop {
            match self.item() {
                Item::Reply(reply) => return reply,
                Item::Push(push) => self.pushes.push(push),
            }
        }
    }

    pub(super) fn take_pushes(&mut self) -> Vec<Vec<Reply>> {
        std::mem::take(&mut self.pushes)
    }

    /// Returns all keys, sorted by name, and the names of hashes without an order.
    pub(super) fn keys(&mut self) -> (Vec<Key>, BTreeSet<Vec<u8>>) {
        self.send(&[b"EVAL".to_vec(), LOOK.as_bytes().to_vec(), b"0".to_vec()]);
        let Reply::Array(found) = self.receive() else { panic!("it returns an array") };
        let mut unordered = BTreeSet::new();
        let mut keys: Vec<Key> = found
            .into_iter()
            .map(|key| {
                let Reply::Array(parts) = key else { panic!("a key has parts") };
                let [Reply::Bulk(name), Reply::Bulk(kind), Reply::Int(left), Reply::Bulk(encoding), content] =
                    <[Reply; 5]>::try_from(parts).expect("a key has five parts")
                else {
                    panic!("these are its parts")
                };
                if encoding == b"hashtable" {
                    unordered.insert(name.clone());
                }
                let left = u64::try_from(left).ok();
                let mut key = Key { name, content: content_of(&kind, content), left };
                difference::order_key(&mut key, &unordered);
                key
            })
            .collect();
        keys.sort_by(|one, other| one.name.cmp(&other.name));
        (keys, unordered)
    }

    fn item(&mut self) -> Item {
        let line = self.line();
        let (kind, rest) = line.split_at(1);
        let number = || rest.parse::<i64>().expect("the text is a number");
        Item::Reply(match kind {
            "+" => Reply::Status(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Reply::Int(number()),
            "_" => Reply::Nil,
            "#" => Reply::Bool(rest == "t"),
            "," => Reply::Double(rest.parse().expect("the text is a number")),
            "$" | "*" if rest == "-1" => Reply::Nil,
            "$" => Reply::Bulk(self.bytes(number())),
            // A verbatim string begins with its format.
            "=" => Reply::Bulk(self.bytes(number())[4..].to_vec()),
            "*" => Reply::Array(self.items(number())),
            "%" => {
                let all = self.items(2 * number());
                Reply::Map(all.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
            }
            ">" => return Item::Push(self.items(number())),
            _ => panic!("it is none of the kinds that we know: {line}"),
        })
    }

    fn items(&mut self, count: i64) -> Vec<Reply> {
        let item = |_| match self.item() {
            Item::Reply(reply) => reply,
            Item::Push(_) => panic!("nothing is pushed into a reply"),
        };
        (0..count).map(item).collect()
    }

    fn line(&mut self) -> String {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).expect("the server is there");
        assert!(
            line.ends_with(b"\r\n"),
            "expected a whole line of the reply, and the server ended the connection"
        );
        line.truncate(line.len() - 2);
        String::from_utf8_lossy(&line).into_owned()
    }

    fn bytes(&mut self, count: i64) -> Vec<u8> {
        let count = usize::try_from(count).expect("it is a length");
        let mut bytes = vec![0; count + 2];
        self.stream.read_exact(&mut bytes).expect("the server is there");
        bytes.truncate(count);
        bytes
    }
}

enum Item {
    Reply(Reply),
    Push(Vec<Reply>),
}

fn content_of(kind: &[u8], content: Reply) -> Content {
    let texts = |reply| {
        let Reply::Array(all) = reply else { panic!("it is an array: {reply:?}") };
        let text = |reply| {
            let Reply::Bulk(text) = reply else { panic!("it is a text: {reply:?}") };
            text
        };
        all.into_iter().map(text).collect::<Vec<_>>()
    };
    let pairs = |reply| {
        let texts = texts(reply);
        texts.chunks_exact(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect::<Vec<_>>()
    };
    match (kind, content) {
        (b"string", Reply::Bulk(text)) => Content::String(text),
        (b"list", content) => Content::List(texts(content)),
        (b"hash", content) => Content::Hash(pairs(content)),
        (b"zset", content) => {
            let number =
                |text: Vec<u8>| String::from_utf8_lossy(&text).parse().expect("the text is a number");
            let pairs = pairs(content).into_iter();
            Content::SortedSet(pairs.map(|(name, score)| (name, number(score))).collect())
        }
        _ => panic!("it is of a type that we do not know"),
    }
}

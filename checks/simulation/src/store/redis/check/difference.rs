//! [`Difference`]: describes disagreements of the two servers, and removes expected ones.

use std::collections::BTreeSet;
use std::fmt;

use crate::store::redis::server::{Content, Key, Reply};

pub(super) struct Difference {
    what: &'static str,
    recent: Vec<String>,
    real: String,
    small: String,
}

const SHOWN: usize = 30;

impl Difference {
    pub(super) fn of_replies(recent: &[String], real: &Reply, small: &Reply) -> Self {
        Self::new("reply", recent, show(real), show(small))
    }

    pub(super) fn of_pushes(recent: &[String], real: &[Vec<Reply>], small: &[Vec<Reply>]) -> Self {
        let all = |pushes: &[Vec<Reply>]| {
            pushes.iter().map(|push| show(&Reply::Array(push.clone()))).collect::<Vec<_>>().join("\n    ")
        };
        Self::new("pushes", recent, all(real), all(small))
    }

    pub(super) fn of_keys(recent: &[String], real: &[Key], small: &[Key]) -> Self {
        let others = |these: &[Key], those: &[Key]| {
            let only_here = these.iter().filter(|key| !those.contains(key));
            only_here.map(show_key).collect::<Vec<_>>().join("\n    ")
        };
        Self::new("keys", recent, others(real, small), others(small, real))
    }

    fn new(what: &'static str, recent: &[String], real: String, small: String) -> Self {
        let recent = recent[recent.len().saturating_sub(SHOWN)..].to_vec();
        Self { what, recent, real, small }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the servers differ in their {}, after", self.what)?;
        for call in &self.recent {
            writeln!(f, "  {call}")?;
        }
        writeln!(f, "  real:\n    {}\n  small:\n    {}", self.real, self.small)
    }
}

pub(super) fn line(words: &[Vec<u8>]) -> String {
    let word = |word: &Vec<u8>| {
        let text = word.escape_ascii().to_string();
        if text.len() > 300 { format!("{}…", &text[..120]) } else { format!("'{text}'") }
    };
    words.iter().map(word).collect::<Vec<_>>().join(" ")
}

fn show(reply: &Reply) -> String {
    match reply {
        Reply::Bulk(text) => format!("'{}'", text.escape_ascii()),
        Reply::Array(all) => format!("[{}]", all.iter().map(show).collect::<Vec<_>>().join(", ")),
        Reply::Map(pairs) => {
            let pair = |(key, value): &(Reply, Reply)| format!("{}: {}", show(key), show(value));
            format!("{{{}}}", pairs.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
        other => format!("{other:?}"),
    }
}

fn show_key(key: &Key) -> String {
    let text = |text: &Vec<u8>| text.escape_ascii().to_string();
    let content = match &key.content {
        Content::String(its) => format!("'{}'", text(its)),
        Content::List(all) => format!("{:?}", all.iter().map(text).collect::<Vec<_>>()),
        Content::Hash(pairs) => {
            format!("{:?}", pairs.iter().map(|(field, value)| (text(field), text(value))).collect::<Vec<_>>())
        }
        Content::SortedSet(all) => {
            format!("{:?}", all.iter().map(|(name, score)| (text(name), score)).collect::<Vec<_>>())
        }
    };
    format!("'{}', for {:?} ms: {content}", text(&key.name), key.left)
}

pub(super) fn order_key(key: &mut Key, unordered: &BTreeSet<Vec<u8>>) {
    if let Content::Hash(fields) = &mut key.content
        && unordered.contains(&key.name)
    {
        fields.sort();
    }
}

/// Sorts the reply to a command about a hash without an order.
pub(super) fn in_order(words: &[Vec<u8>], reply: Reply, unordered: &BTreeSet<Vec<u8>>) -> Reply {
    let words = match words {
        // The command of `commands::CALLS_OF_SCRIPTS` is in the arguments.
        [name, _, _, words @ ..] if name.eq_ignore_ascii_case(b"eval") => words,
        words => words,
    };
    let [name, key, ..] = words else { return reply };
    if !unordered.contains(key) {
        return reply;
    }
    match (name.to_ascii_lowercase().as_slice(), reply) {
        (b"hkeys", Reply::Array(fields)) => Reply::Array(sorted(fields, 1)),
        (b"hgetall", Reply::Array(fields)) => Reply::Array(sorted(fields, 2)),
        (b"hgetall", Reply::Map(pairs)) => {
            let all = pairs.into_iter().flat_map(|(field, value)| [field, value]).collect();
            Reply::Array(sorted(all, 2))
        }
        // Pages of a scan are arbitrary.
        (b"hscan", Reply::Array(parts)) => match &parts[..] {
            [Reply::Bulk(next), Reply::Array(fields)] if next == b"0" && has_all(words) => {
                Reply::Array(sorted(fields.clone(), 2))
            }
            _ => Reply::Nil,
        },
        (_, reply) => reply,
    }
}

/// Sorts the confirmations that end all subscriptions of a connection, which have no order.
pub(super) fn pushes_in_order(mut pushes: Vec<Vec<Reply>>) -> Vec<Vec<Reply>> {
    let is_end = |push: &Vec<Reply>| matches!(&push[0], Reply::Bulk(kind) if kind.ends_with(b"unsubscribe"));
    for run in pushes.chunk_by_mut(|one, other| is_end(one) && is_end(other) && one[0] == other[0]) {
        if run.len() > 1 {
            // The number of remaining subscriptions depends on the order.
            run.iter_mut().for_each(|push| push[2] = Reply::Nil);
            run.sort_by_key(|push| show(&push[1]));
        }
    }
    pushes
}

/// True if the scan covers the whole hash.
fn has_all(words: &[Vec<u8>]) -> bool {
    words.get(2).is_some_and(|cursor| cursor == b"0") && words.get(4).is_some_and(|count| count == b"100000")
}

fn sorted(all: Vec<Reply>, size: usize) -> Vec<Reply> {
    let mut chunks: Vec<Vec<Reply>> = all.chunks(size).map(<[Reply]>::to_vec).collect();
    chunks.sort_by_key(|chunk| chunk.iter().map(show).collect::<Vec<_>>());
    chunks.concat()
}

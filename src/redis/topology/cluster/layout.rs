//! Addresses and slots of a Cluster, and the reply to CLUSTER SLOTS.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use ::redis::{ConnectionAddr, ConnectionInfo, FromRedisValue, ParsingError, Value};

use crate::backend::LockName;
use crate::lock::NameError;

use super::super::super::connection::Address;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shard {
    pub(super) slots: RangeInclusive<u16>,
    /// `None` if the Cluster does not announce the master's address.
    pub(super) master: Option<Address>,
    pub(super) replicas: Vec<Address>,
}

/// Reads a reply to CLUSTER SLOTS from the node `asked`. (CLUSTER SHARDS needs 7.0.)
pub(super) fn read(reply: Value, asked: &Address) -> Result<Vec<Shard>, ParsingError> {
    let ranges: Vec<Vec<Value>> = FromRedisValue::from_redis_value(reply)?;
    ranges.into_iter().map(|range| read_shard(range, asked)).collect()
}

fn read_shard(range: Vec<Value>, asked: &Address) -> Result<Shard, ParsingError> {
    let mut parts = range.into_iter();
    let (Some(first), Some(last)) = (parts.next(), parts.next()) else {
        return Err("a range of slots without its bounds".into());
    };
    let slots = u16::from_redis_value(first)?..=u16::from_redis_value(last)?;
    let mut nodes = parts.map(|node| read_node(node, asked));
    let master = nodes.next().transpose()?.flatten();
    let replicas = nodes.filter_map(Result::transpose).collect::<Result<_, _>>()?;
    Ok(Shard { slots, master, replicas })
}

fn read_node(node: Value, asked: &Address) -> Result<Option<Address>, ParsingError> {
    let mut parts = Vec::<Value>::from_redis_value(node)?.into_iter();
    let (Some(host), Some(port)) = (parts.next(), parts.next()) else {
        return Err("a node without its address".into());
    };
    let (host, port) = (Option::<String>::from_redis_value(host)?, u16::from_redis_value(port)?);
    let host = match host.as_deref() {
        // The Cluster does not tell the host: use the host of the node asked.
        None | Some("") => Some(asked.host.clone()),
        // The Cluster prefers hostnames, and this node has none: an IP address may follow.
        Some("?") => parts.nth(1).and_then(|beside| {
            let mut beside = HashMap::<String, String>::from_redis_value(beside).ok()?;
            beside.remove("ip").filter(|ip| !ip.is_empty())
        }),
        Some(_) => host,
    };
    Ok(host.map(|host| Address { host, port }))
}

impl Address {
    /// Returns `None` for a unix socket, which is unreachable from other nodes.
    pub(super) fn of(info: &ConnectionInfo) -> Option<Self> {
        match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(Self { host: host.clone(), port: *port })
            }
            _ => None,
        }
    }

    /// Parses `host:port`. The host may be empty.
    pub(super) fn parse(text: &str) -> Option<Self> {
        // An IPv6 address contains more colons.
        let (host, port) = text.rsplit_once(':')?;
        Some(Self { host: host.to_owned(), port: port.parse().ok()? })
    }
}

/// Parses a redirect from the node at `asked`, whose host an empty host means.
pub(super) fn redirected(text: &str, asked: &str) -> Option<Address> {
    let to = Address::parse(text)?;
    if to.host.is_empty() { Some(Address { host: Address::parse(asked)?.host, ..to }) } else { Some(to) }
}

pub(super) const SLOTS: u16 = 16_384;

pub(super) fn slot(key: &str) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(hashed(key).as_bytes()) % SLOTS
}

/// Refuses a name whose lock, channel and counter would not share a slot: after an empty first pair of
/// braces, each key is hashed as a whole. (The braces of a [`LockName`] are balanced.)
pub(super) fn check_name(name: &LockName) -> Result<(), NameError> {
    let brace = name.as_str().find('{');
    let empty = brace.is_some_and(|brace| name.as_str()[brace + 1..].starts_with('}'));
    if empty { Err(NameError::EmptyHashTag) } else { Ok(()) }
}

/// Returns the hashed part of a key: the text between its first `{` and the next `}`, or else the whole key.
fn hashed(key: &str) -> &str {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::super::super::super::hostile::{WORDS, attack, reply};
    use super::super::super::super::keys::{self, QueueKind};
    use super::*;

    fn text(text: &str) -> Value {
        Value::BulkString(text.into())
    }

    fn node(host: Value, port: i64, beside: Option<(&str, &str)>) -> Value {
        let beside = beside.into_iter().flat_map(|(key, value)| [text(key), text(value)]).collect();
        Value::Array(vec![host, Value::Int(port), text("an id"), Value::Array(beside)])
    }

    #[test]
    fn hosts_may_be_unknown() {
        let asked = Address { host: "seed".into(), port: 7000 };
        let mut range = vec![Value::Int(0), Value::Int(5460)];
        range.extend([
            node(text("10.0.0.1"), 7001, None),
            node(Value::Nil, 7002, None),
            node(text(""), 7003, None),
            node(text("node-4.example.com"), 7004, Some(("ip", "10.0.0.4"))),
            node(text("?"), 7005, Some(("ip", "10.0.0.5"))),
            node(text("?"), 7006, None),
            // Format before 7.0.
            Value::Array(vec![text("10.0.0.7"), Value::Int(7007), text("an id")]),
        ]);
        let shards = read(Value::Array(vec![Value::Array(range)]), &asked).unwrap();
        let [shard] = &shards[..] else { panic!("{shards:?}") };
        assert_eq!(shard.slots, 0..=5460);
        assert_eq!(shard.master.as_ref().unwrap().to_string(), "10.0.0.1:7001");
        let replicas: Vec<String> = shard.replicas.iter().map(ToString::to_string).collect();
        let announced =
            ["seed:7002", "seed:7003", "node-4.example.com:7004", "10.0.0.5:7005", "10.0.0.7:7007"];
        assert_eq!(replicas, announced);
    }

    #[test]
    fn other_replies_are_refused() {
        let asked = Address { host: "seed".into(), port: 7000 };
        assert!(read(Value::Okay, &asked).is_err());
        assert!(read(Value::Array(vec![Value::Array(vec![Value::Int(0)])]), &asked).is_err());
        let node = Value::Array(vec![text("10.0.0.1")]);
        let range = Value::Array(vec![Value::Int(0), Value::Int(1), node]);
        assert!(read(Value::Array(vec![range]), &asked).is_err());
    }
    #[test]
    fn hostile_layouts_are_read_or_refused() {
        let asked = Address { host: "seed".into(), port: 7000 };
        attack("layouts", &WORDS, |input| {
            let value = reply(input);
            let Ok(shards) = read(value.clone(), &asked) else { return };
            let Value::Array(ranges) = value else { return };
            assert_eq!(shards.len(), ranges.len());
            let slots: HashSet<u16> = shards.iter().flat_map(|shard| shard.slots.clone()).collect();
            assert!(slots.len() <= usize::from(u16::MAX) + 1);
        });
    }

    #[test]
    fn redirects_name_a_host_or_mean_the_one_that_was_asked() {
        let read = |text| redirected(text, "node-1:7000").map(|address| address.to_string());
        assert_eq!(read("10.0.0.2:7001").as_deref(), Some("10.0.0.2:7001"));
        assert_eq!(read("node-2.example.com:7001").as_deref(), Some("node-2.example.com:7001"));
        assert_eq!(read(":7001").as_deref(), Some("node-1:7001"));
        assert_eq!(read("fe80::2:7001").as_deref(), Some("fe80::2:7001"));
        assert_eq!(read("7001"), None);
        assert_eq!(read("node-2:"), None);
    }

    #[test]
    fn slots_are_those_of_the_redis_documentation() {
        assert_eq!(slot("123456789"), 0x31C3);
        assert_eq!(slot("foo"), 12_182);
        assert_eq!(slot("{user1000}.following"), slot("{user1000}.followers"));
        for (key, part) in [
            ("{user1000}.following", "user1000"),
            ("foo{}{bar}", "foo{}{bar}"),
            ("foo{{bar}}zap", "{bar"),
            ("foo{bar}{zap}", "bar"),
            ("foo{bar", "foo{bar"),
        ] {
            assert_eq!(hashed(key), part);
        }
    }

    #[test]
    fn names_that_pass_keep_their_keys_together() {
        for name in ["a", "a:b", "{a}", "x{a}y", "a{b}{}", "{{a}}", "a{{}}", "{a{b}c}", "ä{ö}"] {
            let lock = LockName::new(name).unwrap();
            assert_eq!(check_name(&lock), Ok(()), "{name}");
            assert_eq!(slot(&keys::channel(name)), slot(name), "{name}");
            assert_eq!(slot(&keys::token(name)), slot(name), "{name}");
            let kinds = [QueueKind::Fair, QueueKind::ReadWrite, QueueKind::Permits];
            let own =
                [&kinds.map(|kind| kind.queue(name)).concat()[..], &keys::waiting_readers(name)].concat();
            for key in
                own.iter().chain(&kinds.map(|kind| kind.grants(name))).chain(&[keys::read_leases(name)])
            {
                assert_eq!(slot(key), slot(name), "{key}");
            }
        }
    }

    #[test]
    fn names_that_do_not_are_refused() {
        for name in ["{}", "{}a", "a{}", "{}{a}", "a{}{b}"] {
            let lock = LockName::new(name).unwrap();
            assert_eq!(check_name(&lock), Err(NameError::EmptyHashTag), "{name}");
            assert_ne!(slot(&keys::channel(name)), slot(name), "{name}");
        }
        for name in ["a{b", "a}b", "}a{"] {
            assert_eq!(LockName::new(name), Err(NameError::UnbalancedBraces), "{name}");
        }
    }
}

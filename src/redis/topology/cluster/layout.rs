//! Reads what CLUSTER SLOTS answers.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use ::redis::{FromRedisValue, ParsingError, Value};

use super::super::super::connection::Address;

/// Slots that are next to each other, and the node that has them.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shard {
    pub(super) slots: RangeInclusive<u16>,
    /// `None` if the Cluster does not say where it is to be reached.
    pub(super) master: Option<Address>,
    pub(super) replicas: Vec<Address>,
}

/// A reply to CLUSTER SLOTS (rather than CLUSTER SHARDS, which only 7.0 brought) from the node `asked`.
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
        // The Cluster does not know it, or is not to say: it is the one under which we know the node that we
        // asked.
        None | Some("") => Some(asked.host.clone()),
        // It is to be a hostname, and this node has none. Its address of IP may stand beside.
        Some("?") => parts.nth(1).and_then(|beside| {
            let mut beside = HashMap::<String, String>::from_redis_value(beside).ok()?;
            beside.remove("ip").filter(|ip| !ip.is_empty())
        }),
        Some(_) => host,
    };
    Ok(host.map(|host| Address { host, port }))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use ::redis::Value;

    use super::super::super::super::hostile::{WORDS, attack, reply};
    use super::{Address, read};

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
            // Before 7.0.
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
            // As one that walks over all of them does.
            let slots: HashSet<u16> = shards.iter().flat_map(|shard| shard.slots.clone()).collect();
            assert!(slots.len() <= usize::from(u16::MAX) + 1);
        });
    }
}

//! Malformed replies, to test the readers of replies.

use ::redis::{FromRedisValue, PushKind, Value, VerbatimFormat, parse_redis_value};

use crate::backend::{AcquireOutcome, LockName};

use super::backend::{attempted, freed};
use super::connection::ErrorKind;
use super::scripts::Reply;

#[path = "../../tests/hostile/driver.rs"]
mod driver;

pub(super) use self::driver::attack;

pub(super) const WORDS: [&str; 22] = [
    ":1\r\n",
    ":0\r\n",
    ":-1\r\n",
    ":-3\r\n",
    ":9223372036854775807\r\n",
    ":-9223372036854775808\r\n",
    "$4\r\nread\r\n",
    "$4\r\nlock\r\n",
    "$38\r\n8743c9c0-0795-4907-87fd-6c719a6b4586:1\r\n",
    "$1\r\n\u{1}\r\n",
    "$0\r\n\r\n",
    "$-1\r\n",
    "*0\r\n",
    "*1\r\n",
    "*2\r\n",
    "*3\r\n",
    "%1\r\n",
    "~1\r\n",
    "_\r\n",
    "#t\r\n",
    ",1.5\r\n",
    "+OK\r\n",
];

/// Parses `input` as a reply, or builds a value from its bytes: most mutations of a reply are not parseable.
pub(super) fn reply(input: &[u8]) -> Value {
    parse_redis_value(input).unwrap_or_else(|_| value(&mut input.iter().copied(), 0))
}

fn value(bytes: &mut impl Iterator<Item = u8>, depth: usize) -> Value {
    let mut next = || bytes.next().unwrap_or_default();
    let (kind, size) = (next() % 16, next());
    let number = i64::from(size as i8);
    let many = if depth < 6 { usize::from(size % 5) } else { 0 };
    let text = || ["", "read", "lock", "0", "-1", "master", "18446744073709551616"][usize::from(size % 7)];
    match kind {
        0 => Value::Nil,
        1 => Value::Int(number),
        2 => Value::Int([i64::MIN, i64::MAX][usize::from(size % 2)]),
        3 => Value::BulkString(text().into()),
        4 => Value::BulkString((0..size % 40).map(|_| next()).collect()),
        5 => Value::SimpleString(text().to_owned()),
        6 => Value::Okay,
        7 => Value::Boolean(size % 2 == 0),
        8 => Value::Double([f64::NAN, f64::INFINITY, number as f64, 0.5][usize::from(size % 4)]),
        9 => Value::VerbatimString { format: VerbatimFormat::Text, text: text().to_owned() },
        10 => Value::Map((0..many).map(|_| (value(bytes, depth + 1), value(bytes, depth + 1))).collect()),
        11 => Value::Set((0..many).map(|_| value(bytes, depth + 1)).collect()),
        12 => {
            let kind = [PushKind::Message, PushKind::SUnsubscribe][usize::from(size % 2)].clone();
            Value::Push { kind, data: (0..many).map(|_| value(bytes, depth + 1)).collect() }
        }
        13 => {
            let data = Box::new(value(bytes, depth + 1));
            if depth < 6 { Value::Attribute { data, attributes: Vec::new() } } else { *data }
        }
        _ => Value::Array((0..many).map(|_| value(bytes, depth + 1)).collect()),
    }
}

pub(super) fn without_attributes(reply: Value) -> Value {
    match reply {
        Value::Attribute { data, .. } => without_attributes(*data),
        other => other,
    }
}

#[test]
fn attributes_beside_a_reply_change_nothing() {
    let beside = |reply| Value::Attribute { data: Box::new(reply), attributes: Vec::new() };
    assert!(matches!(Reply::from_redis_value(beside(Value::Int(-3))), Ok(Reply::Number(-3))));
    assert!(matches!(Reply::from_redis_value(beside(Value::Array(Vec::new()))), Ok(Reply::Token(0))));
}

#[test]
fn hostile_replies_of_scripts_are_outcomes_or_errors() {
    let name = LockName::new("orders").unwrap();
    attack("replies", &WORDS, |input| {
        let value = without_attributes(reply(input));
        let Ok(read) = Option::<Reply>::from_redis_value(value.clone()) else { return };
        match (&read, &value) {
            (Some(Reply::Number(number)), value) => assert_eq!(Value::Int(*number), *value),
            (Some(Reply::Token(token)), Value::Array(all)) if !all.is_empty() => {
                assert_eq!(u64::from_redis_value(all[0].clone()).ok(), Some(*token));
            }
            _ => {}
        }
        let is_free = matches!(read, None | Some(Reply::Token(_)));
        match attempted(&name, read) {
            Ok(AcquireOutcome::Acquired { .. }) => assert!(is_free, "{value:?}"),
            Ok(_) => assert!(matches!(value, Value::Int(_)), "{value:?}"),
            Err(error) => assert!(matches!(error.kind(), ErrorKind::OtherKind(_)), "{error:?}"),
        }
        if let Ok(read) = Reply::from_redis_value(value.clone()) {
            let is_text = matches!(read, Reply::Mode(_));
            assert_eq!(freed(&name, read).is_err(), is_text, "{value:?}");
        }
        let _ = Vec::<bool>::from_redis_value(value.clone());
        let _ = Option::<(i64, Vec<String>, Option<String>)>::from_redis_value(value);
    });
}

//! Which slot a key lies in, and which names would have their keys in two of them.

use crate::backend::LockName;
use crate::lock::NameError;

/// How many slots a Cluster has.
pub(super) const SLOTS: u16 = 16_384;

/// The slot of a key or a sharded channel.
pub(super) fn slot(key: &str) -> u16 {
    crc16::State::<crc16::XMODEM>::calculate(hashed(key).as_bytes()) % SLOTS
}

/// Refuses a name whose lock, channel and counter would not share a slot. As a [`LockName`]'s braces are
/// balanced, that is one kind only: with an empty pair in front, each of these keys is hashed as a whole.
pub(super) fn check_name(name: &LockName) -> Result<(), NameError> {
    let brace = name.as_str().find('{');
    let empty = brace.is_some_and(|brace| name.as_str()[brace + 1..].starts_with('}'));
    if empty { Err(NameError::EmptyHashTag) } else { Ok(()) }
}

/// What of a key counts: what stands between its first `{` and the first `}` after that, if anything does.
fn hashed(key: &str) -> &str {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    tag.filter(|tag| !tag.is_empty()).unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::super::super::super::keys;
    use super::{check_name, hashed, slot};
    use crate::backend::LockName;
    use crate::lock::NameError;

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
            let own = [&keys::fair_queue(name)[..], &keys::write_queue(name), &keys::waiting_readers(name)]
                .concat();
            for key in
                own.iter().chain(&[keys::grants(name), keys::write_grants(name), keys::read_leases(name)])
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

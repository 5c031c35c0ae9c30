//! Keys of any type.

use super::{Answer, Call, syntax_error};
use crate::store::redis::server::number::integer;
use crate::store::redis::server::reply::Reply;

pub(super) fn dbsize(call: &mut Call<'_>, _: &[&[u8]]) -> Answer {
    Ok(Reply::count(call.core.data.list(call.core.now).len()))
}

pub(super) fn del(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let now = call.now();
    let gone = words[1..].iter().filter(|key| call.data().remove(key, now).is_some());
    Ok(Reply::count(gone.count()))
}

pub(super) fn exists(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let now = call.now();
    let there = words[1..].iter().filter(|key| call.data().entry(key, now).is_some());
    Ok(Reply::count(there.count()))
}

pub(super) fn flushall(call: &mut Call<'_>, _: &[&[u8]]) -> Answer {
    *call.data() = Default::default();
    Ok(Reply::ok())
}

pub(super) fn persist(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let now = call.now();
    let entry = call.data().entry(words[1], now);
    Ok(Reply::Int(i64::from(entry.is_some_and(|entry| entry.ends.take().is_some()))))
}

/// Conditions on the key's present expiry. No expiry counts as later than any.
#[derive(Clone, Copy, Default)]
struct Conditions {
    unset: bool,
    set: bool,
    later: bool,
    earlier: bool,
}

impl Conditions {
    fn of(words: &[&[u8]]) -> Result<Self, String> {
        let mut all = Self::default();
        for word in words {
            match word.to_ascii_lowercase().as_slice() {
                b"nx" => all.unset = true,
                b"xx" => all.set = true,
                b"gt" => all.later = true,
                b"lt" => all.earlier = true,
                _ => {
                    let word = super::c_text(word);
                    return Err(format!("ERR Unsupported option {word}"));
                }
            }
        }
        if all.unset && (all.set || all.later || all.earlier) {
            return Err("ERR NX and XX, GT or LT options at the same time are not compatible".to_owned());
        }
        if all.later && all.earlier {
            return Err("ERR GT and LT options at the same time are not compatible".to_owned());
        }
        Ok(all)
    }

    fn allow(self, old: Option<u64>, ends: i64) -> bool {
        let is_later = old.is_some_and(|old| i128::from(ends) > i128::from(old));
        let is_earlier = old.is_none_or(|old| i128::from(ends) < i128::from(old));
        !(self.unset && old.is_some()
            || self.set && old.is_none()
            || self.later && !is_later
            || self.earlier && !is_earlier)
    }
}

pub(super) fn pexpire(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let now = call.now();
    let conditions = Conditions::of(&words[3..])?;
    let millis = integer(words[2])?;
    let ends = i64::try_from(now / 1000).expect("the number fits").checked_add(millis);
    let ends = ends.ok_or("ERR invalid expire time in 'pexpire' command")?;
    let Some(entry) = call.data().entry(words[1], now) else { return Ok(Reply::Int(0)) };
    if !conditions.allow(entry.ends, ends) {
        return Ok(Reply::Int(0));
    }
    if millis <= 0 {
        call.data().remove(words[1], now);
    } else {
        entry.ends = u64::try_from(ends).ok();
    }
    Ok(Reply::Int(1))
}

pub(super) fn pttl(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let now = call.now();
    Ok(Reply::Int(match call.data().entry(words[1], now) {
        None => -2,
        Some(entry) => {
            entry.ends.map_or(-1, |ends| i64::try_from(ends - now / 1000).expect("it was an integer"))
        }
    }))
}

pub(super) fn rename(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let now = call.now();
    let entry = call.data().remove(words[1], now).ok_or("ERR no such key")?;
    call.data().set(words[2], entry);
    Ok(Reply::ok())
}

pub(super) fn type_of(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let now = call.now();
    let name = call.data().entry(words[1], now).map_or("none", |entry| entry.value.type_name());
    Ok(Reply::Status(name.to_owned()))
}

pub(super) fn is(word: &[u8], option: &str) -> bool {
    word.eq_ignore_ascii_case(option.as_bytes())
}

pub(super) fn behind(words: &[&[u8]], at: usize) -> Result<i64, String> {
    integer(words.get(at + 1).ok_or_else(syntax_error)?)
}

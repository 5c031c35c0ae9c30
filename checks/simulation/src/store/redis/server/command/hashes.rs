//! Hashes.

use super::keys::{behind, is};
use super::{Answer, Call, syntax_error, wrong_number};
use crate::store::redis::server::glob;
use crate::store::redis::server::hash::Hash;
use crate::store::redis::server::reply::Reply;

pub(super) fn hset(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    if !words.len().is_multiple_of(2) {
        return Err(wrong_number("hset"));
    }
    let new = call.change(words[1], |hash: &mut Hash| {
        hash.make_room(&words[2..]);
        words[2..].chunks_exact(2).filter(|pair| hash.set(pair[0], pair[1])).count()
    })?;
    Ok(Reply::count(new))
}

pub(super) fn hdel(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let gone = call
        .change(words[1], |hash: &mut Hash| words[2..].iter().filter(|field| hash.remove(field)).count())?;
    Ok(Reply::count(gone))
}

pub(super) fn hget(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    Ok(Reply::bulk_or_nil(call.get::<Hash>(words[1])?.and_then(|hash| hash.get(words[2]))))
}

pub(super) fn hmget(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let hash = call.get::<Hash>(words[1])?;
    let value = |field: &&[u8]| Reply::bulk_or_nil(hash.as_ref().and_then(|hash| hash.get(field)));
    Ok(Reply::Array(words[2..].iter().map(value).collect()))
}

pub(super) fn hexists(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let hash = call.get::<Hash>(words[1])?;
    Ok(Reply::Int(i64::from(hash.is_some_and(|hash| hash.get(words[2]).is_some()))))
}

pub(super) fn hlen(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    Ok(Reply::count(call.get::<Hash>(words[1])?.map_or(0, |hash| hash.len())))
}

pub(super) fn hkeys(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let hash = call.get::<Hash>(words[1])?;
    let fields = hash.map(|hash| hash.fields()).unwrap_or_default();
    Ok(Reply::Array(fields.into_iter().map(|(field, _)| Reply::bulk(field)).collect()))
}

pub(super) fn hgetall(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let is_resp3 = call.is_resp3;
    let hash = call.get::<Hash>(words[1])?;
    let fields = hash.map(|hash| hash.fields()).unwrap_or_default().into_iter();
    let pairs = fields.map(|(field, value)| [Reply::bulk(field), Reply::bulk(value)]);
    Ok(match is_resp3 {
        true => Reply::Map(pairs.map(|[field, value]| (field, value)).collect()),
        false => Reply::Array(pairs.flatten().collect()),
    })
}

const COUNT: i64 = 10;

pub(super) fn hscan(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let cursor = cursor(words[2]).ok_or("ERR invalid cursor")?;
    let page = |next: u64, fields| Reply::Array(vec![Reply::bulk(next.to_string()), Reply::Array(fields)]);
    let Some(hash) = call.get::<Hash>(words[1])? else { return Ok(page(0, Vec::new())) };
    let (mut count, mut pattern): (_, &[u8]) = (COUNT, b"*");
    let options = &words[3..];
    for at in (0..options.len()).step_by(2) {
        if is(options[at], "count") && at + 1 < options.len() {
            count = behind(options, at)?;
            if count < 1 {
                return Err(syntax_error());
            }
        } else if is(options[at], "match") && at + 1 < options.len() {
            pattern = options[at + 1];
        } else {
            return Err(syntax_error());
        }
    }
    let (next, found) = hash.scan(cursor, count.unsigned_abs());
    let found = found.into_iter().filter(|(field, _)| glob::matches(pattern, field));
    let fields = found.flat_map(|(field, value)| [Reply::bulk(field), Reply::bulk(value)]);
    Ok(page(next, fields.collect()))
}

/// Parses a cursor like C: negative numbers wrap around, and an empty text is 0.
fn cursor(text: &[u8]) -> Option<u64> {
    let text = str::from_utf8(text).ok()?;
    match text.strip_prefix('-') {
        Some(digits) if digits.starts_with('+') => None,
        Some(digits) => digits.parse().ok().map(u64::wrapping_neg),
        None if text.is_empty() => Some(0),
        None => text.parse().ok(),
    }
}

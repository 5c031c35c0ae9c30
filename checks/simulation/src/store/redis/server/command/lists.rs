use std::collections::VecDeque;

use super::{Answer, Call, range};
use crate::store::redis::server::number::integer;
use crate::store::redis::server::reply::Reply;

type List = VecDeque<Vec<u8>>;

pub(super) fn lindex(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let Some(list) = call.get::<List>(words[1])? else { return Ok(Reply::Nil) };
    let at = integer(words[2])?;
    let found = range(at, at, list.len());
    Ok(Reply::bulk_or_nil(list.get(found.start).filter(|_| !found.is_empty())))
}

pub(super) fn llen(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    Ok(Reply::count(call.get::<List>(words[1])?.map_or(0, |list| list.len())))
}

pub(super) fn lrange(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let (first, last) = (integer(words[2])?, integer(words[3])?);
    let list = call.get::<List>(words[1])?;
    let found = list.map(|list| list.range(range(first, last, list.len())).map(Reply::bulk).collect());
    Ok(Reply::Array(found.unwrap_or_default()))
}

pub(super) fn lpush(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    push(call, words, List::push_front)
}

pub(super) fn rpush(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    push(call, words, List::push_back)
}

fn push(call: &mut Call<'_>, words: &[&[u8]], push: fn(&mut List, Vec<u8>)) -> Answer {
    let len = call.change(words[1], |list: &mut List| {
        words[2..].iter().for_each(|element| push(list, element.to_vec()));
        list.len()
    })?;
    Ok(Reply::count(len))
}

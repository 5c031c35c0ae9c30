//! Messages, of both kinds.

use super::{Answer, Call};
use crate::store::redis::server::connections::Messages;
use crate::store::redis::server::reply::Reply;

pub(super) fn publish(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    send(call, Messages::Plain, words)
}

pub(super) fn spublish(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    send(call, Messages::Sharded, words)
}

fn send(call: &mut Call<'_>, messages: Messages, words: &[&[u8]]) -> Answer {
    let pushes = call.core.connections.publish(messages, words[1], words[2]);
    let heard = Reply::count(pushes.len());
    call.core.effects.pushes.extend(pushes);
    Ok(heard)
}

pub(super) fn pubsub(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let is_sharded = words[1].eq_ignore_ascii_case(b"shardnumsub");
    let messages = if is_sharded { Messages::Sharded } else { Messages::Plain };
    let connections = &call.core.connections;
    let counts = words[2..]
        .iter()
        .flat_map(|channel| [Reply::bulk(channel), Reply::count(connections.listeners(messages, channel))]);
    Ok(Reply::Array(counts.collect()))
}

pub(super) fn subscribe(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    begin(call, Messages::Plain, words)
}

pub(super) fn ssubscribe(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    begin(call, Messages::Sharded, words)
}

fn begin(call: &mut Call<'_>, messages: Messages, words: &[&[u8]]) -> Answer {
    let connection = call.caller();
    for channel in &words[1..] {
        let push = call.core.connections.subscribe(messages, connection, channel);
        call.core.effects.pushes.push(push);
    }
    Ok(Reply::Nil)
}

pub(super) fn unsubscribe(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    end(call, Messages::Plain, words)
}

pub(super) fn sunsubscribe(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    end(call, Messages::Sharded, words)
}

fn end(call: &mut Call<'_>, messages: Messages, words: &[&[u8]]) -> Answer {
    let connection = call.caller();
    let all = words[1..].iter().map(|channel| Some(*channel));
    let all: Vec<_> = if words.len() == 1 { vec![None] } else { all.collect() };
    for channel in all {
        let pushes = call.core.connections.unsubscribe(messages, connection, channel);
        call.core.effects.pushes.extend(pushes);
    }
    Ok(Reply::Nil)
}

//! Connections and their users, and the server's time.

use super::keys::is;
use super::{Answer, Call, syntax_error, wrong_number};
use crate::store::redis::server::VERSION;
use crate::store::redis::server::connections::Connections;
use crate::store::redis::server::number::integer;
use crate::store::redis::server::reply::Reply;

pub(super) fn ping(_: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    match words {
        [_] => Ok(Reply::Status("PONG".to_owned())),
        [_, word] => Ok(Reply::bulk(word)),
        _ => Err(wrong_number("ping")),
    }
}

pub(super) fn echo(_: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    Ok(Reply::bulk(words[1]))
}

pub(super) fn select(_: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    match integer(words[1])? {
        0 => Ok(Reply::ok()),
        _ => Err("ERR DB index is out of range".to_owned()),
    }
}

pub(super) fn time(call: &mut Call<'_>, _: &[&[u8]]) -> Answer {
    let now = call.now();
    Ok(Reply::Array([now / 1_000_000, now % 1_000_000].map(|part| Reply::bulk(part.to_string())).into()))
}

/// Returns the current number of replicas, without waiting.
pub(super) fn wait(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let _ = integer(words[1])?;
    let timeout = integer(words[2]).map_err(|_| "ERR timeout is not an integer or out of range")?;
    if timeout < 0 {
        return Err("ERR timeout is negative".to_owned());
    }
    Ok(Reply::Int(call.core.replicas))
}

pub(super) fn auth(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    match words {
        [_, password] => log_in(call, b"default", password)?,
        [_, name, password] => log_in(call, name, password)?,
        _ => return Err(syntax_error()),
    }
    Ok(Reply::ok())
}

fn log_in(call: &mut Call<'_>, name: &[u8], password: &[u8]) -> Result<(), String> {
    let [name, password] = [name, password].map(String::from_utf8_lossy);
    let user = call.core.users.authenticated(&name, &password);
    let user = user.ok_or("WRONGPASS invalid username-password pair or user is disabled.")?;
    call.core.connections.set_user(call.caller(), user);
    Ok(())
}

pub(super) fn hello(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let connection = call.caller();
    let is_resp3 = match words.get(1) {
        None => call.is_resp3,
        Some(version) => match integer(version) {
            Ok(2) => false,
            Ok(3) => true,
            Ok(_) => return Err("NOPROTO unsupported protocol version".to_owned()),
            Err(_) => return Err("ERR Protocol version is not an integer or out of range".to_owned()),
        },
    };
    let mut rest = words.get(2..).unwrap_or_default();
    while let Some(option) = rest.first() {
        rest = match rest {
            [_, name, password, rest @ ..] if is(option, "auth") => {
                log_in(call, name, password)?;
                rest
            }
            [_, name, rest @ ..] if is(option, "setname") => {
                set_name(call, name)?;
                rest
            }
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(format!("ERR Syntax error in HELLO option '{option}'"));
            }
        };
    }
    if call.core.connections.user(connection).is_none() {
        return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> \
             AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the \
             same time"
            .to_owned());
    }
    call.core.connections.set_resp3(connection, is_resp3);
    Ok(greeting(connection, is_resp3))
}

fn greeting(connection: u64, is_resp3: bool) -> Reply {
    let id = i64::try_from(connection).expect("there are not so many");
    let fields = [
        ("server", Reply::bulk("redis")),
        ("version", Reply::bulk(VERSION)),
        ("proto", Reply::Int(if is_resp3 { 3 } else { 2 })),
        ("id", Reply::Int(id)),
        ("mode", Reply::bulk("standalone")),
        ("role", Reply::bulk("master")),
        ("modules", Reply::Array(Vec::new())),
    ];
    let fields = fields.into_iter().map(|(name, value)| (Reply::bulk(name), value));
    match is_resp3 {
        true => Reply::Map(fields.collect()),
        false => Reply::Array(fields.flat_map(|(name, value)| [name, value]).collect()),
    }
}

pub(super) fn client(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let connection = call.caller();
    match (words[1].to_ascii_lowercase().as_slice(), words) {
        (b"id", [_, _]) => Ok(Reply::Int(i64::try_from(connection).expect("there are not so many"))),
        (b"info", [_, _]) => {
            let name = String::from_utf8_lossy(call.core.connections.name(connection)).into_owned();
            let user = call.core.connections.user(connection).unwrap_or_default();
            let address = Connections::address(connection);
            Ok(Reply::bulk(format!("id={connection} addr={address} name={name} db=0 user={user}\n")))
        }
        (b"getname", [_, _]) => {
            let name = call.core.connections.name(connection);
            Ok(Reply::bulk_or_nil((!name.is_empty()).then_some(name)))
        }
        (b"setname", [_, _, name]) => set_name(call, name).map(|()| Reply::ok()),
        (b"kill", [_, _, filters @ ..]) => kill(call, filters),
        _ => unreachable!("it was checked"),
    }
}

fn set_name(call: &mut Call<'_>, name: &[u8]) -> Result<(), String> {
    if !name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        return Err("ERR Client names cannot contain spaces, newlines or special characters.".to_owned());
    }
    call.core.connections.set_name(call.caller(), name);
    Ok(())
}

/// Ends connections, by number or address, except for the caller's.
fn kill(call: &mut Call<'_>, filters: &[&[u8]]) -> Answer {
    if filters.len() == 1 {
        // The old form: an address, possibly the caller's own.
        let address = String::from_utf8_lossy(filters[0]);
        let ids = call.core.connections.ids();
        let found = ids.into_iter().find(|other| Connections::address(*other) == address);
        let connection = found.ok_or("ERR No such client")?;
        end(call, &[connection]);
        return Ok(Reply::ok());
    }
    if !filters.len().is_multiple_of(2) {
        return Err(syntax_error());
    }
    let (mut id, mut address) = (None, None);
    for pair in filters.chunks_exact(2) {
        if is(pair[0], "id") {
            let given = integer(pair[1]).ok().and_then(|id| u64::try_from(id).ok()).filter(|id| *id > 0);
            id = Some(given.ok_or("ERR client-id should be greater than 0")?);
        } else if is(pair[0], "addr") {
            address = Some(String::from_utf8_lossy(pair[1]).into_owned());
        } else {
            return Err(syntax_error());
        }
    }
    let caller = call.caller();
    let is_meant = |other: &u64| {
        *other != caller
            && id.is_none_or(|id| id == *other)
            && address.as_ref().is_none_or(|address| *address == Connections::address(*other))
    };
    let killed: Vec<u64> = call.core.connections.ids().into_iter().filter(is_meant).collect();
    end(call, &killed);
    Ok(Reply::count(killed.len()))
}

fn end(call: &mut Call<'_>, connections: &[u64]) {
    for connection in connections {
        call.core.connections.remove(*connection);
    }
    call.core.effects.killed.extend(connections);
}

pub(super) fn acl(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    match (words[1].to_ascii_lowercase().as_slice(), words) {
        (b"setuser", [_, _, name, rules @ ..]) => {
            call.core.users.set(&String::from_utf8_lossy(name), rules)?;
            Ok(Reply::ok())
        }
        (b"whoami", [_, _]) => {
            Ok(Reply::bulk(call.core.connections.user(call.caller()).unwrap_or_default().as_bytes()))
        }
        _ => unreachable!("it was checked"),
    }
}

use super::keys::{behind, is};
use super::{Answer, Call, syntax_error};
use crate::store::redis::server::data::{Entry, Value};
use crate::store::redis::server::number::integer;
use crate::store::redis::server::reply::Reply;

pub(super) fn get(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    Ok(Reply::bulk_or_nil(call.get::<Vec<u8>>(words[1])?))
}

pub(super) fn incrby(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let by = integer(words[2])?;
    let old = call.get::<Vec<u8>>(words[1])?.map_or(Ok(0), |text| integer(text))?;
    let new = old.checked_add(by).ok_or("ERR increment or decrement would overflow")?;
    call.change(words[1], |text: &mut Vec<u8>| *text = new.to_string().into_bytes())?;
    Ok(Reply::Int(new))
}

#[derive(Default)]
struct Options {
    only_new: bool,
    only_old: bool,
    keeps_end: bool,
    /// In ms from now.
    lasts: Option<i64>,
}

impl Options {
    fn of(words: &[&[u8]]) -> Result<Self, String> {
        let mut all = Self::default();
        let mut at = 0;
        while let Some(word) = words.get(at) {
            let has_end = all.keeps_end || all.lasts.is_some();
            if is(word, "nx") && !all.only_old {
                all.only_new = true;
            } else if is(word, "xx") && !all.only_new {
                all.only_old = true;
            } else if is(word, "keepttl") && all.lasts.is_none() {
                all.keeps_end = true;
            } else if (is(word, "px") || is(word, "ex")) && !has_end {
                let unit = if is(word, "ex") { 1000 } else { 1 };
                // A bad number is reported only after all options have been parsed.
                words.get(at + 1).ok_or_else(syntax_error)?;
                all.lasts = Some(unit);
                at += 1;
            } else {
                return Err(syntax_error());
            }
            at += 1;
        }
        if let Some(unit) = all.lasts {
            let at = words.iter().position(|word| is(word, "px") || is(word, "ex")).expect("it is there");
            let lasts = behind(words, at)?;
            let lasts = Some(lasts).filter(|lasts| *lasts > 0).and_then(|lasts| lasts.checked_mul(unit));
            all.lasts = Some(lasts.ok_or("ERR invalid expire time in 'set' command")?);
        }
        Ok(all)
    }
}

pub(super) fn set(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let options = Options::of(&words[3..])?;
    let now = call.now();
    let ends = match options.lasts {
        Some(lasts) => {
            let ends = i64::try_from(now / 1000).expect("the number fits").checked_add(lasts);
            u64::try_from(ends.ok_or("ERR invalid expire time in 'set' command")?).ok()
        }
        None => None,
    };
    let old = call.data().entry(words[1], now);
    if options.only_new && old.is_some() || options.only_old && old.is_none() {
        return Ok(Reply::Nil);
    }
    let ends = if options.keeps_end { old.and_then(|entry| entry.ends) } else { ends };
    call.data().set(words[1], Entry { value: Value::String(words[2].to_vec()), ends });
    Ok(Reply::ok())
}

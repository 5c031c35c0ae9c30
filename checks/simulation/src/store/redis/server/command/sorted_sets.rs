use super::keys::is;
use super::{Answer, Call, range, syntax_error};
use crate::store::redis::server::number::{double, general, integer};
use crate::store::redis::server::reply::Reply;
use crate::store::redis::server::sorted_set::SortedSet;

/// Options of ZADD: the members to change, and those to count.
#[derive(Clone, Copy, Default)]
struct Options {
    only_new: bool,
    only_old: bool,
    greater: bool,
    less: bool,
    counts_changed: bool,
}

impl Options {
    /// Parses the options. Also returns the number of their words.
    fn of(words: &[&[u8]]) -> (Self, usize) {
        let mut all = Self::default();
        for (at, word) in words.iter().enumerate() {
            match word.to_ascii_lowercase().as_slice() {
                b"nx" => all.only_new = true,
                b"xx" => all.only_old = true,
                b"gt" => all.greater = true,
                b"lt" => all.less = true,
                b"ch" => all.counts_changed = true,
                _ => return (all, at),
            }
        }
        (all, words.len())
    }

    fn check(self) -> Result<(), String> {
        if self.only_new && self.only_old {
            return Err("ERR XX and NX options at the same time are not compatible".to_owned());
        }
        if [self.only_new, self.greater, self.less].iter().filter(|is| **is).count() > 1 {
            return Err("ERR GT, LT, and/or NX options at the same time are not compatible".to_owned());
        }
        Ok(())
    }

    /// Sets the member's score if allowed. True if the change counts.
    fn set(self, set: &mut SortedSet, name: &[u8], score: f64) -> bool {
        match set.score(name) {
            None => !self.only_old && set.set(name, score),
            Some(old) => {
                let stays = self.only_new
                    || old == score
                    || self.greater && score <= old
                    || self.less && score >= old;
                if !stays {
                    set.set(name, score);
                }
                !stays && self.counts_changed
            }
        }
    }
}

pub(super) fn zadd(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let (options, count) = Options::of(&words[2..]);
    let pairs = &words[2 + count..];
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(syntax_error());
    }
    options.check()?;
    let scores = pairs.iter().step_by(2).map(|score| double(score)).collect::<Result<Vec<_>, _>>()?;
    let names = pairs.iter().skip(1).step_by(2);
    let counted = call.change(words[1], |set: &mut SortedSet| {
        names.zip(scores).filter(|(name, score)| options.set(set, name, *score)).count()
    })?;
    Ok(Reply::count(counted))
}

pub(super) fn zrem(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let gone = call
        .change(words[1], |set: &mut SortedSet| words[2..].iter().filter(|name| set.remove(name)).count())?;
    Ok(Reply::count(gone))
}

pub(super) fn zcard(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    Ok(Reply::count(call.get::<SortedSet>(words[1])?.map_or(0, |set| set.members().len())))
}

/// The first member and its score, without a count.
pub(super) fn zpopmin(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    if words.len() > 2 {
        return Err(syntax_error());
    }
    let is_resp3 = call.is_resp3;
    let first = call.change(words[1], |set: &mut SortedSet| {
        let first = set.members().first().cloned();
        first.inspect(|(_, name)| _ = set.remove(name))
    })?;
    let pair = first.map(|(score, name)| [Reply::bulk(&name), number(score, is_resp3)]);
    Ok(Reply::Array(pair.into_iter().flatten().collect()))
}

pub(super) fn zrank(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    if words.len() > 3 {
        return Err(syntax_error());
    }
    let rank = call
        .get::<SortedSet>(words[1])?
        .and_then(|set| set.members().iter().position(|(_, name)| name == words[2]));
    Ok(rank.map_or(Reply::Nil, Reply::count))
}

pub(super) fn zscore(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let is_resp3 = call.is_resp3;
    let score = call.get::<SortedSet>(words[1])?.and_then(|set| set.score(words[2]));
    Ok(score.map_or(Reply::Nil, |score| number(score, is_resp3)))
}

pub(super) fn zrange(call: &mut Call<'_>, words: &[&[u8]]) -> Answer {
    let (mut with_scores, mut from_end) = (false, false);
    for word in &words[4..] {
        if is(word, "withscores") {
            with_scores = true;
        } else if is(word, "rev") {
            from_end = true;
        } else {
            return Err(syntax_error());
        }
    }
    let (first, last) = (integer(words[2])?, integer(words[3])?);
    let is_resp3 = call.is_resp3;
    let Some(set) = call.get::<SortedSet>(words[1])? else { return Ok(Reply::Array(Vec::new())) };
    let mut members: Vec<_> = set.members().iter().collect();
    if from_end {
        members.reverse();
    }
    let found = members[range(first, last, members.len())].iter();
    let pairs = found.map(|(score, name)| (Reply::bulk(name), number(*score, is_resp3)));
    Ok(Reply::Array(match (with_scores, is_resp3) {
        (false, _) => pairs.map(|(name, _)| name).collect(),
        (true, false) => pairs.flat_map(|(name, score)| [name, score]).collect(),
        (true, true) => pairs.map(|(name, score)| Reply::Array(vec![name, score])).collect(),
    }))
}

fn number(number: f64, is_resp3: bool) -> Reply {
    if is_resp3 { Reply::Double(number) } else { Reply::bulk(general(number)) }
}

use std::collections::{BTreeMap, VecDeque};

use super::Micros;
use super::hash::Hash;
use super::sorted_set::SortedSet;

#[derive(Clone, Debug, Default)]
pub(crate) struct Data {
    keys: BTreeMap<Vec<u8>, Entry>,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) value: Value,
    /// In ms since the epoch. In this last millisecond, the key still exists, with a TTL of 0.
    pub(super) ends: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    String(Vec<u8>),
    List(VecDeque<Vec<u8>>),
    Hash(Hash),
    SortedSet(SortedSet),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Key {
    pub(crate) name: Vec<u8>,
    pub(crate) content: Content,
    /// Rest of the key's life in ms; `None` if unlimited.
    pub(crate) left: Option<u64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Content {
    String(Vec<u8>),
    List(Vec<Vec<u8>>),
    /// Fields and values in scan order.
    Hash(Vec<(Vec<u8>, Vec<u8>)>),
    /// Members and scores, sorted.
    SortedSet(Vec<(Vec<u8>, f64)>),
}

const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

pub(super) trait Typed: Default {
    fn of(value: &mut Value) -> Option<&mut Self>;
    fn into_value(self) -> Value;
    /// True if empty: empty keys do not exist.
    fn is_vacant(&self) -> bool;
}

impl Data {
    /// Returns the key's entry. Removes an expired key.
    pub(super) fn entry(&mut self, key: &[u8], now: Micros) -> Option<&mut Entry> {
        if self.keys.get(key)?.has_ended(now) {
            self.keys.remove(key);
            return None;
        }
        self.keys.get_mut(key)
    }

    /// Returns the key's value, if the key exists. Fails if the value has another type.
    pub(super) fn get<T: Typed>(&mut self, key: &[u8], now: Micros) -> Result<Option<&mut T>, String> {
        let Some(entry) = self.entry(key, now) else { return Ok(None) };
        T::of(&mut entry.value).map(Some).ok_or_else(|| WRONG_TYPE.to_owned())
    }

    /// Changes the key's value. Creates a missing key, and removes a key whose value becomes empty.
    pub(super) fn change<T: Typed, R>(
        &mut self,
        key: &[u8],
        now: Micros,
        change: impl FnOnce(&mut T) -> R,
    ) -> Result<R, String> {
        if self.entry(key, now).is_none() {
            self.set(key, Entry { value: T::default().into_value(), ends: None });
        }
        let value = self.get::<T>(key, now)?.expect("it is there");
        let result = change(value);
        if value.is_vacant() {
            self.keys.remove(key);
        }
        Ok(result)
    }

    pub(super) fn set(&mut self, key: &[u8], entry: Entry) {
        match self.keys.get_mut(key) {
            Some(old) => *old = entry,
            None => _ = self.keys.insert(key.to_vec(), entry),
        }
    }

    pub(super) fn remove(&mut self, key: &[u8], now: Micros) -> Option<Entry> {
        self.keys.remove(key).filter(|entry| !entry.has_ended(now))
    }

    pub(super) fn evict(&mut self, key: &[u8]) -> bool {
        self.keys.remove(key).is_some()
    }

    pub(super) fn list(&self, now: Micros) -> Vec<Key> {
        let there = self.keys.iter().filter(|(_, entry)| !entry.has_ended(now));
        there
            .map(|(name, entry)| Key {
                name: name.clone(),
                content: entry.value.content(),
                left: entry.ends.map(|ends| ends - now / 1000),
            })
            .collect()
    }
}

impl Entry {
    fn has_ended(&self, now: Micros) -> bool {
        self.ends.is_some_and(|ends| ends < now / 1000)
    }
}

impl Value {
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::String(_) => "string",
            Self::List(_) => "list",
            Self::Hash(_) => "hash",
            Self::SortedSet(_) => "zset",
        }
    }

    fn content(&self) -> Content {
        match self {
            Self::String(text) => Content::String(text.clone()),
            Self::List(all) => Content::List(all.iter().cloned().collect()),
            Self::Hash(hash) => Content::Hash(hash.fields().into_iter().cloned().collect()),
            Self::SortedSet(set) => {
                Content::SortedSet(set.members().iter().map(|(score, name)| (name.clone(), *score)).collect())
            }
        }
    }
}

macro_rules! typed {
    ($type:ty, $variant:ident, $is_vacant:expr) => {
        impl Typed for $type {
            fn of(value: &mut Value) -> Option<&mut Self> {
                if let Value::$variant(value) = value { Some(value) } else { None }
            }

            fn into_value(self) -> Value {
                Value::$variant(self)
            }

            fn is_vacant(&self) -> bool {
                let is_vacant: fn(&Self) -> bool = $is_vacant;
                is_vacant(self)
            }
        }
    };
}

typed!(Vec<u8>, String, |_| false);
typed!(VecDeque<Vec<u8>>, List, VecDeque::is_empty);
typed!(Hash, Hash, |hash| hash.len() == 0);
typed!(SortedSet, SortedSet, |set| set.members().is_empty());

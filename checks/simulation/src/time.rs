//! Times in readable form: `1500ms`, `3s`, `17us`.

use serde::{Deserialize, Deserializer, Serializer};

use crate::world::{MS, Nanos, SECOND, US};

const HOUR: Nanos = 3600 * SECOND;
const UNITS: [(&str, Nanos); 5] = [("h", HOUR), ("s", SECOND), ("ms", MS), ("us", US), ("ns", 1)];

/// Prints a time in the largest unit that divides it.
pub(crate) fn text(time: Nanos) -> String {
    let (name, unit) = UNITS.into_iter().find(|(_, unit)| time.is_multiple_of(*unit)).unwrap_or(("ns", 1));
    match time {
        0 => "0s".to_owned(),
        time => format!("{}{name}", time / unit),
    }
}

pub(crate) fn parse(text: &str) -> Option<Nanos> {
    let digits = text.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, name) = text.split_at(digits);
    let (_, unit) = UNITS.into_iter().find(|(unit, _)| *unit == name)?;
    number.parse::<Nanos>().ok()?.checked_mul(unit)
}

pub(crate) fn serialize<S: Serializer>(time: &Nanos, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&text(*time))
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Nanos, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| serde::de::Error::custom(format!("{text:?} is no time such as 1500ms")))
}

pub(crate) fn seconds(time: Nanos) -> String {
    format!("{:.6} s", time as f64 / SECOND as f64)
}

pub(crate) mod option {
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::world::Nanos;

    pub(crate) fn serialize<S: Serializer>(time: &Option<Nanos>, serializer: S) -> Result<S::Ok, S::Error> {
        match time {
            Some(time) => serializer.serialize_some(&super::text(*time)),
            None => serializer.serialize_none(),
        }
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Nanos>, D::Error> {
        let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
        let time = super::parse(&text);
        time.map(Some).ok_or_else(|| serde::de::Error::custom(format!("{text:?} is no time such as 1500ms")))
    }
}

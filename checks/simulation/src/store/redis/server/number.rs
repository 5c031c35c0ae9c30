//! Numbers as Redis reads and writes them.

const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";

/// Parses an integer in canonical form only.
pub(super) fn integer(text: &[u8]) -> Result<i64, String> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_plain = match digits {
        [b'0'] => text.len() == 1,
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let parsed = is_plain.then(|| str::from_utf8(text).ok()?.parse().ok()).flatten();
    parsed.ok_or_else(|| NOT_AN_INTEGER.to_owned())
}

/// Parses a floating-point number, possibly infinite.
pub(super) fn double(text: &[u8]) -> Result<f64, String> {
    let parsed = str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
    parsed.filter(|number| !number.is_nan()).ok_or_else(|| "ERR value is not a valid float".to_owned())
}

/// Formats like C's `%.17g`.
pub(super) fn general(number: f64) -> String {
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    if number.is_nan() {
        return if number.is_sign_negative() { "-nan" } else { "nan" }.to_owned();
    }
    if number == number.trunc() && number.abs() < 1e15 && (number != 0.0 || number.is_sign_positive()) {
        return (number as i64).to_string();
    }
    let scientific = format!("{number:.16e}");
    let (mantissa, exponent) = scientific.split_once('e').expect("it has an exponent");
    let exponent: i32 = exponent.parse().expect("the text is a number");
    if (-4..17).contains(&exponent) {
        let places = usize::try_from(16 - exponent).expect("it is at most 16");
        trimmed(&format!("{number:.places$}")).to_owned()
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs())
    }
}

fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

//! What an unquoted word means.
//!
//! The seed reads YAML 1.1, where `on` is true, `0o17` is a word and `1:30` is ninety. A skill
//! named `on` is listed as `True` there, so it is here.

use jiff::civil;

use super::python_float;
use super::value::{Kind, Scalar};

/// Resolves a plain scalar. `Err` is a value that looks like a time and is none.
pub(super) fn resolve(source: &str) -> Result<Scalar, String> {
    let (kind, shown) = match source {
        "" | "~" | "null" | "Null" | "NULL" => (Kind::Null, "None".to_owned()),
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            (Kind::Bool(true), "True".to_owned())
        }
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            (Kind::Bool(false), "False".to_owned())
        }
        _ => {
            if let Some(number) = integer(source).or_else(|| float(source)) {
                number
            } else if let Some(time) = timestamp(source)? {
                (Kind::Time, time)
            } else {
                (Kind::Text, source.to_owned())
            }
        }
    };
    Ok(Scalar {
        kind,
        shown,
        source: source.to_owned(),
    })
}

pub(super) fn text(value: &str) -> Scalar {
    Scalar {
        kind: Kind::Text,
        shown: value.to_owned(),
        source: value.to_owned(),
    }
}

fn integer(source: &str) -> Option<(Kind, String)> {
    let (negative, digits) = unsigned(source);
    let value = if let Some(binary) = digits.strip_prefix("0b") {
        in_base(binary, 2)?
    } else if let Some(hexadecimal) = digits.strip_prefix("0x") {
        in_base(hexadecimal, 16)?
    } else if digits == "0" {
        Integer::Value(0)
    } else if let Some(octal) = digits.strip_prefix('0') {
        in_base(octal, 8)?
    } else if digits.contains(':') {
        Integer::Value(sexagesimal(digits)?)
    } else if digits.starts_with(|c: char| ('1'..='9').contains(&c)) {
        in_base(digits, 10)?
    } else {
        return None;
    };
    let shown = match value {
        Integer::Value(0) => "0".to_owned(),
        Integer::Value(value) if negative => format!("-{value}"),
        Integer::Value(value) => value.to_string(),
        // Right for a decimal one; nobody names a skill by a hexadecimal number this long.
        Integer::Wide => source.replace('_', "").trim_start_matches('+').to_owned(),
    };
    Some((
        Kind::Number {
            is_zero: value == Integer::Value(0),
        },
        shown,
    ))
}

fn unsigned(source: &str) -> (bool, &str) {
    match source.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, source.strip_prefix('+').unwrap_or(source)),
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Integer {
    Value(u128),
    /// Wider than anything we calculate with.
    Wide,
}

/// Digits with underscores, or `None` for anything else.
fn in_base(digits: &str, base: u32) -> Option<Integer> {
    if digits.is_empty() {
        return None;
    }
    let mut value = Some(0_u128);
    let mut any = false;
    for character in digits.chars() {
        if character == '_' {
            continue;
        }
        let digit = character.to_digit(base)?;
        any = true;
        value = value
            .and_then(|value| value.checked_mul(u128::from(base)))
            .and_then(|value| value.checked_add(u128::from(digit)));
    }
    any.then_some(value.map_or(Integer::Wide, Integer::Value))
}

fn sexagesimal(digits: &str) -> Option<u128> {
    let mut parts = digits.split(':');
    let first = parts.next()?;
    if !first.starts_with(|c: char| ('1'..='9').contains(&c)) {
        return None;
    }
    let Integer::Value(mut value) = in_base(first, 10)? else {
        return None;
    };
    for part in parts {
        value = value
            .checked_mul(60)?
            .checked_add(u128::from(below_sixty(part)?))?;
    }
    Some(value)
}

fn below_sixty(part: &str) -> Option<u8> {
    if part.is_empty() || part.len() > 2 || !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    part.parse().ok().filter(|value| *value < 60)
}

fn float(source: &str) -> Option<(Kind, String)> {
    let (negative, digits) = unsigned(source);
    let value = match digits {
        ".inf" | ".Inf" | ".INF" => f64::INFINITY,
        ".nan" | ".NaN" | ".NAN" if digits.len() == source.len() => f64::NAN,
        _ => decimal(source, digits)?,
    };
    let value = if negative { -value } else { value };
    Some((
        Kind::Number {
            is_zero: value == 0.0,
        },
        python_float::repr(value),
    ))
}

fn decimal(source: &str, digits: &str) -> Option<f64> {
    let (whole, fraction) = digits.split_once('.')?;
    let is_word = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_digit() || byte == b'_')
    };
    if let Some((hours, rest)) = whole.split_once(':') {
        if !starts_with_digit(hours) || !is_word(hours) || !is_word(fraction) {
            return None;
        }
        let mut value: f64 = hours.replace('_', "").parse().ok()?;
        for part in rest.split(':') {
            value = value * 60.0 + f64::from(below_sixty(part)?);
        }
        let fraction: f64 = format!("0.{}0", fraction.replace('_', "")).parse().ok()?;
        return Some(value + fraction);
    }
    let (fraction, exponent) = match fraction.split_once(['e', 'E']) {
        Some((fraction, exponent)) => (fraction, Some(exponent)),
        None => (fraction, None),
    };
    // A number without digits before the point has no sign in this grammar.
    let shape = if whole.is_empty() {
        starts_with_digit(fraction) && digits.len() == source.len()
    } else {
        starts_with_digit(whole)
    };
    if !shape || !is_word(whole) || !is_word(fraction) {
        return None;
    }
    if let Some(exponent) = exponent {
        let power = exponent.strip_prefix(['-', '+'])?;
        if power.is_empty() || !power.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
    }
    let text = format!(
        "{}.{}0{}",
        if whole.is_empty() { "0" } else { whole },
        fraction,
        exponent
            .map(|exponent| format!("e{exponent}"))
            .unwrap_or_default()
    );
    text.replace('_', "").parse().ok()
}

fn starts_with_digit(text: &str) -> bool {
    text.starts_with(|character: char| character.is_ascii_digit())
}

/// `2026-11-16`, or a date with a time as YAML 1.1 writes it. Shown as Python shows it.
fn timestamp(source: &str) -> Result<Option<String>, String> {
    let invalid = || format!("`{source}` looks like a time and is none");
    let bytes = source.as_bytes();
    if bytes.len() == 10 && source.is_ascii() {
        let Some(date) = date_parts(source, Width::Fixed) else {
            return Ok(None);
        };
        return match civil_date(date) {
            Some(date) => Ok(Some(date.to_string())),
            None => Err(invalid()),
        };
    }
    let Some(split) = source.find(['T', 't', ' ', '\t']) else {
        return Ok(None);
    };
    let Some(date) = date_parts(&source[..split], Width::Loose) else {
        return Ok(None);
    };
    let rest = &source[split..];
    let clock = match rest.strip_prefix(['T', 't']) {
        Some(clock) => clock,
        None => rest.trim_start_matches([' ', '\t']),
    };
    let Some((seconds, micros, offset)) = clock_parts(clock) else {
        return Ok(None);
    };
    let date = civil_date(date).ok_or_else(invalid)?;
    let (hour, minute, second) = seconds;
    let time = civil::Time::new(hour, minute, second, 0).map_err(|_| invalid())?;
    let fraction = if micros == 0 {
        String::new()
    } else {
        format!(".{micros:06}")
    };
    Ok(Some(format!(
        "{date} {}{fraction}{offset}",
        time.strftime("%H:%M:%S")
    )))
}

#[derive(Clone, Copy)]
enum Width {
    Fixed,
    Loose,
}

fn date_parts(text: &str, width: Width) -> Option<(i16, i8, i8)> {
    let mut parts = text.split('-');
    let (year, month, day) = (parts.next()?, parts.next()?, parts.next()?);
    let two = |part: &str| match width {
        Width::Fixed => part.len() == 2,
        Width::Loose => matches!(part.len(), 1 | 2),
    };
    if parts.next().is_some() || year.len() != 4 || !two(month) || !two(day) {
        return None;
    }
    Some((digits(year)?, digits(month)?, digits(day)?))
}

fn civil_date((year, month, day): (i16, i8, i8)) -> Option<civil::Date> {
    civil::Date::new(year, month, day)
        .ok()
        .filter(|date| date.year() >= 1)
}

fn digits<T: std::str::FromStr>(text: &str) -> Option<T> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

type Clock = ((i8, i8, i8), u32, String);

fn clock_parts(text: &str) -> Option<Clock> {
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == ':' || c == '.'))
        .unwrap_or(text.len());
    let (clock, zone) = text.split_at(end);
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let mut parts = clock.split(':');
    let (hour, minute, second) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some()
        || !matches!(hour.len(), 1 | 2)
        || minute.len() != 2
        || second.len() != 2
        || !fraction.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let micros: u32 = format!("{:0<6}", fraction.get(..6).unwrap_or(fraction))
        .parse()
        .ok()?;
    let zone = zone.trim_start_matches([' ', '\t']);
    let offset = match zone.chars().next() {
        None => String::new(),
        Some('Z') if zone.len() == 1 => "+00:00".to_owned(),
        Some(sign @ ('+' | '-')) => {
            let (hours, minutes) = zone[1..].split_once(':').unwrap_or((&zone[1..], "00"));
            if !matches!(hours.len(), 1 | 2) || minutes.len() != 2 {
                return None;
            }
            let (hours, minutes): (u8, u8) = (digits(hours)?, digits(minutes)?);
            if hours >= 24 || minutes >= 60 {
                return None;
            }
            let sign = if hours == 0 && minutes == 0 {
                '+'
            } else {
                sign
            };
            format!("{sign}{hours:02}:{minutes:02}")
        }
        Some(_) => return None,
    };
    Some((
        (digits(hour)?, digits(minute)?, digits(second)?),
        micros,
        offset,
    ))
}

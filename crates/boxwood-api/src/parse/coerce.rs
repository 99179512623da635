//! Lenient numbers and booleans of LangBot Box: `"999"`, `9.0` and `true` are accepted as integers,
//! `"yes"` as true. Strings are never converted from other types.
//!
//! Errors are the rest of a sentence that starts with the field name.

use serde_json::Value;

use super::{kind, shown};

/// Above this, `f64` cannot represent every integer.
const EXACT: f64 = 9_007_199_254_740_992.0;

pub(crate) fn integer(value: &Value) -> Result<i64, String> {
    match value {
        Value::Bool(flag) => Ok(i64::from(*flag)),
        Value::Number(number) => {
            if let Some(integer) = number.as_i64() {
                return Ok(integer);
            }
            match number.as_f64() {
                Some(float) => integral(float, &number.to_string()),
                None => Err("is out of range".to_owned()),
            }
        }
        Value::String(text) => integer_text(text),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(format!("must be an integer, not {}", kind(value)))
        }
    }
}

fn integral(float: f64, written: &str) -> Result<i64, String> {
    if float.abs() > EXACT {
        return Err("is out of range".to_owned());
    }
    if float.fract() != 0.0 {
        return Err(format!("must be an integer, not {written}"));
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "integral and within ±2^53, so the cast is exact"
    )]
    Ok(float as i64)
}

/// Digits with an optional sign, single underscores between digits, and a fraction of zeros.
fn integer_text(text: &str) -> Result<i64, String> {
    let wrong = || format!("must be an integer, not {:?}", shown(text));
    let digits = without_underscores(text.trim()).ok_or_else(wrong)?;
    let whole = match digits.split_once('.') {
        Some((whole, zeros)) if zeros.bytes().all(|byte| byte == b'0') => whole,
        Some(_) => return Err(wrong()),
        None => &digits,
    };
    let unsigned = whole.strip_prefix(['+', '-']).unwrap_or(whole);
    if unsigned.is_empty() || !unsigned.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong());
    }
    whole.parse().map_err(|_| "is out of range".to_owned())
}

fn without_underscores(text: &str) -> Option<String> {
    if text.starts_with('_') || text.ends_with('_') || text.contains("__") {
        return None;
    }
    Some(text.replace('_', ""))
}

pub(crate) fn float(value: &Value) -> Result<f64, String> {
    let float = match value {
        Value::Bool(flag) => f64::from(u8::from(*flag)),
        Value::Number(number) => number.as_f64().unwrap_or(f64::INFINITY),
        Value::String(text) => without_underscores(text.trim())
            .and_then(|digits| digits.parse().ok())
            .ok_or_else(|| format!("must be a number, not {:?}", shown(text)))?,
        Value::Null | Value::Array(_) | Value::Object(_) => {
            return Err(format!("must be a number, not {}", kind(value)));
        }
    };
    if float.is_finite() {
        Ok(float)
    } else {
        Err("must be a finite number".to_owned())
    }
}

pub(crate) fn boolean(value: &Value) -> Result<bool, String> {
    let wrong = || format!("must be true or false, not {}", kind(value));
    match value {
        Value::Bool(flag) => Ok(*flag),
        Value::Number(number) => match number.as_f64() {
            Some(0.0) => Ok(false),
            Some(1.0) => Ok(true),
            _ => Err(format!("must be true or false, not {number}")),
        },
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "1" | "on" | "t" | "true" | "y" | "yes" => Ok(true),
            "0" | "off" | "f" | "false" | "n" | "no" => Ok(false),
            _ => Err(format!("must be true or false, not {:?}", shown(text))),
        },
        Value::Null | Value::Array(_) | Value::Object(_) => Err(wrong()),
    }
}

pub(crate) fn text(value: Value) -> Result<String, String> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(format!("must be a string, not {}", kind(&other))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn integers_come_as_numbers_text_and_booleans() {
        let check = |value: Value, expected: Option<i64>| {
            assert_eq!(integer(&value).ok(), expected, "{value}");
        };
        check(json!(7), Some(7));
        check(json!(-7), Some(-7));
        check(json!("999"), Some(999));
        check(json!(" 999 "), Some(999));
        check(json!("+5"), Some(5));
        check(json!("-5"), Some(-5));
        check(json!("1_000"), Some(1000));
        check(json!("9.0"), Some(9));
        check(json!(9.0), Some(9));
        check(json!(true), Some(1));
        check(json!(false), Some(0));
        check(json!(9.5), None);
        check(json!("9.5"), None);
        check(json!("nine"), None);
        check(json!(""), None);
        check(json!("."), None);
        check(json!("+-5"), None);
        check(json!("0x10"), None);
        check(json!("1__0"), None);
        check(json!(1e300), None);
        check(json!(u64::MAX), None);
        check(json!("99999999999999999999999"), None);
        check(json!("NaN"), None);
        check(json!(null), None);
        check(json!([1]), None);
    }

    #[test]
    fn floats_are_finite() {
        let check = |value: Value, expected: Option<f64>| {
            assert_eq!(float(&value).ok(), expected, "{value}");
        };
        check(json!(1), Some(1.0));
        check(json!(0.5), Some(0.5));
        check(json!("0.5"), Some(0.5));
        check(json!(true), Some(1.0));
        for wrong in ["NaN", "inf", "-Infinity", "1e999", "half", ""] {
            check(json!(wrong), None);
        }
        check(json!(null), None);
        check(json!({}), None);
    }

    #[test]
    fn booleans_have_many_spellings() {
        let check = |value: Value, expected: Option<bool>| {
            assert_eq!(boolean(&value).ok(), expected, "{value}");
        };
        for yes in ["1", "on", "t", "true", "y", "yes", "YES", "True"] {
            check(json!(yes), Some(true));
        }
        for no in ["0", "off", "f", "false", "n", "no", "Off"] {
            check(json!(no), Some(false));
        }
        check(json!(1), Some(true));
        check(json!(0.0), Some(false));
        check(json!(2), None);
        check(json!("maybe"), None);
        check(json!(""), None);
        check(json!(null), None);
    }
}

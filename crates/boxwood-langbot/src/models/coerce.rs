//! Converts single JSON values to typed ones, with pydantic's lax rules. Strings are never made from
//! other types.

use serde_json::Value;

use super::errors::Invalid;
use super::paths::stripped;

pub(super) fn text(input: &Value) -> Result<String, Invalid> {
    match input {
        Value::String(text) => Ok(text.clone()),
        _ => Err(Invalid::new(
            "string_type",
            "Input should be a valid string",
        )),
    }
}

/// Text that is not empty after stripping.
pub(super) fn non_empty(input: &Value, rule: &str) -> Result<String, Invalid> {
    match stripped(text(input)?) {
        empty if empty.is_empty() => Err(Invalid::value(rule)),
        text => Ok(text),
    }
}

/// `None` for null, otherwise the result of `read`.
pub(super) fn nullable<T>(
    read: impl FnOnce(&Value) -> Result<T, Invalid>,
) -> impl FnOnce(&Value) -> Result<Option<T>, Invalid> {
    |input| match input {
        Value::Null => Ok(None),
        other => read(other).map(Some),
    }
}

/// One of the values of an enumeration.
pub(super) fn enumeration<T: Copy>(values: &[(&str, T)]) -> impl Fn(&Value) -> Result<T, Invalid> {
    move |input| {
        values
            .iter()
            .find(|(name, _)| input.as_str() == Some(name))
            .map(|(_, value)| *value)
            .ok_or_else(|| Invalid::new("enum", expected(values)))
    }
}

fn expected<T>(values: &[(&str, T)]) -> String {
    let mut quoted: Vec<String> = values.iter().map(|(name, _)| format!("'{name}'")).collect();
    let last = quoted.pop().unwrap_or_default();
    format!("Input should be {} or {last}", quoted.join(", "))
}

/// Text may be decimal digits with a sign and surrounding white space. Of pydantic's further spellings
/// (`1_000`, `7.0`) none is read.
pub(super) fn integer(input: &Value) -> Result<i128, Invalid> {
    match input {
        Value::Number(number) => match strict_integer(input) {
            Some(integer) => Ok(integer),
            None => integral(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::Bool(flag) => Ok(i128::from(*flag)),
        Value::String(text) => text.trim().parse().map_err(|_| {
            Invalid::new(
                "int_parsing",
                "Input should be a valid integer, unable to parse string as an integer",
            )
        }),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(Invalid::new("int_type", "Input should be a valid integer"))
        }
    }
}

fn strict_integer(input: &Value) -> Option<i128> {
    let signed = input.as_i64().map(i128::from);
    signed.or_else(|| input.as_u64().map(i128::from))
}

/// 2^63, the limit of pydantic's conversion from float to integer.
const MAX_INTEGRAL: f64 = 9_223_372_036_854_775_808.0;

fn integral(number: f64) -> Result<i128, Invalid> {
    if !number.is_finite() {
        return Err(Invalid::new(
            "finite_number",
            "Input should be a finite number",
        ));
    }
    if number.fract() != 0.0 {
        return Err(Invalid::new(
            "int_from_float",
            "Input should be a valid integer, got a number with a fractional part",
        ));
    }
    if number.abs() >= MAX_INTEGRAL {
        return Err(Invalid::new(
            "int_parsing_size",
            "Unable to parse input string as an integer, exceeded maximum size",
        ));
    }
    #[expect(
        clippy::cast_possible_truncation,
        reason = "integral and within ±2^63, so the cast is exact"
    )]
    Ok(number as i128)
}

pub(super) fn float(input: &Value) -> Result<f64, Invalid> {
    match input {
        Value::Number(number) => Ok(number.as_f64().unwrap_or(f64::NAN)),
        Value::Bool(flag) => Ok(f64::from(u8::from(*flag))),
        Value::String(text) => text.trim().parse().map_err(|_| {
            Invalid::new(
                "float_parsing",
                "Input should be a valid number, unable to parse string as a number",
            )
        }),
        Value::Null | Value::Array(_) | Value::Object(_) => {
            Err(Invalid::new("float_type", "Input should be a valid number"))
        }
    }
}

pub(crate) fn boolean(input: &Value) -> Result<bool, Invalid> {
    let unreadable = || {
        Invalid::new(
            "bool_parsing",
            "Input should be a valid boolean, unable to interpret input",
        )
    };
    let wrong_type = || Invalid::new("bool_type", "Input should be a valid boolean");
    match input {
        Value::Bool(flag) => Ok(*flag),
        Value::String(text) => match text.to_ascii_lowercase().as_str() {
            "1" | "t" | "y" | "on" | "yes" | "true" => Ok(true),
            "0" | "f" | "n" | "no" | "off" | "false" => Ok(false),
            _ => Err(unreadable()),
        },
        Value::Number(_) => match integer(input).ok().map(i64::try_from) {
            Some(Ok(0)) => Ok(false),
            Some(Ok(1)) => Ok(true),
            Some(Ok(_)) => Err(unreadable()),
            Some(Err(_)) | None => Err(wrong_type()),
        },
        Value::Null | Value::Array(_) | Value::Object(_) => Err(wrong_type()),
    }
}

/// A JSON integer, without conversion from strings, floats or booleans.
pub(super) fn only_integer(input: &Value, rule: &str) -> Result<i128, Invalid> {
    strict_integer(input).ok_or_else(|| Invalid::value(rule))
}

/// For fields of `boxwood-api`, whose own validation rejects both ends of the range.
pub(super) fn saturated(number: i128) -> u64 {
    u64::try_from(number.max(0)).unwrap_or(u64::MAX)
}

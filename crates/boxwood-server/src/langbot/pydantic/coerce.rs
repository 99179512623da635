//! Single values, as lenient as pydantic is outside its strict mode.
//!
//! Comes in: one value. Goes out: the typed one, or why not. Text is never made from anything else.

use super::errors::Wrong;
use super::input::Input;
use super::integer_text;

pub(super) fn text(input: &Input<'_>) -> Result<String, Wrong> {
    match input {
        Input::Text(text) => Ok(text.clone().into_owned()),
        _ => Err(Wrong::new("string_type", "Input should be a valid string")),
    }
}

/// `None`, or what `read` makes of anything else.
pub(super) fn nullable<T>(
    read: impl FnOnce(&Input<'_>) -> Result<T, Wrong>,
) -> impl FnOnce(&Input<'_>) -> Result<Option<T>, Wrong> {
    |input| match input {
        Input::Null => Ok(None),
        other => read(other).map(Some),
    }
}

/// One of the words of an enumeration.
pub(super) fn word<T: Copy>(words: &[(&str, T)]) -> impl Fn(&Input<'_>) -> Result<T, Wrong> {
    move |input| {
        let found = match input {
            Input::Text(text) => words.iter().find(|(word, _)| word == text),
            _ => None,
        };
        found
            .map(|(_, value)| *value)
            .ok_or_else(|| Wrong::new("enum", expected(words)))
    }
}

fn expected<T>(words: &[(&str, T)]) -> String {
    let mut quoted: Vec<String> = words.iter().map(|(word, _)| format!("'{word}'")).collect();
    let last = quoted.pop().unwrap_or_default();
    format!("Input should be {} or {last}", quoted.join(", "))
}

pub(super) fn integer(input: &Input<'_>) -> Result<i128, Wrong> {
    match input {
        Input::Int(number) => Ok(*number),
        Input::Bool(flag) => Ok(i128::from(*flag)),
        Input::Text(text) => integer_text::parse(text),
        Input::Float(number) => integral(*number),
        Input::Null | Input::List(_) | Input::Dict(_) => {
            Err(Wrong::new("int_type", "Input should be a valid integer"))
        }
    }
}

/// 2^63, where pydantic stops making integers of floats.
const MOST_INTEGRAL: f64 = 9_223_372_036_854_775_808.0;

fn integral(number: f64) -> Result<i128, Wrong> {
    if !number.is_finite() {
        return Err(Wrong::new(
            "finite_number",
            "Input should be a finite number",
        ));
    }
    if number.fract() != 0.0 {
        return Err(Wrong::new(
            "int_from_float",
            "Input should be a valid integer, got a number with a fractional part",
        ));
    }
    if number.abs() >= MOST_INTEGRAL {
        return Err(Wrong::new(
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

pub(super) fn float(input: &Input<'_>) -> Result<f64, Wrong> {
    match input {
        Input::Float(number) => Ok(*number),
        #[expect(
            clippy::cast_precision_loss,
            reason = "the same rounding as Python's own conversion"
        )]
        Input::Int(number) => Ok(*number as f64),
        Input::Bool(flag) => Ok(f64::from(u8::from(*flag))),
        Input::Text(text) => text
            .trim()
            .parse()
            .or_else(|_| integer_text::without_underscores(text).parse())
            .map_err(|_| {
                Wrong::new(
                    "float_parsing",
                    "Input should be a valid number, unable to parse string as a number",
                )
            }),
        Input::Null | Input::List(_) | Input::Dict(_) => {
            Err(Wrong::new("float_type", "Input should be a valid number"))
        }
    }
}

pub(super) fn boolean(input: &Input<'_>) -> Result<bool, Wrong> {
    let unreadable = || {
        Wrong::new(
            "bool_parsing",
            "Input should be a valid boolean, unable to interpret input",
        )
    };
    let wrong_type = || Wrong::new("bool_type", "Input should be a valid boolean");
    match input {
        Input::Bool(flag) => Ok(*flag),
        Input::Text(text) => match text.to_ascii_lowercase().as_str() {
            "1" | "t" | "y" | "on" | "yes" | "true" => Ok(true),
            "0" | "f" | "n" | "no" | "off" | "false" => Ok(false),
            _ => Err(unreadable()),
        },
        Input::Int(number) if i64::try_from(*number).is_err() => Err(wrong_type()),
        Input::Int(_) | Input::Float(_) => match integer(input) {
            Ok(0) => Ok(false),
            Ok(1) => Ok(true),
            Ok(_) => Err(unreadable()),
            Err(_) => Err(wrong_type()),
        },
        Input::Null | Input::List(_) | Input::Dict(_) => Err(wrong_type()),
    }
}

/// A number that is a number already: neither text nor a truth value.
pub(super) fn only_integer(input: &Input<'_>, rule: &str) -> Result<i128, Wrong> {
    match input {
        Input::Int(number) => Ok(*number),
        _ => Err(Wrong::value(rule)),
    }
}

//! Parses JSON bodies strictly.

mod coerce;
pub(crate) mod fields;
pub(crate) mod rules;

use std::fmt;

use serde::de::{self, DeserializeOwned, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Number, Value};

/// An invalid body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    #[error("the body is not valid JSON: {0}")]
    Syntax(String),
    #[error("the body must be a JSON object, not {0}")]
    NotAnObject(&'static str),
    #[error("{0}")]
    Field(String),
}

/// Parses a request. Duplicate keys are errors everywhere, because parsers differ in which value
/// they use. An empty body is an empty object.
pub fn from_json<T: DeserializeOwned>(body: &[u8]) -> Result<T, BodyError> {
    let value = if body.iter().all(u8::is_ascii_whitespace) {
        Value::Object(Map::new())
    } else {
        let Strict(value) =
            serde_json::from_slice(body).map_err(|fault| BodyError::Syntax(fault.to_string()))?;
        value
    };
    if !value.is_object() {
        return Err(BodyError::NotAnObject(kind(&value)));
    }
    // Converted from a `Value`, so that errors of fields have no line and column, which are useless
    // if a client library wrote the JSON.
    serde_json::from_value(value).map_err(|fault| BodyError::Field(fault.to_string()))
}

/// The name of the JSON type.
pub(crate) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

/// The start of a text, for error messages.
pub(crate) fn shown(text: &str) -> String {
    const MAX_CHARS: usize = 64;
    let mut shown: String = text.chars().take(MAX_CHARS).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// A JSON value without duplicate keys.
pub(crate) struct Strict(pub(crate) Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(StrictVisitor).map(Self)
    }
}

struct StrictVisitor;

impl<'de> Visitor<'de> for StrictVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::from(value))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("numbers must be finite"))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: de::Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(Strict(value)) = list.next_element()? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((key, Strict(value))) = entries.next_entry::<String, Strict>()? {
            if map.contains_key(&key) {
                return Err(de::Error::custom(format_args!(
                    "the key `{}` occurs twice",
                    shown(&key)
                )));
            }
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SpecRequest;

    fn check(body: &str, expected: &str) {
        let fault = from_json::<SpecRequest>(body.as_bytes()).expect_err(body);
        assert_eq!(fault.to_string(), expected, "{body}");
    }

    #[test]
    fn a_body_is_an_object_or_nothing() {
        assert_eq!(from_json(b""), Ok(SpecRequest::default()));
        assert_eq!(from_json(b" {} \n"), Ok(SpecRequest::default()));
        check("[]", "the body must be a JSON object, not an array");
        check("null", "the body must be a JSON object, not null");
        check("\"x\"", "the body must be a JSON object, not a string");
    }

    #[test]
    fn a_key_may_not_occur_twice_at_any_depth() {
        check(
            r#"{"cmd": "a", "cmd": "b"}"#,
            "the body is not valid JSON: the key `cmd` occurs twice at line 1 column 24",
        );
        check(
            r#"{"env": {"A": "1", "A": "2"}}"#,
            "the body is not valid JSON: the key `A` occurs twice at line 1 column 28",
        );
    }

    #[test]
    fn broken_endless_and_infinite_json_is_refused() {
        for body in [
            "{",
            "{\"cpus\": NaN}",
            "{\"cpus\": 1e999}",
            "{}{}",
            "{\"cmd\": \"\\ud800\"}",
        ] {
            let fault = from_json::<SpecRequest>(body.as_bytes()).expect_err(body);
            assert!(matches!(fault, BodyError::Syntax(_)), "{body}: {fault}");
        }
        let deep = format!("{{\"cmd\": {}", "[".repeat(100_000));
        assert!(from_json::<SpecRequest>(deep.as_bytes()).is_err());
        assert!(from_json::<SpecRequest>(b"{\"cmd\": \"\xff\"}").is_err());
    }
}

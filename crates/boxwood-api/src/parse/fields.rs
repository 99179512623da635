//! Reads the fields of a JSON object by name. Every error names its field.
//!
//! Ranges and rules across fields are validated later, also for requests that are built in code.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use super::{Strict, coerce, kind, shown};
use crate::FieldError;

/// The remaining fields of an object while it is read.
pub(crate) struct Fields(Map<String, Value>);

/// Null only where the wire format allows it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Null {
    IsAbsent,
    IsWrong,
}

impl Fields {
    /// Reads an object whose keys are all in `known`.
    pub(crate) fn read<'de, D: Deserializer<'de>>(
        input: D,
        known: &[&str],
    ) -> Result<Self, D::Error> {
        let Strict(value) = Strict::deserialize(input)?;
        Self::from_value(value, known).map_err(serde::de::Error::custom)
    }

    fn from_value(value: Value, known: &[&str]) -> Result<Self, String> {
        let Value::Object(map) = value else {
            return Err(format!("an object was expected, not {}", kind(&value)));
        };
        match map.keys().find(|key| !known.contains(&key.as_str())) {
            Some(key) => Err(format!(
                "unknown field `{}`, expected one of {}",
                shown(key),
                known.join(", ")
            )),
            None => Ok(Self(map)),
        }
    }

    /// The field's value, unless it is absent.
    pub(crate) fn take(&mut self, field: &str, null: Null) -> Option<Value> {
        match self.0.remove(field) {
            Some(Value::Null) if null == Null::IsAbsent => None,
            value => value,
        }
    }

    pub(crate) fn is_null(&self, field: &str) -> bool {
        self.0.get(field).is_some_and(Value::is_null)
    }

    /// A non-negative number. `too_small` is the rule to report for a negative one.
    pub(crate) fn unsigned(
        &mut self,
        field: &str,
        too_small: &str,
    ) -> Result<Option<u64>, FieldError> {
        self.coerced(field, Null::IsWrong, |value| {
            u64::try_from(coerce::integer(&value)?).map_err(|_| too_small.to_owned())
        })
    }

    fn coerced<T>(
        &mut self,
        field: &str,
        null: Null,
        coerce: impl FnOnce(Value) -> Result<T, String>,
    ) -> Result<Option<T>, FieldError> {
        let value = self.take(field, null).map(coerce).transpose();
        value.map_err(|rule| FieldError::new(field, rule))
    }

    pub(crate) fn float(&mut self, field: &str) -> Result<Option<f64>, FieldError> {
        self.coerced(field, Null::IsWrong, |value| coerce::float(&value))
    }

    pub(crate) fn boolean(&mut self, field: &str) -> Result<Option<bool>, FieldError> {
        self.coerced(field, Null::IsWrong, |value| coerce::boolean(&value))
    }

    pub(crate) fn text(&mut self, field: &str, null: Null) -> Result<Option<String>, FieldError> {
        self.coerced(field, null, coerce::text)
    }

    /// A string with its own type and error, such as an id.
    pub(crate) fn parsed<T, E: Display>(
        &mut self,
        field: &str,
        null: Null,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Result<Option<T>, String> {
        match self.text(field, null) {
            Ok(Some(text)) => parse(&text).map(Some).map_err(|fault| fault.to_string()),
            Ok(None) => Ok(None),
            Err(fault) => Err(fault.to_string()),
        }
    }

    /// One of several fixed values.
    pub(crate) fn word<T: Copy>(
        &mut self,
        field: &str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, FieldError> {
        self.take(field, Null::IsWrong)
            .map(|value| one_of(field, &value, words))
            .transpose()
    }

    pub(crate) fn list(&mut self, field: &str) -> Result<Vec<Value>, FieldError> {
        match self.take(field, Null::IsWrong) {
            None => Ok(Vec::new()),
            Some(Value::Array(values)) => Ok(values),
            Some(other) => Err(wrong_kind(field, "an array", &other)),
        }
    }

    pub(crate) fn texts(&mut self, field: &str) -> Result<Vec<String>, FieldError> {
        self.list(field)?
            .into_iter()
            .enumerate()
            .map(|(index, value)| {
                coerce::text(value)
                    .map_err(|rule| FieldError::new(format!("{field}[{index}]"), rule))
            })
            .collect()
    }

    /// A map of strings. Errors contain only the name, because the value may be a secret.
    pub(crate) fn text_map(&mut self, field: &str) -> Result<BTreeMap<String, String>, FieldError> {
        match self.take(field, Null::IsWrong) {
            None => Ok(BTreeMap::new()),
            Some(Value::Object(map)) => map
                .into_iter()
                .map(|(name, value)| match coerce::text(value) {
                    Ok(text) => Ok((name, text)),
                    Err(rule) => {
                        let rule = format!("value of {:?} {rule}", shown(&name));
                        Err(FieldError::new(field, rule))
                    }
                })
                .collect(),
            Some(other) => Err(wrong_kind(field, "an object", &other)),
        }
    }
}

pub(crate) fn one_of<T: Copy>(
    field: &str,
    value: &Value,
    words: &[(&str, T)],
) -> Result<T, FieldError> {
    let found = value
        .as_str()
        .and_then(|text| words.iter().find(|(word, _)| *word == text));
    if let Some((_, meaning)) = found {
        return Ok(*meaning);
    }
    let known: Vec<String> = words.iter().map(|(word, _)| format!("`{word}`")).collect();
    let rule = format!("must be one of {}", known.join(", "));
    Err(FieldError::new(field, rule))
}

fn wrong_kind(field: &str, expected: &str, value: &Value) -> FieldError {
    FieldError::new(field, format!("must be {expected}, not {}", kind(value)))
}

//! Reads the fields of a JSON object by name. Every error names its field.
//!
//! Ranges and rules across fields are validated later, also for requests that are built in code.

use std::collections::BTreeMap;
use std::fmt::Display;

use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

use crate::FieldError;
use crate::coerce;
use crate::json::{Strict, kind, shown};

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
        let Some(value) = self.take(field, Null::IsWrong) else {
            return Ok(None);
        };
        let integer = coerce::integer(&value).map_err(|rule| FieldError::new(field, &rule))?;
        u64::try_from(integer)
            .map(Some)
            .map_err(|_| FieldError::new(field, too_small))
    }

    pub(crate) fn float(&mut self, field: &str) -> Result<Option<f64>, FieldError> {
        self.take(field, Null::IsWrong)
            .map(|value| coerce::float(&value).map_err(|rule| FieldError::new(field, &rule)))
            .transpose()
    }

    pub(crate) fn boolean(&mut self, field: &str) -> Result<Option<bool>, FieldError> {
        self.take(field, Null::IsWrong)
            .map(|value| coerce::boolean(&value).map_err(|rule| FieldError::new(field, &rule)))
            .transpose()
    }

    pub(crate) fn text(&mut self, field: &str, null: Null) -> Result<Option<String>, FieldError> {
        self.take(field, null)
            .map(|value| coerce::text(value).map_err(|rule| FieldError::new(field, &rule)))
            .transpose()
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
            Some(other) => Err(FieldError::new(
                field,
                &format!("must be an array, not {}", kind(&other)),
            )),
        }
    }

    pub(crate) fn texts(&mut self, field: &str) -> Result<Vec<String>, FieldError> {
        self.list(field)?
            .into_iter()
            .enumerate()
            .map(|(index, value)| {
                coerce::text(value)
                    .map_err(|rule| FieldError::new(format!("{field}[{index}]"), &rule))
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
                    Err(rule) => Err(FieldError::new(
                        field,
                        &format!("value of {:?} {rule}", shown(&name)),
                    )),
                })
                .collect(),
            Some(other) => Err(FieldError::new(
                field,
                &format!("must be an object, not {}", kind(&other)),
            )),
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
    Err(FieldError::new(
        field,
        &format!("must be one of {}", known.join(", ")),
    ))
}

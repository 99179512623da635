//! Reads the fields of a JSON object by name. Every error names its field.
//!
//! Ranges and rules across fields are validated later, also for requests that are built in code.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de};
use serde_json::{Map, Value};
use strum::VariantArray;

use super::{Strict, coerce, kind, shown};
use crate::FieldError;

/// An object while it is read.
pub(crate) struct Fields {
    remaining: Map<String, Value>,
    /// The names that were read, present or not.
    known: Vec<&'static str>,
}

/// Null only where the wire format allows it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Null {
    IsAbsent,
    IsWrong,
}

impl Fields {
    pub(crate) fn read<'de, D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let Strict(value) = Strict::deserialize(input)?;
        let Value::Object(remaining) = value else {
            let found = kind(&value);
            return Err(de::Error::custom(format!(
                "an object was expected, not {found}"
            )));
        };
        let known = Vec::new();
        Ok(Self { remaining, known })
    }

    /// Fails if the object has a field that was not read.
    pub(crate) fn finish(self) -> Result<(), FieldError> {
        match self.remaining.keys().next() {
            Some(field) => Err(FieldError::unknown(&shown(field), &self.known)),
            None => Ok(()),
        }
    }

    /// The field's value, unless it is absent.
    fn take(&mut self, field: &'static str, null: Null) -> Option<Value> {
        self.known.push(field);
        match self.remaining.remove(field) {
            Some(Value::Null) if null == Null::IsAbsent => None,
            value => value,
        }
    }

    pub(crate) fn is_null(&self, field: &str) -> bool {
        self.remaining.get(field).is_some_and(Value::is_null)
    }

    /// A non-negative number. `too_small` is the rule to report for a negative one.
    pub(crate) fn unsigned(
        &mut self,
        field: &'static str,
        too_small: &str,
    ) -> Result<Option<u64>, FieldError> {
        self.coerced(field, Null::IsWrong, |value| {
            u64::try_from(coerce::integer(&value)?).map_err(|_| too_small.to_owned())
        })
    }

    fn coerced<T>(
        &mut self,
        field: &'static str,
        null: Null,
        coerce: impl FnOnce(Value) -> Result<T, String>,
    ) -> Result<Option<T>, FieldError> {
        let value = self.take(field, null).map(coerce).transpose();
        value.map_err(|rule| FieldError::new(field, rule))
    }

    pub(crate) fn float(&mut self, field: &'static str) -> Result<Option<f64>, FieldError> {
        self.coerced(field, Null::IsWrong, |value| coerce::float(&value))
    }

    pub(crate) fn boolean(&mut self, field: &'static str) -> Result<Option<bool>, FieldError> {
        self.coerced(field, Null::IsWrong, |value| coerce::boolean(&value))
    }

    pub(crate) fn text(
        &mut self,
        field: &'static str,
        null: Null,
    ) -> Result<Option<String>, FieldError> {
        self.coerced(field, null, coerce::text)
    }

    /// A string with its own type, such as an id.
    pub(crate) fn parsed<T>(
        &mut self,
        field: &'static str,
        null: Null,
        parse: impl FnOnce(&str) -> Result<T, FieldError>,
    ) -> Result<Option<T>, FieldError> {
        self.text(field, null)?.map(|text| parse(&text)).transpose()
    }

    /// One of several fixed values.
    pub(crate) fn keyword<T>(&mut self, field: &'static str) -> Result<Option<T>, FieldError>
    where
        T: VariantArray + Copy + Into<&'static str>,
    {
        self.take(field, Null::IsWrong)
            .map(|value| one_of(field, &value))
            .transpose()
    }

    pub(crate) fn list(&mut self, field: &'static str) -> Result<Vec<Value>, FieldError> {
        match self.take(field, Null::IsWrong) {
            None => Ok(Vec::new()),
            Some(Value::Array(values)) => Ok(values),
            Some(other) => Err(wrong_kind(field, "an array", &other)),
        }
    }

    pub(crate) fn texts(&mut self, field: &'static str) -> Result<Vec<String>, FieldError> {
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
    pub(crate) fn text_map(
        &mut self,
        field: &'static str,
    ) -> Result<BTreeMap<String, String>, FieldError> {
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

/// The variant of an enum whose variants are words in JSON.
pub(crate) fn one_of<T>(field: &str, value: &Value) -> Result<T, FieldError>
where
    T: VariantArray + Copy + Into<&'static str>,
{
    let name = |variant: T| -> &'static str { variant.into() };
    let mut variants = T::VARIANTS.iter().copied();
    let found = variants.find(|variant| value.as_str() == Some(name(*variant)));
    found.ok_or_else(|| {
        let known = T::VARIANTS
            .iter()
            .map(|variant| format!("`{}`", name(*variant)));
        let known: Vec<String> = known.collect();
        FieldError::new(field, format!("must be one of {}", known.join(", ")))
    })
}

fn wrong_kind(field: &str, expected: &str, value: &Value) -> FieldError {
    FieldError::new(field, format!("must be {expected}, not {}", kind(value)))
}

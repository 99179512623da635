//! Reads the fields of one model in the model's order, then handles unknown fields.

use serde_json::{Map, Value};

use super::coerce;
use super::errors::{Errors, Invalid, Location};

/// Collects errors and keeps reading, so that one text lists all of them. An invalid field reads as its
/// default; [`Errors::check`] rejects the model before the value is used.
pub(super) struct Model<'i, 'e> {
    fields: &'i Map<String, Value>,
    at: Location,
    known: Vec<&'static str>,
    pub(super) errors: &'e mut Errors,
}

impl<'i, 'e> Model<'i, 'e> {
    pub(super) fn new(
        fields: &'i Map<String, Value>,
        at: Location,
        errors: &'e mut Errors,
    ) -> Self {
        Self {
            fields,
            at,
            known: Vec::new(),
            errors,
        }
    }

    pub(super) fn at(&self, name: &str) -> Location {
        self.at.then(name)
    }

    /// Returns the field as sent, and marks its name as known.
    fn sent(&mut self, name: &'static str) -> Option<&'i Value> {
        self.known.push(name);
        self.fields.get(name)
    }

    pub(super) fn required<T: Default>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&Value) -> Result<T, Invalid>,
    ) -> T {
        if !self.fields.contains_key(name) {
            let missing = Invalid::new("missing", "Field required");
            self.errors.push(&self.at(name), &missing);
        }
        self.optional(name, T::default(), read)
    }

    pub(super) fn optional<T>(
        &mut self,
        name: &'static str,
        default: T,
        read: impl FnOnce(&Value) -> Result<T, Invalid>,
    ) -> T {
        let Some(input) = self.sent(name) else {
            return default;
        };
        read(input).unwrap_or_else(|invalid| {
            self.errors.push(&self.at(name), &invalid);
            default
        })
    }

    /// A dictionary of strings. Each value of another type is an error of its own.
    pub(super) fn string_map<C: FromIterator<(String, String)>>(
        &mut self,
        name: &'static str,
    ) -> C {
        let at = self.at(name);
        let entries = match self.sent(name) {
            None => None,
            Some(Value::Object(entries)) => Some(entries),
            Some(_) => {
                let invalid = Invalid::new("dict_type", "Input should be a valid dictionary");
                self.errors.push(&at, &invalid);
                None
            }
        };
        let entries = entries.into_iter().flatten();
        entries
            .filter_map(|(key, value)| match coerce::text(value) {
                Ok(text) => Some((key.clone(), text)),
                Err(invalid) => {
                    self.errors.push(&at.then(key), &invalid);
                    None
                }
            })
            .collect()
    }

    /// The elements of a list; empty if the field is missing or not a list.
    pub(super) fn list(&mut self, name: &'static str) -> &'i [Value] {
        match self.sent(name) {
            None => &[],
            Some(Value::Array(items)) => items,
            Some(_) => {
                let invalid = Invalid::new("list_type", "Input should be a valid list");
                self.errors.push(&self.at(name), &invalid);
                &[]
            }
        }
    }

    /// Call after the last field, for models that have no other fields.
    pub(super) fn forbid_unknown(&mut self) {
        let forbidden = Invalid::new("extra_forbidden", "Extra inputs are not permitted");
        for key in self.fields.keys() {
            if !self.known.contains(&key.as_str()) {
                self.errors.push(&self.at.then(key), &forbidden);
            }
        }
    }
}

/// The fields of an object. Any other type is an error.
pub(super) fn fields<'i>(
    input: &'i Value,
    class: &str,
    at: &Location,
    errors: &mut Errors,
) -> Option<&'i Map<String, Value>> {
    if let Value::Object(fields) = input {
        return Some(fields);
    }
    let invalid = Invalid::new(
        "model_type",
        format!("Input should be a valid dictionary or instance of {class}"),
    );
    errors.push(at, &invalid);
    None
}

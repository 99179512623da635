//! A JSON object with raw values.
//!
//! Keeps the order of keys and the text of values. Duplicate keys are refused, because parsers disagree on
//! them and the tool filter must see what the server sees.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadObject {
    #[error("invalid JSON: {0}")]
    NotJson(String),
    #[error("not a JSON object")]
    NotAnObject,
    #[error("duplicate key `{0}`")]
    DuplicateKey(String),
}

/// The number of fields is limited, because a field takes much more memory than its text.
const MAX_FIELDS: usize = 4096;

#[derive(Clone, Default)]
pub(crate) struct Object {
    fields: Vec<(Box<str>, Box<RawValue>)>,
}

impl Object {
    pub(crate) fn parse(text: &str) -> Result<Self, BadObject> {
        match serde_json::from_str(text) {
            Ok(Parsed {
                duplicate: Some(key),
                ..
            }) => Err(BadObject::DuplicateKey(key)),
            Ok(Parsed { object, .. }) => Ok(object),
            Err(error) => {
                let is_object = text.trim_ascii_start().starts_with('{');
                let is_json = !is_object && serde_json::from_str::<&RawValue>(text).is_ok();
                Err(if is_json {
                    BadObject::NotAnObject
                } else {
                    BadObject::NotJson(error.to_string())
                })
            }
        }
    }

    pub(crate) fn of<const N: usize>(fields: [(&str, Box<RawValue>); N]) -> Self {
        let fields = fields.map(|(key, value)| (key.into(), value));
        Self {
            fields: fields.into(),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&RawValue> {
        let found = self.fields.iter().find(|(name, _)| **name == *key);
        found.map(|(_, value)| &**value)
    }

    /// The value, if it is a string.
    pub(crate) fn text(&self, key: &str) -> Option<String> {
        text(self.get(key)?)
    }

    /// Replaces the value, or appends it.
    pub(crate) fn set(&mut self, key: &str, value: Box<RawValue>) {
        match self.fields.iter_mut().find(|(name, _)| **name == *key) {
            Some((_, existing)) => *existing = value,
            None => self.fields.push((key.into(), value)),
        }
    }

    /// Keeps an existing value.
    pub(crate) fn set_default(&mut self, key: &str, value: Box<RawValue>) {
        if self.get(key).is_none() {
            self.set(key, value);
        }
    }

    /// Sets a key of `_meta`.
    pub(crate) fn with_meta(mut self, key: &str, value: Box<RawValue>) -> Self {
        let meta = self.get("_meta").map_or("{}", RawValue::get);
        let mut meta = Self::parse(meta).unwrap_or_default();
        meta.set(key, value);
        self.set("_meta", meta.raw());
        self
    }

    pub(crate) fn remove(&mut self, key: &str) -> Option<Box<RawValue>> {
        let at = self.fields.iter().position(|(name, _)| **name == *key)?;
        Some(self.fields.remove(at).1)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &RawValue)> {
        self.fields.iter().map(|(key, value)| (&**key, &**value))
    }

    pub(crate) fn raw(&self) -> Box<RawValue> {
        // Writing keys and raw text into memory cannot fail.
        to_raw_value(self).unwrap_or_default()
    }

    /// Approximate size in bytes.
    pub(crate) fn size(&self) -> usize {
        let each = |(key, value): &(Box<str>, Box<RawValue>)| key.len() + value.get().len() + 4;
        self.fields.iter().map(each).sum::<usize>() + 2
    }
}

/// The value as a string, if it is one.
pub(crate) fn text(value: &RawValue) -> Option<String> {
    let read = serde_json::from_str::<Cow<'_, str>>(value.get());
    read.ok().map(Cow::into_owned)
}

/// Only used with values that serialize without errors.
pub(crate) fn raw<T: Serialize + ?Sized>(value: &T) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_default()
}

/// An object, and the first key that occurs twice.
#[derive(Default)]
struct Parsed {
    object: Object,
    duplicate: Option<String>,
}

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Parsed;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed, A::Error> {
                let mut parsed = Parsed::default();
                let mut seen = std::collections::HashSet::new();
                while let Some(key) = map.next_key::<Box<str>>()? {
                    if parsed.object.fields.len() == MAX_FIELDS {
                        let message = format_args!("an object has more than {MAX_FIELDS} fields");
                        return Err(A::Error::custom(message));
                    }
                    if !seen.insert(key.clone()) {
                        let shown = || key.chars().take(80).collect();
                        parsed.duplicate.get_or_insert_with(shown);
                    }
                    parsed.object.fields.push((key, map.next_value()?));
                }
                Ok(parsed)
            }
        }

        deserializer.deserialize_map(Fields)
    }
}

impl Serialize for Object {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.fields.len()))?;
        for (key, value) in &self.fields {
            map.serialize_entry(&**key, &**value)?;
        }
        map.end()
    }
}

/// Only keys, because values may contain secrets.
impl fmt::Debug for Object {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.fields.iter().map(|(key, _)| key))
            .finish()
    }
}

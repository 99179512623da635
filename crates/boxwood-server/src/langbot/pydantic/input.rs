//! A JSON value as Python would hold it.
//!
//! Comes in: a value that was read. Goes out: the same in Python's words. The order of a dictionary's
//! entries shows in error texts, and only there: `serde_json` keeps them by name and not as they were
//! sent, which is good enough for people. Tests read them as they were sent.

use std::borrow::Cow;

use serde_json::{Map, Value};

#[derive(Clone, Debug, PartialEq)]
pub(in crate::langbot) enum Input<'a> {
    Null,
    Bool(bool),
    /// Wide enough for every integer that arrives as one: the JSON reader makes floats of those
    /// beyond 64 bits.
    Int(i128),
    Float(f64),
    Text(Cow<'a, str>),
    List(Vec<Input<'a>>),
    Dict(Vec<(Cow<'a, str>, Input<'a>)>),
}

impl Input<'_> {
    /// Python's name for the type.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Text(_) => "str",
            Self::List(_) => "list",
            Self::Dict(_) => "dict",
        }
    }

    /// The member of a dictionary, or the element of a list.
    pub(in crate::langbot) fn member(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Dict(entries) => entries
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value),
            Self::List(items) => items.get(name.parse::<usize>().ok()?),
            _ => None,
        }
    }
}

impl<'a> From<&'a Value> for Input<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(flag) => Self::Bool(*flag),
            Value::Number(number) => {
                let integer = number
                    .as_i64()
                    .map(i128::from)
                    .or_else(|| number.as_u64().map(i128::from));
                match integer {
                    Some(integer) => Self::Int(integer),
                    None => Self::Float(number.as_f64().unwrap_or(f64::NAN)),
                }
            }
            Value::String(text) => Self::Text(Cow::Borrowed(text)),
            Value::Array(items) => Self::List(items.iter().map(Self::from).collect()),
            Value::Object(map) => Self::from(map),
        }
    }
}

impl<'a> From<&'a Map<String, Value>> for Input<'a> {
    fn from(map: &'a Map<String, Value>) -> Self {
        let entries = map
            .iter()
            .map(|(name, value)| (Cow::Borrowed(name.as_str()), Self::from(value)));
        Self::Dict(entries.collect())
    }
}

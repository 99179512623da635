//! A JSON value as Python would hold it.
//!
//! Comes in: JSON text, or values already read. Goes out: the same with objects in the order of the
//! wire, because an error text shows the beginning and the end of what was sent. (Maps already read
//! by `serde_json` come in their own order.)

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
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

impl<'a> From<&Input<'a>> for Input<'a> {
    fn from(input: &Input<'a>) -> Self {
        input.clone()
    }
}

impl<'de> Deserialize<'de> for Input<'_> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(InWireOrder).map(Owned::into_input)
    }
}

/// What has been read, owning its text.
struct Owned(Input<'static>);

impl Owned {
    fn into_input<'a>(self) -> Input<'a> {
        self.0
    }
}

impl<'de> Deserialize<'de> for Owned {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(InWireOrder)
    }
}

struct InWireOrder;

impl<'de> Visitor<'de> for InWireOrder {
    type Value = Owned;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Owned, E> {
        Ok(Owned(Input::Null))
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Owned, E> {
        Ok(Owned(Input::Bool(flag)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Owned, E> {
        Ok(Owned(Input::Int(number.into())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Owned, E> {
        Ok(Owned(Input::Int(number.into())))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Owned, E> {
        Ok(Owned(Input::Float(number)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Owned, E> {
        Ok(Owned(Input::Text(Cow::Owned(text.to_owned()))))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Owned, A::Error> {
        let mut list = Vec::new();
        while let Some(Owned(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(Owned(Input::List(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Owned, A::Error> {
        let mut entries: Vec<(Cow<'static, str>, Input<'static>)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        while let Some((name, Owned(value))) = members.next_entry::<String, Owned>()? {
            // A name said twice keeps its first place and its last value.
            if let Some(entry) = places.get(&name).and_then(|place| entries.get_mut(*place)) {
                entry.1 = value;
            } else {
                places.insert(name.clone(), entries.len());
                entries.push((Cow::Owned(name), value));
            }
        }
        Ok(Owned(Input::Dict(entries)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_the_order_of_the_wire() -> Result<(), serde_json::Error> {
        let input: Input<'_> = serde_json::from_str(r#"{"b": 1, "a": [true], "b": null}"#)?;
        let expected = Input::Dict(vec![
            (Cow::Borrowed("b"), Input::Null),
            (Cow::Borrowed("a"), Input::List(vec![Input::Bool(true)])),
        ]);
        assert_eq!(input, expected);
        Ok(())
    }
}

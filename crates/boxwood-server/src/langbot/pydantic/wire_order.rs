//! Inputs read from text with their members as they were sent, for tests that compare whole texts.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};

use super::input::Input;

impl<'de> Deserialize<'de> for Input<'static> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        input.deserialize_any(InWireOrder)
    }
}

struct InWireOrder;

impl<'de> Visitor<'de> for InWireOrder {
    type Value = Input<'static>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Input::Null)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Self::Value, E> {
        Ok(Input::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Input::Int(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Input::Int(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Input::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Input::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Input::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut entries: Vec<(Cow<'static, str>, Input<'static>)> = Vec::new();
        let mut places: HashMap<String, usize> = HashMap::new();
        while let Some((name, value)) = members.next_entry::<String, Input<'static>>()? {
            // A name said twice keeps its first place and its last value.
            if let Some(entry) = places.get(&name).and_then(|place| entries.get_mut(*place)) {
                entry.1 = value;
            } else {
                places.insert(name.clone(), entries.len());
                entries.push((Cow::Owned(name), value));
            }
        }
        Ok(Input::Dict(entries))
    }
}

#[test]
fn members_keep_their_order() -> Result<(), serde_json::Error> {
    let input: Input<'_> = serde_json::from_str(r#"{"b": 1, "a": [true], "b": null}"#)?;
    let expected = Input::Dict(vec![
        (Cow::Borrowed("b"), Input::Null),
        (Cow::Borrowed("a"), Input::List(vec![Input::Bool(true)])),
    ]);
    assert_eq!(input, expected);
    Ok(())
}

//! Helpers for raw JSON values.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::marker::PhantomData;
use std::sync::LazyLock;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer as _};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::wire::Object;
pub(crate) use crate::wire::raw;

/// Parsing into `Value` can take a hundred times the size of the text. Longer text is not parsed.
pub(crate) const MAX_READABLE_BYTES: usize = 256 * 1024;

/// Maximum number of elements of an array that is split.
const MAX_ITEMS: usize = 100_000;

/// Elements of an array as raw text. `None` if there are more than `MAX_ITEMS`.
pub(crate) fn items(array: &RawValue) -> Option<Vec<&RawValue>> {
    let items = first_of(array, MAX_ITEMS + 1)?;
    (items.len() <= MAX_ITEMS).then_some(items)
}

/// The first `limit` elements of an array. `None` if the value is not an array of `T`.
pub(crate) fn first_of<'a, T: Deserialize<'a>>(
    array: &'a RawValue,
    limit: usize,
) -> Option<Vec<T>> {
    let first = First {
        limit,
        kind: PhantomData,
    };
    let mut reader = serde_json::Deserializer::from_str(array.get());
    reader.deserialize_seq(first).ok()
}

/// Deserializes at most `limit` elements: a short element takes much more memory than its text.
struct First<T> {
    limit: usize,
    kind: PhantomData<T>,
}

impl<'de, T: Deserialize<'de>> Visitor<'de> for First<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Vec<T>, A::Error> {
        let mut items = Vec::new();
        while items.len() < self.limit {
            match seq.next_element()? {
                Some(item) => items.push(item),
                None => return Ok(items),
            }
        }
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(items)
    }
}

pub(crate) fn object(raw: &RawValue) -> Option<Object> {
    Object::parse(raw.get()).ok()
}

pub(crate) fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}

/// Independent of key order and whitespace. Valid within this process.
pub(crate) fn digest_of(parts: &[Option<&RawValue>]) -> u64 {
    static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    // Too long or too deeply nested values are compared as text.
    let values = parts
        .iter()
        .map(|part| part.map(|it| readable(it).ok_or(it.get())));
    KEYS.hash_one(values.collect::<Vec<_>>())
}

/// `None` if the value is too long to parse.
pub(crate) fn readable(part: &RawValue) -> Option<Value> {
    let text = Some(part.get()).filter(|text| text.len() <= MAX_READABLE_BYTES)?;
    serde_json::from_str(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_depends_on_values_and_not_on_key_order() {
        let parsed = |text: &str| RawValue::from_string(text.to_owned()).expect("JSON");
        let one = parsed(r#"{"a":[1,{"x":null,"y":"z"}],"b":2}"#);
        let same = parsed(r#"{ "b":2, "a":[1,{"y":"z","x":null}] }"#);
        let other = parsed(r#"{"a":[1,{"x":"z","y":null}],"b":2}"#);
        assert_eq!(digest_of(&[Some(&one)]), digest_of(&[Some(&same)]));
        assert_ne!(digest_of(&[Some(&one)]), digest_of(&[Some(&other)]));
        assert_ne!(
            digest_of(&[Some(&one), None]),
            digest_of(&[None, Some(&one)])
        );
    }

    #[test]
    fn arrays_are_split_up_to_a_limit() {
        let zeros = |count: usize| raw(&vec![0; count]);
        let count = |array: &RawValue| items(array).map(|items| items.len());
        assert_eq!(count(&zeros(0)), Some(0));
        assert_eq!(count(&zeros(MAX_ITEMS)), Some(MAX_ITEMS));
        assert_eq!(count(&zeros(MAX_ITEMS + 1)), None);
        assert_eq!(count(&raw("text")), None);
        assert_eq!(first_of::<u8>(&zeros(5), 3), Some(vec![0; 3]));
        assert_eq!(first_of::<String>(&zeros(5), 3), None);
    }

    #[test]
    fn long_text_is_compared_as_it_is() {
        let long = |blank: &str| {
            let many = vec![format!(r#"{{"":{blank}0}}"#); MAX_READABLE_BYTES / 6];
            RawValue::from_string(format!("[{}]", many.join(","))).expect("JSON")
        };
        let (one, laid_out) = (long(""), long(" "));
        assert!(readable(&one).is_none());
        assert_eq!(digest_of(&[Some(&one)]), digest_of(&[Some(&one)]));
        assert_ne!(digest_of(&[Some(&one)]), digest_of(&[Some(&laid_out)]));
    }
}

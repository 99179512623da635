//! Keys that some servers read as ours.
//!
//! Comes in: a client's message. Goes out: a key that is not one of those a filter looks at and is taken for
//! it by a reader that minds no case, as Go's own is. Such a reader would carry out another message than the
//! one that was judged. Never here: messages of servers, which nobody has to judge.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::message::meta;

/// What decides where a message goes and what becomes of it.
const OF_MESSAGES: [&str; 4] = ["jsonrpc", "id", "method", "params"];
const OF_META: [&str; 1] = ["progressToken"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lookalike {
    pub(crate) key: String,
    pub(crate) of: &'static str,
}

pub(crate) fn in_message<'a>(mut keys: impl Iterator<Item = &'a str>) -> Option<Lookalike> {
    keys.find_map(|key| Lookalike::find(key, &OF_MESSAGES))
}

/// What is no object has no keys, and what cannot be read is refused elsewhere.
pub(crate) fn in_params(method: &str, params: &RawValue) -> Option<Lookalike> {
    let known: &[&str] = match method {
        "tools/call" | "prompts/get" => &["_meta", "name"],
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => &["_meta", "uri"],
        _ => &["_meta"],
    };
    among(params, known).or_else(|| {
        let meta = meta(params)?;
        let mut keys = meta.iter().map(|(key, _)| key);
        keys.find_map(|key| Lookalike::find(key, &OF_META))
    })
}

impl Lookalike {
    fn find(key: &str, known: &[&'static str]) -> Option<Self> {
        let is_like = |of: &str| key != of && folded(key).eq(folded(of));
        let of = known.iter().copied().find(|of| is_like(of))?;
        let key = key.to_owned();
        Some(Self { key, of })
    }
}

/// Letters that are the same to whoever minds no case: besides the usual ones a long s, the sign of the
/// kelvin, and an i with or without its dot.
fn folded(text: &str) -> impl Iterator<Item = char> {
    text.chars().map(|letter| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        '\u{130}' | '\u{131}' => 'i',
        other => other.to_ascii_lowercase(),
    })
}

/// Arguments may be long: none of the values is read.
fn among(object: &RawValue, known: &[&'static str]) -> Option<Lookalike> {
    struct Keys<'a>(&'a [&'static str]);

    impl<'de> Visitor<'de> for Keys<'_> {
        type Value = Option<Lookalike>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = None;
            while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                found = found.or_else(|| Lookalike::find(&key, self.0));
                map.next_value::<IgnoredAny>()?;
            }
            Ok(found)
        }
    }

    let mut reader = serde_json::Deserializer::from_str(object.get());
    reader.deserialize_map(Keys(known)).ok().flatten()
}

//! Finds keys in client messages that differ from a protocol key only in case.
//!
//! Case-insensitive JSON parsers such as Go's would read another message than the one that the tool filter
//! checked. Messages of servers are not checked.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::meta;

/// Keys that determine how a message is handled.
const MESSAGE_KEYS: [&str; 4] = ["jsonrpc", "id", "method", "params"];
const META_KEYS: [&str; 1] = ["progressToken"];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AmbiguousKey {
    pub(crate) key: String,
    pub(crate) protocol_key: &'static str,
}

pub(crate) fn in_message<'a>(mut keys: impl Iterator<Item = &'a str>) -> Option<AmbiguousKey> {
    keys.find_map(|key| AmbiguousKey::find(key, &MESSAGE_KEYS))
}

/// Non-objects have no keys; invalid JSON is refused elsewhere.
pub(crate) fn in_params(method: &str, params: &RawValue) -> Option<AmbiguousKey> {
    let known: &[&str] = match method {
        "tools/call" | "prompts/get" => &["_meta", "name"],
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => &["_meta", "uri"],
        _ => &["_meta"],
    };
    find_in_object(params, known).or_else(|| {
        let meta = meta(params)?;
        let mut keys = meta.iter().map(|(key, _)| key);
        keys.find_map(|key| AmbiguousKey::find(key, &META_KEYS))
    })
}

impl AmbiguousKey {
    fn find(key: &str, known: &[&'static str]) -> Option<Self> {
        let is_like =
            |protocol_key: &str| key != protocol_key && folded(key).eq(folded(protocol_key));
        let protocol_key = known.iter().copied().find(|known| is_like(known))?;
        let key = key.to_owned();
        Some(Self { key, protocol_key })
    }
}

/// Case folding, including the long s, the kelvin sign and the dotted and dotless i.
fn folded(text: &str) -> impl Iterator<Item = char> {
    text.chars().map(|letter| match letter {
        '\u{17f}' => 's',
        '\u{212a}' => 'k',
        '\u{130}' | '\u{131}' => 'i',
        other => other.to_ascii_lowercase(),
    })
}

/// Skips the values, which may be long.
fn find_in_object(object: &RawValue, known: &[&'static str]) -> Option<AmbiguousKey> {
    struct Keys<'a>(&'a [&'static str]);

    impl<'de> Visitor<'de> for Keys<'_> {
        type Value = Option<AmbiguousKey>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut found = None;
            while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                found = found.or_else(|| AmbiguousKey::find(&key, self.0));
                map.next_value::<IgnoredAny>()?;
            }
            Ok(found)
        }
    }

    let mut reader = serde_json::Deserializer::from_str(object.get());
    reader.deserialize_map(Keys(known)).ok().flatten()
}

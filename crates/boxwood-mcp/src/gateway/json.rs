//! Raw JSON, made and taken apart.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use sha2::{Digest, Sha256};

use crate::wire::Object;

/// Text becomes up to a hundred times as large when all of it is read. Longer text stays text.
pub(crate) const READABLE: usize = 256 * 1024;

/// Nothing that is written here can fail to be JSON.
pub(crate) fn raw<T: Serialize + ?Sized>(value: &T) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_default()
}

/// The elements of an array, each as it was written.
pub(crate) fn items(array: &RawValue) -> Option<Vec<&RawValue>> {
    serde_json::from_str(array.get()).ok()
}

pub(crate) fn object(raw: &RawValue) -> Option<Object> {
    Object::parse(raw.get()).ok()
}

pub(crate) fn is_object(raw: &RawValue) -> bool {
    raw.get().starts_with('{')
}

/// The same for the same JSON, however its keys are ordered and its text is laid out.
pub(crate) fn digest_of(parts: &[Option<&RawValue>]) -> [u8; 32] {
    let mut sum = Sha256::new();
    for part in parts {
        let Some(part) = part else {
            sum.update(b"-\0");
            continue;
        };
        match readable(part) {
            Some(value) => sum.update(ordered(&value)),
            // Too long, or nested too deep: then its text has to be the same.
            None => sum.update(part.get()),
        }
        sum.update([0]);
    }
    sum.finalize().into()
}

/// `None` when reading it would cost too much.
pub(crate) fn readable(part: &RawValue) -> Option<Value> {
    let text = Some(part.get()).filter(|text| text.len() <= READABLE)?;
    serde_json::from_str(text).ok()
}

fn ordered(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: BTreeMap<&String, String> = fields
                .iter()
                .map(|(key, value)| (key, ordered(value)))
                .collect();
            let each = fields.iter().map(|(key, value)| format!("{key:?}:{value}"));
            format!("{{{}}}", each.collect::<Vec<_>>().join(","))
        }
        Value::Array(items) => {
            format!(
                "[{}]",
                items.iter().map(ordered).collect::<Vec<_>>().join(",")
            )
        }
        simple => simple.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_minds_values_and_not_their_order() {
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
    fn long_text_is_compared_as_it_is() {
        let long = |blank: &str| {
            let many = vec![format!(r#"{{"":{blank}0}}"#); READABLE / 6];
            RawValue::from_string(format!("[{}]", many.join(","))).expect("JSON")
        };
        let (one, laid_out) = (long(""), long(" "));
        assert!(readable(&one).is_none());
        assert_eq!(digest_of(&[Some(&one)]), digest_of(&[Some(&one)]));
        assert_ne!(digest_of(&[Some(&one)]), digest_of(&[Some(&laid_out)]));
    }
}

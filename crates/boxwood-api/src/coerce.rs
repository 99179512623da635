//! The seed's lenient numbers and booleans: `"999"`, `9.0` and `true` are integers, `"yes"` is true.

use serde::{Deserialize, Deserializer, de::Error};
use serde_json::Value;

pub(crate) fn opt_u64<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u64>, D::Error> {
    Option::<Value>::deserialize(input)?
        .map(|value| {
            value
                .as_u64()
                .ok_or_else(|| D::Error::custom("must be an integer"))
        })
        .transpose()
}

pub(crate) fn opt_f64<'de, D: Deserializer<'de>>(input: D) -> Result<Option<f64>, D::Error> {
    Option::<f64>::deserialize(input)
}

pub(crate) fn opt_bool<'de, D: Deserializer<'de>>(input: D) -> Result<Option<bool>, D::Error> {
    Option::<bool>::deserialize(input)
}

//! Arguments of a tool that its server wants repeated in headers.
//!
//! Comes in: a tool's input schema, where `x-mcp-header` marks such arguments. Goes out: which they are,
//! and whether a call's headers say what its arguments say.

use http::HeaderMap;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::headers::{decoded, shortened, single};
use super::json::{object, readable};
use super::refusal::Refusal;
use crate::wire::Object;

const MARK: &str = "x-mcp-header";
const MOST: usize = 64;
const DEEPEST: usize = 16;
/// Bytes of the keys that lead to one argument.
const LONGEST_PATH: usize = 1024;

/// One argument that a header repeats.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mirrored {
    /// The keys that lead to it.
    path: Vec<String>,
    /// In lower case, with `mcp-param-`.
    header: String,
}

impl Mirrored {
    /// About what it takes.
    pub(crate) fn bytes(&self) -> usize {
        let beside = size_of::<String>();
        let path = self.path.iter().map(|key| key.len() + beside);
        size_of::<Self>() + path.sum::<usize>() + self.header.len()
    }
}

/// Marks that no client could follow are left out, and those of a schema that is too long to be read.
pub(crate) fn mirrored(schema: &RawValue) -> Vec<Mirrored> {
    let mut found = Vec::new();
    if !schema.get().contains(MARK) {
        return found;
    }
    if let Some(Value::Object(schema)) = readable(schema) {
        collect(&schema, &mut Vec::new(), &mut found);
    }
    let headers: Vec<String> = found.iter().map(|one| one.header.clone()).collect();
    let is_single = |header: &str| headers.iter().filter(|other| *other == header).count() == 1;
    found.retain(|one| is_single(&one.header));
    found
}

fn collect(schema: &Map<String, Value>, path: &mut Vec<String>, found: &mut Vec<Mirrored>) {
    let Some(Value::Object(properties)) = schema.get("properties") else {
        return;
    };
    if path.len() >= DEEPEST {
        return;
    }
    for (name, property) in properties {
        let Value::Object(property) = property else {
            continue;
        };
        path.push(name.clone());
        let is_short = path.iter().map(String::len).sum::<usize>() <= LONGEST_PATH;
        if let Some(header) = marked(property)
            && found.len() < MOST
            && is_short
        {
            found.push(Mirrored {
                path: path.clone(),
                header,
            });
        }
        collect(property, path, found);
        path.pop();
    }
}

fn marked(property: &Map<String, Value>) -> Option<String> {
    let name = property.get(MARK)?.as_str()?;
    let kind = property.get("type")?.as_str()?;
    let is_simple = matches!(kind, "string" | "integer" | "boolean");
    let is_token =
        name.len() <= LONGEST_PATH && http::HeaderName::from_bytes(name.as_bytes()).is_ok();
    (is_simple && is_token).then(|| format!("mcp-param-{}", name.to_ascii_lowercase()))
}

/// Whether each header says what the arguments say.
pub(crate) fn check(
    mirrored: &[Mirrored],
    headers: &HeaderMap,
    arguments: Option<&RawValue>,
) -> Result<(), Refusal> {
    for one in mirrored {
        let argument = argument(arguments, &one.path)?;
        let header = &one.header;
        let said = match single(headers, header)? {
            None => None,
            Some(value) => Some(decoded(value).ok_or_else(|| {
                Refusal::mismatch(format!(
                    "the header `{header}` is not the base64 it says it is"
                ))
            })?),
        };
        let place = one.path.join(".");
        match (said, argument) {
            (None, None) => {}
            (Some(said), Some(argument)) if is_same(&said, &argument) => {}
            (Some(said), Some(_)) => {
                return Err(Refusal::mismatch(format!(
                    "the header `{header}` says `{}` and the argument `{place}` something else",
                    shortened(&said)
                )));
            }
            (Some(_), None) => {
                return Err(Refusal::mismatch(format!(
                    "the header `{header}` came without the argument `{place}`"
                )));
            }
            (None, Some(_)) => {
                return Err(Refusal::mismatch(format!(
                    "the header `{header}` is missing for the argument `{place}`; `tools/list` says which headers a tool takes"
                )));
            }
        }
    }
    Ok(())
}

/// Nothing when it is missing, `null`, or nothing that a header could carry.
fn argument(arguments: Option<&RawValue>, path: &[String]) -> Result<Option<Value>, Refusal> {
    let Some((last, before)) = path.split_last() else {
        return Ok(None);
    };
    let Some(arguments) = arguments else {
        return Ok(None);
    };
    let Some(mut at) = object(arguments) else {
        return Err(Refusal::malformed(
            "`arguments` must be an object without doubled keys",
        ));
    };
    for key in before {
        match at.get(key).and_then(object) {
            Some(inner) => at = inner,
            None => return Ok(None),
        }
    }
    Ok(simple(&at, last))
}

fn simple(object: &Object, key: &str) -> Option<Value> {
    // What holds others is no simple value, and may be long.
    let text = object.get(key)?.get();
    let text = Some(text).filter(|text| !text.starts_with(['{', '[']))?;
    let value = serde_json::from_str(text).ok()?;
    matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_)).then_some(value)
}

fn is_same(said: &str, argument: &Value) -> bool {
    match argument {
        Value::String(text) => said == text,
        Value::Bool(value) => said == if *value { "true" } else { "false" },
        Value::Number(number) => {
            let numbers = said.parse::<f64>().ok().zip(number.as_f64());
            said == number.to_string()
                // Beyond that, numbers that differ look the same.
                || numbers.is_some_and(|(one, other)| {
                    one.abs() <= 9_007_199_254_740_991.0 && one.to_bits() == other.to_bits()
                })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::gateway::headers::tests::encoded;
    use crate::gateway::json::{READABLE, raw};
    use crate::gateway::refusal::HEADER_MISMATCH;

    fn schema() -> Box<RawValue> {
        raw(&json!({
            "type": "object",
            "properties": {
                "region": {"type": "string", "x-mcp-header": "Region"},
                "count": {"type": "integer", "x-mcp-header": "Count"},
                "deep": {"type": "object", "properties": {"flag": {"type": "boolean", "x-mcp-header": "Flag"}}},
                "ratio": {"type": "number", "x-mcp-header": "Ratio"},
                "bad": {"type": "string", "x-mcp-header": "not a token"},
                "one": {"type": "string", "x-mcp-header": "Twice"},
                "other": {"type": "string", "x-mcp-header": "TWICE"},
                "list": {"type": "array", "items": {"type": "string", "x-mcp-header": "Item"}},
            }
        }))
    }

    fn checked(pairs: &[(&'static str, &str)], arguments: &Value) -> Option<i64> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).expect("a header value"));
        }
        let arguments = raw(arguments);
        let result = check(&mirrored(&schema()), &headers, Some(&arguments));
        result.err().map(|refusal| refusal.code)
    }

    #[test]
    fn marks_are_found_where_they_may_stand() {
        let found = mirrored(&schema());
        let mut headers: Vec<&str> = found.iter().map(|one| one.header.as_str()).collect();
        headers.sort_unstable();
        assert_eq!(
            headers,
            ["mcp-param-count", "mcp-param-flag", "mcp-param-region"]
        );
    }

    #[test]
    fn a_schema_that_is_too_long_is_not_read() {
        let marked = json!({"type": "string", "x-mcp-header": "Region"});
        let with =
            |key: &str, much: Value| raw(&json!({"properties": {key: marked}, "much": much}));
        assert_eq!(mirrored(&with("a", Value::Null)).len(), 1);
        let much = vec![json!({"": 0}); READABLE / 6];
        assert!(mirrored(&with("a", much.into())).is_empty());
        let long = "x".repeat(LONGEST_PATH + 1);
        assert!(mirrored(&with(&long, Value::Null)).is_empty());
    }

    #[test]
    fn a_header_says_what_the_argument_says() {
        let all = [
            ("mcp-param-region", "eu"),
            ("mcp-param-count", "42.0"),
            ("mcp-param-flag", "true"),
        ];
        let arguments = json!({"region": "eu", "count": 42, "deep": {"flag": true}});
        assert_eq!(checked(&all, &arguments), None);
        assert_eq!(checked(&all[1..], &arguments), Some(HEADER_MISMATCH));
        assert_eq!(
            checked(
                &all,
                &json!({"region": "us", "count": 42, "deep": {"flag": true}})
            ),
            Some(HEADER_MISMATCH)
        );
        assert_eq!(
            checked(&all, &json!({"region": "eu", "count": 42})),
            Some(HEADER_MISMATCH)
        );
    }

    #[test]
    fn what_is_null_or_missing_has_no_header() {
        assert_eq!(checked(&[], &json!({"region": null, "other": 1})), None);
        assert_eq!(checked(&[], &json!({})), None);
        assert_eq!(
            checked(&[("mcp-param-region", "eu")], &json!({"region": null})),
            Some(HEADER_MISMATCH)
        );
    }

    proptest! {
        #[test]
        fn every_argument_can_be_repeated(region in ".{0,60}") {
            let header = encoded(&region);
            let arguments = json!({"region": region});
            prop_assert_eq!(checked(&[("mcp-param-region", header.as_str())], &arguments), None);
        }
    }
}

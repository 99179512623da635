//! Tool arguments that are repeated in `Mcp-Param-…` headers, as marked by `x-mcp-header` in the input
//! schema.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;

use boxwood_api::McpServerName;
use http::HeaderMap;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::gateway::error::{RpcError, shortened};
use crate::gateway::http::headers::{decoded, single};
use crate::gateway::json::{object, readable};
use crate::lock;
use crate::wire::Object;

const MARK: &str = "x-mcp-header";
/// Maximum number of marks of one tool.
const MAX_HEADERS_PER_TOOL: usize = 64;
/// Maximum number of marks of all tools of one server.
const MAX_HEADERS_PER_SERVER: usize = 4096;
/// The list of tools is requested again after this time.
const CACHE_TTL: Duration = Duration::from_mins(1);
/// Maximum depth of a marked property.
const MAX_DEPTH: usize = 16;
/// Total size of the keys of one path.
const MAX_PATH_BYTES: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ParamHeader {
    /// Keys from the arguments object to the value.
    path: Vec<String>,
    /// Lower case, including `mcp-param-`.
    header: String,
}

/// The marks of all tools, so that not every call requests the list of tools.
#[derive(Default)]
pub(crate) struct ParamHeaderCache {
    servers: Mutex<HashMap<McpServerName, Listed>>,
}

/// The last list of one connection.
struct Listed {
    connection: u64,
    since: Instant,
    tools: HashMap<String, Vec<ParamHeader>>,
}

impl ParamHeaderCache {
    /// The marks of this tool; empty if the server does not answer.
    pub(crate) async fn of(
        &self,
        server: &McpServerName,
        connection: u64,
        tool: &str,
        list: impl Future<Output = Result<Vec<Box<RawValue>>, RpcError>>,
    ) -> Vec<ParamHeader> {
        if let Some(found) = self.find(server, connection, tool) {
            return found;
        }
        let Ok(listed) = list.await else {
            return Vec::new();
        };
        let mut remaining = MAX_HEADERS_PER_SERVER;
        let tools = listed.iter().filter_map(|tool| {
            let tool = object(tool)?;
            let mut marks = tool
                .get("inputSchema")
                .map(declared_headers)
                .unwrap_or_default();
            marks.truncate(remaining);
            remaining -= marks.len();
            Some((tool.text("name")?, marks))
        });
        let tools: HashMap<_, _> = tools.collect();
        let found = tools.get(tool).cloned().unwrap_or_default();
        let listed = Listed {
            connection,
            since: Instant::now(),
            tools,
        };
        let mut servers = lock(&self.servers);
        servers.retain(|_, other| other.since.elapsed() < CACHE_TTL);
        servers.insert(server.clone(), listed);
        found
    }

    /// `None` if the list has to be requested.
    fn find(
        &self,
        server: &McpServerName,
        connection: u64,
        tool: &str,
    ) -> Option<Vec<ParamHeader>> {
        let servers = lock(&self.servers);
        let listed = servers.get(server)?;
        let is_valid = listed.connection == connection && listed.since.elapsed() < CACHE_TTL;
        listed.tools.get(tool).filter(|_| is_valid).cloned()
    }
}

/// The marks of an input schema. Ignores invalid ones, and schemas that are too long.
pub(crate) fn declared_headers(schema: &RawValue) -> Vec<ParamHeader> {
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

fn collect(schema: &Map<String, Value>, path: &mut Vec<String>, found: &mut Vec<ParamHeader>) {
    let Some(Value::Object(properties)) = schema.get("properties") else {
        return;
    };
    if path.len() >= MAX_DEPTH {
        return;
    }
    for (name, property) in properties {
        let Value::Object(property) = property else {
            continue;
        };
        path.push(name.clone());
        let is_short = path.iter().map(String::len).sum::<usize>() <= MAX_PATH_BYTES;
        if let Some(header) = header_name(property)
            && found.len() < MAX_HEADERS_PER_TOOL
            && is_short
        {
            found.push(ParamHeader {
                path: path.clone(),
                header,
            });
        }
        collect(property, path, found);
        path.pop();
    }
}

fn header_name(property: &Map<String, Value>) -> Option<String> {
    let name = property.get(MARK)?.as_str()?;
    let kind = property.get("type")?.as_str()?;
    let is_simple = matches!(kind, "string" | "integer" | "boolean");
    let is_token =
        name.len() <= MAX_PATH_BYTES && http::HeaderName::from_bytes(name.as_bytes()).is_ok();
    (is_simple && is_token).then(|| format!("mcp-param-{}", name.to_ascii_lowercase()))
}

/// Compares the headers with the arguments.
pub(crate) fn check(
    expected: &[ParamHeader],
    headers: &HeaderMap,
    arguments: Option<&RawValue>,
) -> Result<(), RpcError> {
    for one in expected {
        let argument = argument(arguments, &one.path)?;
        let header = &one.header;
        let sent = match single(headers, header)? {
            None => None,
            Some(value) => Some(decoded(value).ok_or_else(|| {
                RpcError::header_mismatch(format!("header `{header}` is not valid base64"))
            })?),
        };
        let path = one.path.join(".");
        match (sent, argument) {
            (None, None) => {}
            (Some(sent), Some(argument)) if is_same(&sent, &argument) => {}
            (Some(sent), Some(_)) => {
                return Err(RpcError::header_mismatch(format!(
                    "header `{header}: {}` does not match the argument `{path}`",
                    shortened(&sent)
                )));
            }
            (Some(_), None) => {
                return Err(RpcError::header_mismatch(format!(
                    "header `{header}` without the argument `{path}`"
                )));
            }
            (None, Some(_)) => {
                return Err(RpcError::header_mismatch(format!(
                    "header `{header}` is missing for the argument `{path}`; see the input schema in `tools/list`"
                )));
            }
        }
    }
    Ok(())
}

/// `None` if it is missing, `null` or not a simple value.
fn argument(arguments: Option<&RawValue>, path: &[String]) -> Result<Option<Value>, RpcError> {
    let Some((last, before)) = path.split_last() else {
        return Ok(None);
    };
    let Some(arguments) = arguments else {
        return Ok(None);
    };
    let Some(mut current) = object(arguments) else {
        return Err(RpcError::malformed(
            "`arguments` must be an object without duplicate keys",
        ));
    };
    for key in before {
        match current.get(key).and_then(object) {
            Some(inner) => current = inner,
            None => return Ok(None),
        }
    }
    Ok(simple(&current, last))
}

fn simple(object: &Object, key: &str) -> Option<Value> {
    // Objects and arrays may be long and are not parsed.
    let text = object.get(key)?.get();
    let text = Some(text).filter(|text| !text.starts_with(['{', '[']))?;
    let value = serde_json::from_str(text).ok()?;
    matches!(value, Value::String(_) | Value::Number(_) | Value::Bool(_)).then_some(value)
}

fn is_same(header: &str, argument: &Value) -> bool {
    match argument {
        Value::String(text) => header == text,
        Value::Bool(value) => header == if *value { "true" } else { "false" },
        Value::Number(number) => {
            let numbers = header.parse::<f64>().ok().zip(number.as_f64());
            header == number.to_string()
                // Larger integers are not exact as `f64`.
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
    use crate::gateway::error::HEADER_MISMATCH;
    use crate::gateway::http::headers::tests::encoded;
    use crate::gateway::json::{MAX_READABLE_BYTES, raw};

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
        let result = check(&declared_headers(&schema()), &headers, Some(&arguments));
        result.err().map(|error| error.code)
    }

    #[test]
    fn valid_header_marks_are_found() {
        let found = declared_headers(&schema());
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
        assert_eq!(declared_headers(&with("a", Value::Null)).len(), 1);
        let much = vec![json!({"": 0}); MAX_READABLE_BYTES / 6];
        assert!(declared_headers(&with("a", much.into())).is_empty());
        let long = "x".repeat(MAX_PATH_BYTES + 1);
        assert!(declared_headers(&with(&long, Value::Null)).is_empty());
    }

    #[test]
    fn a_header_must_equal_the_argument() {
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
    fn null_and_missing_arguments_have_no_header() {
        assert_eq!(checked(&[], &json!({"region": null, "other": 1})), None);
        assert_eq!(checked(&[], &json!({})), None);
        assert_eq!(
            checked(&[("mcp-param-region", "eu")], &json!({"region": null})),
            Some(HEADER_MISMATCH)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn tools_are_listed_again_for_another_process_and_after_a_while() {
        let cache = ParamHeaderCache::default();
        let server = McpServerName::new("some").expect("a legal name");
        let listed = std::cell::Cell::new(0);
        let find = async |connection: u64, tool: &str| {
            let list = async {
                listed.set(listed.get() + 1);
                Ok(vec![raw(
                    &json!({"name": "region", "inputSchema": schema()}),
                )])
            };
            cache.of(&server, connection, tool, list).await.len()
        };
        assert_eq!(find(1, "region").await, 3);
        assert_eq!((find(1, "region").await, listed.get()), (3, 1));
        assert_eq!((find(1, "unknown").await, listed.get()), (0, 2));
        assert_eq!((find(2, "region").await, listed.get()), (3, 3));
        tokio::time::advance(CACHE_TTL).await;
        assert_eq!((find(2, "region").await, listed.get()), (3, 4));
    }

    #[tokio::test]
    async fn the_marks_of_one_server_are_bounded() {
        let marks = (0..MAX_HEADERS_PER_TOOL).map(|number| {
            let mark = json!({"type": "string", "x-mcp-header": format!("H{number}")});
            (format!("a{number}"), mark)
        });
        let schema = json!({"properties": marks.collect::<Map<_, _>>()});
        let tool =
            |number: usize| raw(&json!({"name": format!("t{number}"), "inputSchema": schema}));
        let cache = ParamHeaderCache::default();
        let server = McpServerName::new("some").expect("a legal name");
        let list = async { Ok((0..100).map(tool).collect()) };
        assert_eq!(
            cache.of(&server, 1, "t0", list).await.len(),
            MAX_HEADERS_PER_TOOL
        );
        let servers = lock(&cache.servers);
        let tools = &servers[&server].tools;
        assert_eq!(tools.len(), 100, "all are known");
        assert_eq!(
            tools.values().map(Vec::len).sum::<usize>(),
            MAX_HEADERS_PER_SERVER
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

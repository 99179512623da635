//! Checks the headers that repeat values of the body in the modern protocol version.
//!
//! A proxy may have used a header for its decision, so the body must contain the same value.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::HeaderMap;

use crate::gateway::error::{RpcError, shortened};
use crate::wire::Object;

pub(crate) const PROTOCOL_VERSION: &str = "mcp-protocol-version";
const METHOD: &str = "mcp-method";
const NAME: &str = "mcp-name";

const ENCODED_PREFIX: &str = "=?base64?";
const ENCODED_SUFFIX: &str = "?=";

/// The value of a header that may occur only once.
pub(crate) fn single<'h>(headers: &'h HeaderMap, name: &str) -> Result<Option<&'h str>, RpcError> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(RpcError::header_mismatch(format!(
            "header `{name}` must occur only once"
        )));
    }
    let text = value.to_str().map_err(|_| {
        RpcError::header_mismatch(format!(
            "header `{name}` contains characters that headers must not contain; send it as {ENCODED_PREFIX}…{ENCODED_SUFFIX}"
        ))
    })?;
    Ok(Some(text.trim_matches([' ', '\t'])))
}

/// Decodes a header value. `None` if it is marked as base64 and is not.
pub(crate) fn decoded(value: &str) -> Option<String> {
    let inner = value.strip_prefix(ENCODED_PREFIX);
    match inner.and_then(|inner| inner.strip_suffix(ENCODED_SUFFIX)) {
        None => Some(value.to_owned()),
        Some(inner) => String::from_utf8(BASE64_STANDARD.decode(inner).ok()?).ok(),
    }
}

/// Compares `Mcp-Method` and `Mcp-Name` with the body.
pub(crate) fn check(headers: &HeaderMap, method: &str, params: &Object) -> Result<(), RpcError> {
    match single(headers, METHOD)? {
        None => {
            return Err(RpcError::header_mismatch("header `Mcp-Method` is missing"));
        }
        Some(value) if value != method => {
            return Err(RpcError::header_mismatch(format!(
                "header `Mcp-Method: {}` does not match the request body",
                shortened(value)
            )));
        }
        Some(_) => {}
    }
    let Some(expected) = name_field(method).and_then(|field| params.text(field)) else {
        return Ok(());
    };
    let Some(value) = single(headers, NAME)? else {
        return Err(RpcError::header_mismatch(format!(
            "header `Mcp-Name` is missing for `{method}`"
        )));
    };
    let decoded_name = decoded(value)
        .ok_or_else(|| RpcError::header_mismatch("header `Mcp-Name` is not valid base64"))?;
    if decoded_name == expected {
        Ok(())
    } else {
        Err(RpcError::header_mismatch(format!(
            "header `Mcp-Name: {}` does not match the request body",
            shortened(&decoded_name)
        )))
    }
}

/// The parameter that `Mcp-Name` repeats.
fn name_field(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some("taskId"),
        _ => None,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;
    use crate::gateway::error::HEADER_MISMATCH;

    /// Encodes a value like a client.
    pub(crate) fn encoded(value: &str) -> String {
        let is_safe = value.bytes().all(|byte| (0x20..0x7f).contains(&byte))
            && value.trim_matches([' ', '\t']) == value
            && !(value.starts_with(ENCODED_PREFIX) && value.ends_with(ENCODED_SUFFIX));
        if is_safe {
            return value.to_owned();
        }
        format!(
            "{ENCODED_PREFIX}{}{ENCODED_SUFFIX}",
            BASE64_STANDARD.encode(value)
        )
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, HeaderValue::from_str(value).expect("a header value"));
        }
        headers
    }

    fn params(text: &str) -> Object {
        Object::parse(text).expect("an object")
    }

    fn code(result: Result<(), RpcError>) -> Option<i64> {
        result.err().map(|error| error.code)
    }

    proptest! {
        #[test]
        fn every_value_can_be_sent_in_a_header(value in ".{0,80}") {
            let header = HeaderValue::from_str(&encoded(&value)).expect("a header value");
            let text = header.to_str().expect("visible characters");
            prop_assert_eq!(decoded(text), Some(value));
        }

        #[test]
        fn values_that_look_encoded_are_encoded_again(inner in "[A-Za-z0-9+/=]{0,20}") {
            let value = format!("{ENCODED_PREFIX}{inner}{ENCODED_SUFFIX}");
            prop_assert_eq!(decoded(&encoded(&value)), Some(value));
        }
    }

    #[test]
    fn invalid_base64_is_distinguished_from_a_plain_value() {
        assert_eq!(decoded("=?base64?SGVsbG8=?="), Some("Hello".to_owned()));
        assert_eq!(decoded("=?base64?SGVsbG8?="), None);
        assert_eq!(decoded("=?base64?SGVs!!!bG8=?="), None);
        assert_eq!(decoded("SGVsbG8="), Some("SGVsbG8=".to_owned()));
        assert_eq!(
            decoded("=?base64?SGVsbG8="),
            Some("=?base64?SGVsbG8=".to_owned())
        );
    }

    #[test]
    fn headers_that_differ_from_the_body_are_refused() {
        let call = params(r#"{"name":"echo"}"#);
        let fits = headers(&[("mcp-method", "tools/call"), ("mcp-name", "  echo ")]);
        assert!(check(&fits, "tools/call", &call).is_ok());
        for wrong in [
            headers(&[("mcp-name", "echo")]),
            headers(&[("mcp-method", "tools/call")]),
            headers(&[("mcp-method", "TOOLS/CALL"), ("mcp-name", "echo")]),
            headers(&[("mcp-method", "tools/call"), ("mcp-name", "other")]),
            headers(&[
                ("mcp-method", "tools/call"),
                ("mcp-name", "=?base64?ZWNobw?="),
            ]),
            headers(&[
                ("mcp-method", "tools/call"),
                ("mcp-name", "echo"),
                ("mcp-name", "echo"),
            ]),
        ] {
            assert_eq!(
                code(check(&wrong, "tools/call", &call)),
                Some(HEADER_MISMATCH),
                "{wrong:?}"
            );
        }
    }

    #[test]
    fn each_method_has_its_own_name() {
        let read = headers(&[
            ("mcp-method", "resources/read"),
            ("mcp-name", "=?base64?ZmlsZTovLy/DpA==?="),
        ]);
        let uri = params(r#"{"uri":"file:///ä"}"#);
        assert!(check(&read, "resources/read", &uri).is_ok());
        let task = headers(&[("mcp-method", "tasks/get"), ("mcp-name", "other")]);
        assert!(check(&task, "tasks/get", &params(r#"{"taskId":"one"}"#)).is_err());
        let list = headers(&[("mcp-method", "tools/list")]);
        assert!(check(&list, "tools/list", &params("{}")).is_ok());
    }
}
